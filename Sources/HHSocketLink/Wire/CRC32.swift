// SPDX-License-Identifier: Apache-2.0
import CZlib

/// The cyclic redundancy checks that other people's frames end with.
package enum CRC32 {
    /// The crc32 of zlib, gzip and Ethernet, by zlib. That of no bytes is 0.
    package static func checksum(_ bytes: UnsafeRawBufferPointer) -> UInt32 {
        let start = bytes.bindMemory(to: UInt8.self).baseAddress
        return UInt32(truncatingIfNeeded: crc32_z(0, start, bytes.count))
    }

    /// Castagnoli's crc32c, that of iSCSI (RFC 3720, B.4), eight bytes at a time. That of no bytes is 0.
    package static func castagnoli(_ bytes: UnsafeRawBufferPointer) -> UInt32 {
        var crc = UInt32.max
        var offset = 0
        self.castagnoliTables.withUnsafeBufferPointer { table in
            while bytes.count - offset >= 8 {
                let low = crc ^ UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt32.self))
                let high = UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: offset + 4, as: UInt32.self))
                crc = table[7 << 8 | Int(low & 0xFF)] ^ table[6 << 8 | Int(low >> 8 & 0xFF)]
                crc ^= table[5 << 8 | Int(low >> 16 & 0xFF)] ^ table[4 << 8 | Int(low >> 24)]
                crc ^= table[3 << 8 | Int(high & 0xFF)] ^ table[2 << 8 | Int(high >> 8 & 0xFF)]
                crc ^= table[1 << 8 | Int(high >> 16 & 0xFF)] ^ table[Int(high >> 24)]
                offset += 8
            }
            while offset < bytes.count {
                crc = crc >> 8 ^ table[Int((crc ^ UInt32(bytes[offset])) & 0xFF)]
                offset += 1
            }
        }
        return ~crc
    }

    /// Eight tables of 256: the contribution of a byte followed by 0 to 7 bytes. The polynomial is 0x1EDC6F41, with its
    /// bits reversed.
    private static let castagnoliTables: [UInt32] = {
        var tables = [UInt32](repeating: 0, count: 8 * 256)
        for byte in 0..<256 {
            var crc = UInt32(byte)
            for _ in 0..<8 { crc = crc & 1 == 0 ? crc >> 1 : crc >> 1 ^ 0x82F6_3B78 }
            tables[byte] = crc
        }
        for index in 256..<tables.count {
            let previous = tables[index - 256]
            tables[index] = previous >> 8 ^ tables[Int(previous & 0xFF)]
        }
        return tables
    }()
}

extension WireFormat.Checksum.Algorithm {
    /// The checksum of `bytes`.
    public func checksum(_ bytes: UnsafeRawBufferPointer) -> UInt32 {
        switch self {
        case .adler32: Adler32.checksum(bytes)
        case .crc32: CRC32.checksum(bytes)
        case .crc32c: CRC32.castagnoli(bytes)
        }
    }
}
