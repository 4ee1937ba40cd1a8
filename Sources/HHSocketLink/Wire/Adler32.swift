// SPDX-License-Identifier: Apache-2.0
public import CHHSocket
import CZlib
import NIOCore

/// The checksum of the standard frame: adler32 with seed 1, as in RFC 1950.
@usableFromInline
package enum Adler32 {
    /// The checksum of no bytes.
    @usableFromInline package static let seed: UInt32 = 1

    /// The checksum of `bytes`. Up to 64 bytes are summed where this is called, more by code for this processor.
    @inlinable
    package static func checksum(_ bytes: UnsafeRawBufferPointer) -> UInt32 {
        chhsocket_adler32(self.seed, bytes.baseAddress, bytes.count)
    }

    /// The checksum of the readable bytes of `buffer`.
    @inlinable
    package static func checksum(_ buffer: ByteBuffer) -> UInt32 {
        buffer.withUnsafeReadableBytes { self.checksum($0) }
    }

    /// The name of the code that computes the checksum of more than 64 bytes on this processor: "AVX2", "SSSE3", "NEON"
    /// or, on others, "zlib".
    package static var implementation: String {
        String(cString: chhsocket_adler32_name(chhsocket_adler32_chosen()))
    }

    /// The checksum by zlib, with which tests compare the other implementations.
    static func zlib(_ bytes: UnsafeRawBufferPointer) -> UInt32 {
        // adler32_z takes a size_t, adler32 only 32 bits.
        let start = bytes.bindMemory(to: UInt8.self).baseAddress
        return UInt32(truncatingIfNeeded: adler32_z(uLong(self.seed), start, bytes.count))
    }
}
