// SPDX-License-Identifier: Apache-2.0
import Dispatch
import HHSocket
import NIOCore

/// Compression and decompression of large bodies, on a queue of the client, one after the other: on the socket thread
/// they would delay every other call, heartbeat and timeout.
final class BodyWork: Sendable {
    /// The largest body that is compressed on the socket thread: 64 KiB, in half a millisecond at the 136 MB/s that
    /// were measured for level 1.
    static let longestDeflatedHere = 64 << 10
    /// The largest compressed body that is decompressed on the socket thread: 4 KiB. zlib makes at most 1,032 times
    /// as many bytes of them, 4 MiB.
    static let longestInflatedHere = 4 << 10

    private let queue = DispatchQueue(label: "HHSocket compression")
    private let loop: SocketLoop
    private let maximumPayloadLength: Int

    init(_ loop: SocketLoop, maximumPayloadLength: Int) {
        self.loop = loop
        self.maximumPayloadLength = maximumPayloadLength
    }

    /// Compresses `body`, and passes the result to `then` on the socket thread: nil if it would not become smaller.
    func deflate(
        _ body: ByteBuffer,
        level: Int,
        then: @escaping @Sendable (ByteBuffer?, inout Turn) -> Void
    ) {
        self.queue.async {
            let deflated = Envelope.deflate(body, level: level)
            self.loop.submit { then(deflated, &$0) }
        }
    }

    /// Decompresses `body`, and passes the result to `then` on the socket thread.
    func inflate(
        _ body: OwnedBytes,
        then: @escaping @Sendable (Result<ByteBuffer, EnvelopeError>, inout Turn) -> Void
    ) {
        let limit = self.maximumPayloadLength
        self.queue.async {
            let inflated = Result { () throws(EnvelopeError) in try Envelope.inflate(body.buffer, limit: limit) }
            self.loop.submit { then(inflated, &$0) }
        }
    }
}
