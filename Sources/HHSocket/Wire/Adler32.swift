import CZlib
import NIOCore

#if FastChecksum && canImport(CDeflate)
import CDeflate
#endif

/// The checksum of the standard frame: adler32 with seed 1, as in RFC 1950.
public enum Adler32 {
    /// The checksum of no bytes.
    public static let seed: UInt32 = 1

    /// The checksum of `bytes`, by libdeflate where the package was built with the `FastChecksum` trait, else by zlib.
    @inlinable
    public static func checksum(_ bytes: UnsafeRawBufferPointer) -> UInt32 {
        guard let start = bytes.baseAddress, !bytes.isEmpty else { return self.seed }
        return self.accelerated(start, bytes.count)
    }

    /// The checksum of the readable bytes of `buffer`.
    @inlinable
    public static func checksum(_ buffer: ByteBuffer) -> UInt32 {
        buffer.withUnsafeReadableBytes { self.checksum($0) }
    }

    /// Which library computes the checksum.
    public static var implementation: String {
        #if FastChecksum && canImport(CDeflate)
        "libdeflate"
        #else
        "zlib"
        #endif
    }

    @usableFromInline
    static func accelerated(_ start: UnsafeRawPointer, _ count: Int) -> UInt32 {
        #if FastChecksum && canImport(CDeflate)
        libdeflate_adler32(self.seed, start, count)
        #else
        self.zlib(UnsafeRawBufferPointer(start: start, count: count))
        #endif
    }

    /// The checksum by zlib, which every platform has: the reference for the other implementation.
    static func zlib(_ bytes: UnsafeRawBufferPointer) -> UInt32 {
        // adler32_z takes a size_t, adler32 only 32 bits.
        let start = bytes.bindMemory(to: UInt8.self).baseAddress
        return UInt32(truncatingIfNeeded: adler32_z(uLong(self.seed), start, bytes.count))
    }
}
