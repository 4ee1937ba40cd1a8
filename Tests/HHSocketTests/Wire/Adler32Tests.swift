// SPDX-License-Identifier: Apache-2.0
import CHHSocket
import Foundation
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

@Suite struct Adler32Tests {
    @Test(
        arguments: [
            ("", 0x0000_0001), ("a", 0x0062_0062), ("hi", 0x013B_00D2), ("abc", 0x024D_0127), ("hello", 0x062C_0215),
            ("Wikipedia", 0x11E6_0398),
        ] as [(String, UInt32)]
    )
    func knownChecksums(text: String, checksum: UInt32) {
        #expect(Adler32.checksum(ByteBuffer(string: text)) == checksum)
        #expect(Array(text.utf8).withUnsafeBytes { Adler32.zlib($0) } == checksum)
    }

    @Test func noBytesAtAllHaveTheSeed() {
        #expect(Adler32.seed == 1)
        #expect(Adler32.checksum(UnsafeRawBufferPointer(start: nil, count: 0)) == 1)
        #expect(Adler32.checksum(ByteBuffer()) == 1)
    }

    @Test func theImplementationInUseIsOneThatThisProcessorHas() {
        let chosen = chhsocket_adler32_chosen()
        #expect(Self.implementations.contains(chosen))
        #expect(Adler32.implementation == String(cString: chhsocket_adler32_name(chosen)))
        #if arch(arm64)
        #expect(Adler32.implementation == "NEON")
        #elseif arch(x86_64)
        #expect(["AVX2", "SSSE3", "zlib"].contains(Adler32.implementation))
        #else
        #expect(Adler32.implementation == "zlib")
        #endif
    }

    @Test func implementationsOfOtherProcessorsAreNotSupported() {
        #expect(chhsocket_adler32_supports(CHHSOCKET_ADLER32_ZLIB))
        #if arch(arm64)
        #expect(!chhsocket_adler32_supports(CHHSOCKET_ADLER32_AVX2))
        #else
        #expect(!chhsocket_adler32_supports(CHHSOCKET_ADLER32_NEON))
        #endif
    }

    /// Checksums to continue from: the initial one, the largest, and some in between.
    static let runningValues: [UInt32] = [1, 0xFFF0_FFF0, 0, 0xFFF0_0000, 0x0000_FFF0, 0x1234_5678]

    /// Lengths below and above 64, from which vectors are used, and every remainder of blocks of 64.
    @Test(arguments: Adler32Tests.runningValues) func everyLength(value: UInt32) {
        var random = SeededGenerator(seed: 1)
        let inputs = [random.bytes(1_200), [UInt8](repeating: 0xFF, count: 1_200), [UInt8](repeating: 0, count: 1_200)]
        for bytes in inputs {
            bytes.withUnsafeBytes { whole in
                var expected = value
                for length in 0...whole.count {
                    let part = UnsafeRawBufferPointer(rebasing: whole[..<length])
                    Self.expect(part, value, expected)
                    if length < whole.count { expected = Self.byDefinition(expected, whole[length...length]) }
                }
            }
        }
    }

    /// Lengths around 5552, after which zlib reduces its sums, around 16 KiB, from which memory is aligned first, and
    /// around 256 KiB, after which the vectors' sums are reduced.
    @Test(arguments: [5_551, 5_552, 5_553, 16_383, 16_384, 16_385, 65_536, 262_143, 262_144, 262_145, 1_000_003])
    func longPayloads(length: Int) {
        var random = SeededGenerator(seed: 2)
        let bytes = random.bytes(length + 3)
        bytes.withUnsafeBytes { whole in
            for offset in 0...3 {
                let part = UnsafeRawBufferPointer(rebasing: whole[offset..<offset + length])
                for value in [1, 0xFFF0_FFF0] as [UInt32] { Self.expect(part, value, Self.zlib(value, part)) }
            }
        }
    }

    @Test func theLargestBytesDoNotOverflow() {
        let bytes = [UInt8](repeating: 0xFF, count: 1 << 20)
        bytes.withUnsafeBytes { whole in
            Self.expect(whole, 1, Self.byDefinition(1, whole[...]))
            Self.expect(whole, 0xFFF0_FFF0, Self.byDefinition(0xFFF0_FFF0, whole[...]))
        }
    }

    @Test func memoryThatIsNotAlignedHasTheSameChecksum() {
        var random = SeededGenerator(seed: 3)
        let bytes = random.bytes(20_100)
        bytes.withUnsafeBytes { whole in
            for offset in 0..<70 {
                for length in [1, 7, 8, 40, 64, 65, 127, 128, 200, 4_900, 20_000] {
                    let part = UnsafeRawBufferPointer(rebasing: whole[offset..<offset + length])
                    Self.expect(part, 0xFFF0_FFF0, Self.zlib(0xFFF0_FFF0, part))
                }
            }
        }
    }

    /// Only the middle one of three pages can be read.
    @Test func nothingOutsideTheBufferIsRead() throws {
        let page = Int(sysconf(Int32(_SC_PAGESIZE)))
        let memory = try #require(mmap(nil, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANON, -1, 0))
        try #require(memory != MAP_FAILED)
        defer { munmap(memory, 3 * page) }
        try #require(mprotect(memory + page, page, PROT_READ | PROT_WRITE) == 0)
        let readable = UnsafeRawBufferPointer(start: memory + page, count: page)
        UnsafeMutableRawBufferPointer(mutating: readable).initializeMemory(as: UInt8.self, repeating: 0xA5)
        for length in 0...300 {
            for part in [readable.prefix(length), readable.suffix(length)] {
                let part = UnsafeRawBufferPointer(rebasing: part)
                Self.expect(part, 1, Self.zlib(1, part))
            }
        }
    }

    @Test func aChecksumContinuesWhereAnotherEnded() {
        var random = SeededGenerator(seed: 4)
        let bytes = random.bytes(1_000)
        bytes.withUnsafeBytes { whole in
            for length in 0...whole.count {
                let first = chhsocket_adler32(Adler32.seed, whole.baseAddress, length)
                let rest = UnsafeRawBufferPointer(rebasing: whole[length...])
                #expect(chhsocket_adler32(first, rest.baseAddress, rest.count) == Adler32.zlib(whole))
            }
        }
    }

    /// The implementations that this processor supports.
    static let implementations = (0..<UInt32(CHHSOCKET_ADLER32_IMPLEMENTATIONS))
        .map { chhsocket_adler32_implementation(rawValue: .init($0)) }
        .filter { chhsocket_adler32_supports($0) }

    /// Expects the checksum of `bytes` after `value` from every implementation, and from the function that chooses one.
    static func expect(_ bytes: UnsafeRawBufferPointer, _ value: UInt32, _ expected: UInt32) {
        // One comparison for each: #expect takes longer than a short checksum.
        var wrong: [String] = []
        if chhsocket_adler32(value, bytes.baseAddress, bytes.count) != expected { wrong.append("the chosen one") }
        for implementation in self.implementations
        where chhsocket_adler32_with(implementation, value, bytes.baseAddress, bytes.count) != expected {
            wrong.append(String(cString: chhsocket_adler32_name(implementation)))
        }
        #expect(wrong.isEmpty, "\(bytes.count) bytes after \(value)")
    }

    static func zlib(_ value: UInt32, _ bytes: UnsafeRawBufferPointer) -> UInt32 {
        chhsocket_adler32_with(CHHSOCKET_ADLER32_ZLIB, value, bytes.baseAddress, bytes.count)
    }

    /// RFC 1950, section 8.2, word for word.
    static func byDefinition(_ value: UInt32, _ bytes: Slice<UnsafeRawBufferPointer>) -> UInt32 {
        var low = value & 0xFFFF
        var high = value >> 16
        for byte in bytes {
            low = (low + UInt32(byte)) % 65_521
            high = (high + low) % 65_521
        }
        return high << 16 | low
    }
}
