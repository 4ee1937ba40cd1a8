// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

@Suite struct CRC32Tests {
    /// The check values of the catalogues, and those of RFC 3720, B.4.
    @Test(
        arguments: [
            ([], 0, 0),
            (Array("123456789".utf8), 0xCBF4_3926, 0xE306_9283),
            (Array("a".utf8), 0xE8B7_BE43, 0xC1D0_4330),
            ([UInt8](repeating: 0, count: 32), 0x190A_55AD, 0x8A91_36AA),
            ([UInt8](repeating: 0xFF, count: 32), 0xFF6C_AB0B, 0x62A8_AB43),
            (Array(0..<32), 0x9126_7E8A, 0x46DD_794E),
        ] as [([UInt8], UInt32, UInt32)]
    )
    func knownChecksums(bytes: [UInt8], crc32: UInt32, crc32c: UInt32) {
        #expect(bytes.withUnsafeBytes { CRC32.checksum($0) } == crc32)
        #expect(bytes.withUnsafeBytes { CRC32.castagnoli($0) } == crc32c)
    }

    @Test func fastImplementationsAgreeWithTheDefinition() {
        var random = SeededGenerator(seed: 41)
        let bytes = random.bytes(4_200)
        bytes.withUnsafeBytes { whole in
            for length in Array(0...80) + [255, 256, 257, 4_095, 4_096] {
                for offset in [0, 1, 3, 7, 64] {
                    let part = UnsafeRawBufferPointer(rebasing: whole[offset..<offset + length])
                    #expect(CRC32.checksum(part) == Self.byDefinition(part, 0xEDB8_8320))
                    #expect(CRC32.castagnoli(part) == Self.byDefinition(part, 0x82F6_3B78))
                }
            }
        }
    }

    @Test func noBytesAtAllHaveZero() {
        #expect(CRC32.checksum(UnsafeRawBufferPointer(start: nil, count: 0)) == 0)
        #expect(CRC32.castagnoli(UnsafeRawBufferPointer(start: nil, count: 0)) == 0)
    }

    /// Bit by bit, with the polynomial's bits reversed.
    static func byDefinition(_ bytes: UnsafeRawBufferPointer, _ polynomial: UInt32) -> UInt32 {
        var crc = UInt32.max
        for byte in bytes {
            crc ^= UInt32(byte)
            for _ in 0..<8 { crc = crc & 1 == 0 ? crc >> 1 : crc >> 1 ^ polynomial }
        }
        return ~crc
    }
}
