// SPDX-License-Identifier: Apache-2.0
import CHHSocket
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

@Suite struct SHATests {
    /// The examples of FIPS 180 and its predecessor's appendices, and no bytes at all.
    @Test(
        arguments: [
            (
                "", "da39a3ee5e6b4b0d3255bfef95601890afd80709",
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
            ),
            (
                "abc", "a9993e364706816aba3e25717850c26c9cd0d89d",
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
            ),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
            ),
            (
                "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrs"
                    + "mnopqrstnopqrstu",
                "a49b2446a02c645bf419f995b67091253a04a259",
                "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"
            ),
        ] as [(String, String, String)]
    )
    func knownDigests(text: String, sha1: String, sha256: String) {
        let bytes = Array(text.utf8)
        #expect(Self.hex(SHA1.hash(of: bytes)) == sha1)
        #expect(Self.hex(SHA256.hash(of: bytes)) == sha256)
        for implementation in Self.implementations {
            #expect(Self.hex(Self.sha1([bytes[...]], implementation)) == sha1)
            #expect(Self.hex(Self.sha256([bytes[...]], implementation)) == sha256)
        }
    }

    @Test func aMillionTimesA() {
        let bytes = [UInt8](repeating: UInt8(ascii: "a"), count: 1_000_000)
        for implementation in Self.implementations {
            #expect(
                Self.hex(Self.sha1([bytes[...]], implementation)) == "34aa973cd4c4daa4f61eeb2bdbad27316534016f"
            )
            #expect(
                Self.hex(Self.sha256([bytes[...]], implementation))
                    == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"
            )
        }
    }

    @Test func digestsThatAnotherImplementationMade() throws {
        let bytes = Self.input(100_000)
        let lines = shaVectors.split(separator: "\n").map { $0.split(separator: " ").map(String.init) }
        #expect(lines.count > 64)
        for line in lines {
            let part = bytes.prefix(try #require(Int(line[0])))
            for implementation in Self.implementations {
                #expect(Self.hex(Self.sha1([part], implementation)) == line[1], "\(part.count) bytes")
                #expect(Self.hex(Self.sha256([part], implementation)) == line[2], "\(part.count) bytes")
            }
            #expect(Self.hex(SHA1.hash(of: Array(part))) == line[1], "\(part.count) bytes")
            #expect(Self.hex(SHA256.hash(of: Array(part))) == line[2], "\(part.count) bytes")
        }
    }

    /// The bytes are split into one part, two and three.
    @Test func whereTheBytesAreSplitDoesNotMatter() {
        let bytes = Self.input(300)
        for length in 0...bytes.count {
            let (sha1, sha256) = (ByTheBook.sha1(bytes[..<length]), ByTheBook.sha256(bytes[..<length]))
            // Different places for each length, so that all are covered in the end.
            for cut in Set([0, 1, 63, 64, 65, length] + Array(stride(from: length % 7, through: length, by: 7)))
            where cut <= length {
                let second = cut + (length - cut) / 2
                let parts = [bytes[..<cut], bytes[cut..<second], bytes[second..<length]]
                for implementation in Self.implementations {
                    let isRight =
                        Self.sha1(parts, implementation) == sha1 && Self.sha256(parts, implementation) == sha256
                    #expect(isRight, "\(length) bytes, split at \(cut) and \(second)")
                }
            }
        }
    }

    @Test func memoryThatIsNotAlignedHasTheSameDigest() {
        let bytes = Self.input(400)
        for offset in 0..<70 {
            // Arrays are aligned to at least 16 bytes.
            let part = bytes[offset..<offset + 300]
            for implementation in Self.implementations {
                #expect(Self.sha1([part], implementation) == ByTheBook.sha1(part))
                #expect(Self.sha256([part], implementation) == ByTheBook.sha256(part))
            }
        }
    }

    @Test func aCopyContinuesByItself() {
        let bytes = Self.input(200)
        var (sha1, sha256) = (SHA1(), SHA256())
        bytes[..<100].withUnsafeBytes {
            sha1.update($0)
            sha256.update($0)
        }
        let (copyOfSHA1, copyOfSHA256) = (sha1, sha256)
        bytes[100...].withUnsafeBytes {
            sha1.update($0)
            sha256.update($0)
        }
        #expect(copyOfSHA1.finalize() == ByTheBook.sha1(bytes[..<100]))
        #expect(copyOfSHA256.finalize() == ByTheBook.sha256(bytes[..<100]))
        #expect(sha1.finalize() == ByTheBook.sha1(bytes[...]))
        #expect(sha256.finalize() == ByTheBook.sha256(bytes[...]))
    }

    @Test func moreMayComeAfterADigest() {
        let bytes = Self.input(130)
        var hash = SHA256()
        for cut in bytes.indices {
            bytes[cut...cut].withUnsafeBytes { hash.update($0) }
            #expect(hash.finalize() == ByTheBook.sha256(bytes[...cut]))
        }
    }

    @Test func anEmptyPieceChangesNothing() {
        var hash = SHA256()
        hash.update(UnsafeRawBufferPointer(start: nil, count: 0))
        #expect(hash.finalize() == SHA256.hash(of: []))
        #expect(SHA256.hash(of: []).count == SHA256.byteCount)
        #expect(SHA1.hash(of: []).count == SHA1.byteCount)
    }

    @Test func theProcessorsInstructionsAreChosenWhereItHasThem() {
        #expect(chhsocket_sha_supports(CHHSOCKET_SHA_PORTABLE))
        #expect(Self.implementations.contains(chhsocket_sha_chosen()))
        #expect(
            (chhsocket_sha_chosen() == CHHSOCKET_SHA_INSTRUCTIONS) == chhsocket_sha_supports(CHHSOCKET_SHA_INSTRUCTIONS)
        )
    }

    // MARK: Support

    /// The implementations that this processor supports.
    static let implementations = [CHHSOCKET_SHA_PORTABLE, CHHSOCKET_SHA_INSTRUCTIONS].filter {
        chhsocket_sha_supports($0)
    }

    /// The input of ``shaVectors``.
    static func input(_ count: Int) -> [UInt8] {
        var state: UInt32 = 1
        return (0..<count).map { _ in
            state = state &* 1_664_525 &+ 1_013_904_223
            return UInt8(state >> 24)
        }
    }

    static func hex(_ bytes: [UInt8]) -> String {
        bytes.map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined()
    }

    static func sha1(_ parts: [ArraySlice<UInt8>], _ implementation: chhsocket_sha_implementation) -> [UInt8] {
        var context = chhsocket_sha1_begin_with(implementation)
        for part in parts { part.withUnsafeBytes { chhsocket_sha1_update(&context, $0.baseAddress, $0.count) } }
        var digest = [UInt8](repeating: 0, count: SHA1.byteCount)
        chhsocket_sha1_finish(&context, &digest)
        return digest
    }

    static func sha256(_ parts: [ArraySlice<UInt8>], _ implementation: chhsocket_sha_implementation) -> [UInt8] {
        var context = chhsocket_sha256_begin_with(implementation)
        for part in parts { part.withUnsafeBytes { chhsocket_sha256_update(&context, $0.baseAddress, $0.count) } }
        var digest = [UInt8](repeating: 0, count: SHA256.byteCount)
        chhsocket_sha256_finish(&context, &digest)
        return digest
    }
}

/// Both functions as in FIPS 180-4, section by section, and slow. The round constants are computed.
private enum ByTheBook {
    /// Section 6.1.2.
    static func sha1(_ bytes: ArraySlice<UInt8>) -> [UInt8] {
        var hash: [UInt32] = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476, 0xC3D2_E1F0]
        for block in self.blocks(bytes) {
            var schedule = block
            for t in 16..<80 {
                schedule.append(
                    self.rotl(1, schedule[t - 3] ^ schedule[t - 8] ^ schedule[t - 14] ^ schedule[t - 16])
                )
            }
            var (a, b, c, d, e) = (hash[0], hash[1], hash[2], hash[3], hash[4])
            for t in 0..<80 {
                let (function, constant): (UInt32, UInt32) =
                    switch t {
                    case ..<20: ((b & c) ^ (~b & d), 0x5A82_7999)
                    case ..<40: (b ^ c ^ d, 0x6ED9_EBA1)
                    case ..<60: ((b & c) ^ (b & d) ^ (c & d), 0x8F1B_BCDC)
                    default: (b ^ c ^ d, 0xCA62_C1D6)
                    }
                let next = self.rotl(5, a) &+ function &+ e &+ constant &+ schedule[t]
                (e, d, c, b, a) = (d, c, self.rotl(30, b), a, next)
            }
            hash = zip(hash, [a, b, c, d, e]).map { $0 &+ $1 }
        }
        return self.bytes(of: hash)
    }

    /// Section 6.2.2.
    static func sha256(_ bytes: ArraySlice<UInt8>) -> [UInt8] {
        // Section 5.3.3: of the square roots of the first eight primes.
        var hash = self.primes.prefix(8).map { self.fraction(Double($0).squareRoot()) }
        for block in self.blocks(bytes) {
            var schedule = block
            for t in 16..<64 {
                let (early, late) = (schedule[t - 15], schedule[t - 2])
                let sigma0 = self.rotr(7, early) ^ self.rotr(18, early) ^ early >> 3
                let sigma1 = self.rotr(17, late) ^ self.rotr(19, late) ^ late >> 10
                schedule.append(sigma1 &+ schedule[t - 7] &+ sigma0 &+ schedule[t - 16])
            }
            var v = hash
            for t in 0..<64 {
                let sigma1 = self.rotr(6, v[4]) ^ self.rotr(11, v[4]) ^ self.rotr(25, v[4])
                let choice = (v[4] & v[5]) ^ (~v[4] & v[6])
                let first = v[7] &+ sigma1 &+ choice &+ self.constants[t] &+ schedule[t]
                let sigma0 = self.rotr(2, v[0]) ^ self.rotr(13, v[0]) ^ self.rotr(22, v[0])
                let majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2])
                v = [first &+ sigma0 &+ majority, v[0], v[1], v[2], v[3] &+ first, v[4], v[5], v[6]]
            }
            hash = zip(hash, v).map { $0 &+ $1 }
        }
        return self.bytes(of: hash)
    }

    /// Section 4.2.2: of the cube roots of the first 64 primes.
    private static let constants = primes.map { prime in
        // From Newton's method, since no platform's cube root is promised to be exact to 35 bits.
        var root = 7.0
        for _ in 0..<40 { root -= (root * root * root - Double(prime)) / (3 * root * root) }
        return fraction(root)
    }

    private static let primes = Array((2..<312).filter { number in !(2..<number).contains { number % $0 == 0 } })

    /// The first 32 bits after the point.
    private static func fraction(_ number: Double) -> UInt32 {
        UInt32((number - number.rounded(.down)) * 4_294_967_296)
    }

    /// Sections 5.1.1 and 5.2.1: padded, 16 words each.
    private static func blocks(_ bytes: ArraySlice<UInt8>) -> [[UInt32]] {
        var padded = Array(bytes) + [0x80]
        while padded.count % 64 != 56 { padded.append(0) }
        let bits = UInt64(bytes.count) * 8
        padded += (0..<8).map { UInt8(truncatingIfNeeded: bits >> (56 - 8 * UInt64($0))) }
        return stride(from: 0, to: padded.count, by: 64).map { block in
            stride(from: block, to: block + 64, by: 4).map { word in
                padded[word..<word + 4].reduce(0) { $0 << 8 | UInt32($1) }
            }
        }
    }

    private static func bytes(of words: [UInt32]) -> [UInt8] {
        words.flatMap { word in withUnsafeBytes(of: word.bigEndian) { Array($0) } }
    }

    private static func rotl(_ bits: UInt32, _ word: UInt32) -> UInt32 { word << bits | word >> (32 - bits) }

    private static func rotr(_ bits: UInt32, _ word: UInt32) -> UInt32 { word >> bits | word << (32 - bits) }
}
