// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// A masking key (RFC 6455, section 5.3), and how much of a payload it has been applied to.
struct WebSocketMask: Hashable, Sendable {
    /// The key, its first byte the lowest.
    private var key: UInt32

    /// - Parameter key: The four bytes on the wire as a big-endian number.
    init(key: UInt32) {
        self.key = key.byteSwapped
    }

    /// Writes the bytes of `source`, masked or unmasked, to `target`, which has room for them. The key then fits the
    /// next bytes of the payload.
    mutating func copy(_ source: UnsafeRawBufferPointer, to target: UnsafeMutableRawBufferPointer) {
        let wide = UInt64(self.key) << 32 | UInt64(self.key)
        var index = 0
        let block = SIMD8<UInt64>(repeating: wide.littleEndian)
        while source.count - index >= 64 {
            let bytes = source.loadUnaligned(fromByteOffset: index, as: SIMD8<UInt64>.self) ^ block
            target.storeBytes(of: bytes, toByteOffset: index, as: SIMD8<UInt64>.self)
            index += 64
        }
        while source.count - index >= 8 {
            let word = UInt64(littleEndian: source.loadUnaligned(fromByteOffset: index, as: UInt64.self)) ^ wide
            target.storeBytes(of: word.littleEndian, toByteOffset: index, as: UInt64.self)
            index += 8
        }
        while index < source.count {
            target[index] = source[index] ^ UInt8(truncatingIfNeeded: self.key >> UInt32(8 * (index & 3)))
            index += 1
        }
        let turn = UInt32(8 * (source.count & 3))
        if turn > 0 { self.key = self.key >> turn | self.key << (32 - turn) }
    }
}

extension ByteBuffer {
    /// Appends bytes, masked or unmasked.
    mutating func write(_ bytes: UnsafeRawBufferPointer, _ mask: inout WebSocketMask) {
        self.writeWithUnsafeMutableBytes(minimumWritableBytes: bytes.count) { target in
            mask.copy(bytes, to: UnsafeMutableRawBufferPointer(rebasing: target[..<bytes.count]))
            return bytes.count
        }
    }
}

/// Masking keys that a peer, or a script in a browser, cannot predict (RFC 6455, section 10.3): SHA-256 of a secret and
/// a counter, eight keys each, so that frames cost no system calls.
package struct MaskSource: Sendable {
    private let secret: [UInt8]
    private var counter: UInt64 = 0
    private var keys: [UInt32] = []

    /// - Parameter secret: 32 random bytes; the system's by default.
    package init(secret: [UInt8]? = nil) {
        self.secret = secret ?? (0..<32).map { _ in UInt8.random(in: .min ... .max) }
    }

    package mutating func next() -> UInt32 {
        if let key = self.keys.popLast() { return key }
        var input = self.secret
        withUnsafeBytes(of: self.counter) { input.append(contentsOf: $0) }
        self.counter += 1
        let digest = SHA256.hash(of: input)
        self.keys = digest.withUnsafeBytes { digest in
            (0..<8).map { digest.loadUnaligned(fromByteOffset: $0 * 4, as: UInt32.self) }
        }
        return self.keys.popLast() ?? 0
    }
}
