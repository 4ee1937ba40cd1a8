import NIOCore
import TestSupport
import Testing

@testable import HHSocket

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

    /// The lengths at which a vectorised implementation changes its step, and 5552, after which the sums must be reduced.
    static let lengths =
        Array(0...300) + [511, 512, 513, 1_023, 1_024, 1_025, 4_095, 4_096, 4_097, 5_551, 5_552, 5_553]
        + [11_104, 11_105, 65_535, 65_536, 65_537, 1_000_003]

    @Test func theImplementationInUseAgreesWithZlib() {
        var random = SeededGenerator(seed: 1)
        for length in Self.lengths {
            let bytes = random.bytes(length)
            bytes.withUnsafeBytes { #expect(Adler32.checksum($0) == Adler32.zlib($0), "\(length) bytes") }
        }
    }

    @Test func theLargestBytesDoNotOverflow() {
        for length in Self.lengths {
            let bytes = [UInt8](repeating: 0xFF, count: length)
            bytes.withUnsafeBytes { #expect(Adler32.checksum($0) == Self.byDefinition($0), "\(length) bytes") }
        }
    }

    @Test func memoryThatIsNotAlignedHasTheSameChecksum() {
        var random = SeededGenerator(seed: 2)
        let bytes = random.bytes(5_000)
        bytes.withUnsafeBytes { whole in
            for offset in 0..<70 {
                let part = UnsafeRawBufferPointer(rebasing: whole[offset..<offset + 4_900])
                #expect(Adler32.checksum(part) == Self.byDefinition(part))
            }
        }
    }

    /// RFC 1950, section 8.2, word for word.
    static func byDefinition(_ bytes: UnsafeRawBufferPointer) -> UInt32 {
        var low: UInt32 = 1
        var high: UInt32 = 0
        for byte in bytes {
            low = (low + UInt32(byte)) % 65_521
            high = (high + low) % 65_521
        }
        return high << 16 | low
    }
}
