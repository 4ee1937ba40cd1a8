// SPDX-License-Identifier: Apache-2.0
package import HHSocketLink
public import NIOCore

/// A stream as its handler sees it.
///
/// ```swift
/// router.stream(205, kind: .bidirectional) { stream, context in
///     for try await item in stream.items {
///         try await stream.send(item)
///     }
///     return ByteBuffer()
/// }
/// ```
///
/// A slow handler slows down its client, and a slow client its handler: the windows of hello
/// (``ServerConfiguration/streams``) bound the items that wait between them. A handle: copies refer to the same
/// stream. Once its handler has returned, it neither receives nor sends.
public struct ServerStream: Sendable {
    /// The opening: its type, its serial, and where the client sends one message that message.
    public let request: ServerRequest
    let exchange: StreamExchange

    init(_ request: ServerRequest, _ exchange: StreamExchange) {
        self.request = request
        self.exchange = exchange
    }

    /// Which sides send items.
    package var kind: StreamKind { self.exchange.kind }

    /// The client's items; none where it sends one message.
    public var items: Items { Items(exchange: self.exchange) }

    /// Sends an item, and returns when the next one may be sent: the client's credit covers everything that waits, and
    /// the connection has room. Call it from one task at a time to send items in a certain order.
    ///
    /// - Throws: `CancellationError` once the stream is over, and if the task is cancelled while it waits;
    ///   ``StatusError`` with status 301 if the item is longer than ``ServerLimits/maximumAnswerLength``, and with 303
    ///   if the server sends one message, which the handler returns.
    public nonisolated(nonsending) func send(_ body: ByteBuffer) async throws {
        guard self.kind.serverStreams else { throw StatusError(.illegalFormat) }
        try await self.exchange.send(body, type: self.request.type)
    }

    /// Sends an item as ``send(_:)`` does, but without compression even if hello has agreed on it: for large amounts of
    /// content that is mostly compressed already.
    package nonisolated(nonsending) func sendUncompressed(_ body: ByteBuffer) async throws {
        try await self.exchange.send(body, type: self.request.type, mayCompress: false)
    }

    /// Prepares the connection for a file: TLS reads and writes are longer, and the client may send up to `window`,
    /// in the cost of frames, before the handler has taken it. The connection's window still applies.
    package func carryContent(window: UInt64) { self.exchange.carryContent(window: window) }

    /// The charge for memory that the handler holds for the client, such as items that it will send, in bytes.
    package func hold(_ bytes: Int) -> Hold { self.exchange.hold(bytes) }

    /// The items of a client, in order.
    ///
    /// There is one reader: while another one waits, `next()` throws a ``StatusError`` with status 404. An item counts
    /// as taken, so that the client may send more, when the reader gets it. The sequence ends when the client has ended
    /// its items. If the stream ends earlier, it throws a ``StatusError``: with the status that was sent to the client,
    /// or 409 if the client has cancelled or disconnected, so that half a transfer never passes for the whole. It
    /// throws the same error if the waiting task is cancelled.
    public struct Items: AsyncSequence, Sendable {
        public typealias Failure = StatusError

        let exchange: StreamExchange

        public struct Iterator: AsyncIteratorProtocol {
            fileprivate let exchange: StreamExchange
            fileprivate let reader: Inbox<StreamItem>.Reader

            /// Whether an item can be taken without waiting.
            package var hasItem: Bool { self.reader.hasElement || self.exchange.hasItem }

            /// Waits for and returns the next item; nil once the client has ended them.
            public mutating func next() async throws(StatusError) -> ByteBuffer? {
                try await self.next(isolation: nil)
            }

            /// Waits where the caller runs, and returns the next item; nil once the client has ended them.
            public mutating func next(
                isolation actor: isolated (any Actor)? = #isolation
            ) async throws(StatusError) -> ByteBuffer? {
                try await self.exchange.next(of: self.reader, isolation: actor)
            }
        }

        public func makeAsyncIterator() -> Iterator {
            Iterator(exchange: self.exchange, reader: self.exchange.makeReader())
        }
    }
}
