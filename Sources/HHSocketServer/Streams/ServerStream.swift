// SPDX-License-Identifier: Apache-2.0
public import HHSocket
public import NIOCore

/// A stream as its handler sees it.
///
/// ```swift
/// router.stream(205, .bidirectional) { stream, context in
///     for try await item in stream.items {
///         try await stream.send(item)
///     }
///     return ByteBuffer()
/// }
/// ```
/// A slow handler slows its client, and a slow client its handler: what waits between them is bounded by the windows of
/// hello (``SocketServer/Configuration/streams``). A handle: copies are the same stream. Once its handler has returned,
/// it takes and gives nothing more.
public struct ServerStream: Sendable {
    /// The opening: its type, its serial, and where the client sends one message that message.
    public let request: ServerRequest
    let exchange: StreamExchange

    init(_ request: ServerRequest, _ exchange: StreamExchange) {
        self.request = request
        self.exchange = exchange
    }

    /// Which sides send items.
    public var kind: StreamKind { self.exchange.kind }

    /// The client's items; none where it sends one message.
    public var items: Items { Items(exchange: self.exchange) }

    /// Sends an item, and returns when the next one may be sent: the client's credit reaches for all that waits, and
    /// the connection has room. To be called by one task at a time for items to leave in a certain order.
    ///
    /// - Throws: `CancellationError` once the stream is over, and if the task is cancelled while it waits;
    ///   ``StatusError`` with status 301 if the item is longer than ``ServerLimits/maximumAnswerLength``, and with 303
    ///   where the server sends one message, which is what the handler returns.
    public nonisolated(nonsending) func send(_ body: ByteBuffer) async throws {
        guard self.kind.serverStreams else { throw StatusError(.illegalFormat) }
        try await self.exchange.send(body, type: self.request.type)
    }

    /// Sends an item as ``send(_:)`` does, which is not compressed even where hello has agreed on that: for content of
    /// which much comes, and that is mostly compressed already.
    nonisolated(nonsending) func sendUncompressed(_ body: ByteBuffer) async throws {
        try await self.exchange.send(body, type: self.request.type, mayCompress: false)
    }

    /// Prepares the connection for a file: reads and writes of TLS are longer, and the client may send as much as
    /// ``/HHSocket/TransferPart/window`` before the handler has taken it. The connection's window bounds it
    /// nonetheless.
    func carryContent() { self.exchange.carryContent(window: TransferPart.window) }

    /// Whether an item is there, for which nobody need wait.
    var hasItem: Bool { self.exchange.hasItem }

    /// The items of a client, in order.
    ///
    /// There is one reader. An item counts as taken, so that the client may send more, when the reader gets it. The
    /// sequence ends when the client has ended its items. It throws a ``StatusError`` if the stream ends before: with
    /// the status that the client was answered, or 409 where it has cancelled or is gone; so a half of a transfer never
    /// passes for the whole. The same is thrown where the task is cancelled that waits.
    public struct Items: AsyncSequence, Sendable {
        public typealias Element = ByteBuffer
        public typealias Failure = StatusError

        let exchange: StreamExchange

        public struct Iterator: AsyncIteratorProtocol {
            fileprivate let exchange: StreamExchange

            /// Waits for and returns the next item; nil once the client has ended them.
            public mutating func next() async throws(StatusError) -> ByteBuffer? {
                try await self.next(isolation: nil)
            }

            /// Waits where the caller runs, and returns the next item; nil once the client has ended them.
            public mutating func next(
                isolation actor: isolated (any Actor)? = #isolation
            ) async throws(StatusError) -> ByteBuffer? {
                try await self.exchange.next(isolation: actor)
            }
        }

        public func makeAsyncIterator() -> Iterator { Iterator(exchange: self.exchange) }
    }
}
