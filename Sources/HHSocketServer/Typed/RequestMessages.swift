// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOConcurrencyHelpers
import NIOCore

/// The messages of a stream's client, in order.
///
/// It behaves like ``ServerStream/Items``. An item that is not a valid message is thrown as a ``StatusError`` with
/// status 402, or 456 if it is empty and the message cannot be: a handler that does not catch it ends the stream with
/// this status.
public struct RequestMessages<Message: MessageBody>: AsyncSequence, Sendable {
    public typealias Failure = StatusError

    @usableFromInline
    enum Source: Sendable {
        case stream(ServerStream, ServerContext, MessageLimits)
        case list(MessageList<Message>)
    }

    @usableFromInline let source: Source

    @inlinable
    init(_ stream: ServerStream, _ context: ServerContext, limits: MessageLimits) {
        self.source = .stream(stream, context, limits)
    }

    /// Creates the messages of no client, for tests of services without a socket.
    public init(_ messages: some Sequence<Message>) {
        self.source = .list(MessageList(Array(messages)))
    }

    public struct Iterator: AsyncIteratorProtocol {
        @usableFromInline
        enum Source {
            case stream(ServerStream.Items.Iterator, ServerStream, ServerContext, MessageLimits)
            case list(MessageList<Message>)
        }

        @usableFromInline var source: Source

        @inlinable
        init(_ source: Source) {
            self.source = source
        }

        /// Waits for and returns the next message; nil once the client has ended them.
        @inlinable
        public mutating func next() async throws(StatusError) -> Message? { try await self.next(isolation: nil) }

        /// Waits where the caller runs, and returns the next message; nil once the client has ended them.
        @inlinable
        public mutating func next(
            isolation actor: isolated (any Actor)? = #isolation
        ) async throws(StatusError) -> Message? {
            switch self.source {
            case .stream(var items, let stream, let context, let limits):
                guard let item = try await items.next(isolation: actor) else { return nil }
                var request = stream.request
                request.body = item
                return try context.message(of: request, limits)
            case .list(let list):
                return list.next()
            }
        }
    }

    @inlinable
    public func makeAsyncIterator() -> Iterator {
        switch self.source {
        case .stream(let stream, let context, let limits):
            Iterator(.stream(stream.items.makeAsyncIterator(), stream, context, limits))
        case .list(let list):
            Iterator(.list(list))
        }
    }
}

/// Messages that are known from the start. Each goes to one reader, like those of a client.
@usableFromInline
final class MessageList<Message: Sendable>: Sendable {
    private let rest: NIOLockedValueBox<ArraySlice<Message>>

    init(_ messages: [Message]) {
        self.rest = NIOLockedValueBox(messages[...])
    }

    @usableFromInline
    func next() -> Message? { self.rest.withLockedValue { $0.popFirst() } }
}
