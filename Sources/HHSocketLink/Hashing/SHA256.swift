// SPDX-License-Identifier: Apache-2.0
#if canImport(CryptoKit)
import CryptoKit
#else
import CHHSocket
#endif

/// SHA-256 (FIPS 180-4) of bytes that arrive in pieces. A copy is independent.
package struct SHA256: IncrementalHash {
    /// The length of a digest.
    package static let byteCount = 32

    #if canImport(CryptoKit)
    private var function = CryptoKit.SHA256()
    #else
    private var context = chhsocket_sha256_begin()
    #endif

    package init() {}

    package mutating func update(_ bytes: UnsafeRawBufferPointer) {
        #if canImport(CryptoKit)
        self.function.update(bufferPointer: bytes)
        #else
        chhsocket_sha256_update(&self.context, bytes.baseAddress, bytes.count)
        #endif
    }

    /// The digest, 32 bytes, of all bytes so far. More may be added afterwards.
    package func finalize() -> [UInt8] {
        #if canImport(CryptoKit)
        return Array(self.function.finalize())
        #else
        var context = self.context
        return [UInt8](unsafeUninitializedCapacity: Self.byteCount) { digest, count in
            chhsocket_sha256_finish(&context, digest.baseAddress)
            count = Self.byteCount
        }
        #endif
    }
}
