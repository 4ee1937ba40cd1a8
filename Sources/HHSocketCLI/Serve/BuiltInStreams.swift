// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketServer
import NIOCore

/// The streams that `hhsocket serve` serves.
extension BuiltIn {
    /// Streams items of bytes `x`; the payload gives their number and length: `COUNT SIZE` in decimal.
    static let streamOfItems: UInt32 = 1010
    /// Takes a stream, and answers with the number of its items, their total length in bytes and the SHA-256 of their
    /// concatenation, in hex: `COUNT BYTES SHA256HEX`.
    static let digest: UInt32 = 1011
    /// Echoes a stream item by item.
    static let echoStream: UInt32 = 1012
    /// Takes a stream, and answers with the number of its items and their total length in bytes: `COUNT BYTES`.
    static let countOfItems: UInt32 = 1013

    /// The longest item of ``streamOfItems``, in bytes.
    static let longestItem = 16_777_216

    static func addStream(_ type: UInt32, to router: inout Router) {
        switch type {
        case self.streamOfItems:
            router.stream(type, kind: .serverStreaming) { stream, _ in
                guard let (count, size) = Self.items(in: stream.request.body) else { throw StatusError(.illegalFormat) }
                let item = ByteBuffer(repeating: UInt8(ascii: "x"), count: size)
                for _ in 0..<count { try await stream.send(item) }
                return ByteBuffer()
            }
        case self.digest:
            router.stream(type, kind: .clientStreaming) { stream, _ in
                var (count, length, hash) = (0, 0, SHA256())
                for try await item in stream.items {
                    count += 1
                    length += item.readableBytes
                    item.withUnsafeReadableBytes { hash.update($0) }
                }
                return ByteBuffer(string: "\(count) \(length) \(hash.finalize().hexadecimal)")
            }
        case self.countOfItems:
            router.stream(type, kind: .clientStreaming) { stream, _ in
                var (count, length) = (0, 0)
                for try await item in stream.items {
                    count += 1
                    length += item.readableBytes
                }
                return ByteBuffer(string: "\(count) \(length)")
            }
        default:
            router.stream(type, kind: .bidirectional) { stream, _ in
                for try await item in stream.items { try await stream.send(item) }
                return ByteBuffer()
            }
        }
    }

    /// Returns the two numbers of `COUNT SIZE`; nil if `body` is anything else.
    static func items(in body: ByteBuffer) -> (count: Int, size: Int)? {
        let parts = body.readableBytesView.split(separator: UInt8(ascii: " "), omittingEmptySubsequences: false)
        guard parts.count == 2, let count = Self.decimal(ByteBuffer(bytes: parts[0]), limit: .max / 16),
            // One more than allowed, so that a number that is too large is not read as the largest.
            let size = Self.decimal(ByteBuffer(bytes: parts[1]), limit: Self.longestItem + 1), size <= Self.longestItem
        else { return nil }
        return (count, size)
    }
}
