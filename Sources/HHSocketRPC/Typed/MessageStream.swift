// SPDX-License-Identifier: Apache-2.0
public import HHSocket
public import HHSocketMessage
import NIOCore

/// A stream of messages: a ``SocketStream`` whose items are encoded and decoded.
///
/// ```swift
/// let stream = try await chat.talk()
/// try await stream.send(note)
/// stream.finish()
/// for try await note in stream { print(note.text) }
/// ```
/// It is the sequence of the server's messages. The stream is cancelled when the last copy of it, and of its iterators,
/// is released before its end.
public struct MessageStream<Request: MessageBody, Response: MessageBody>: Sendable, AsyncSequence {
    public typealias Failure = SocketError

    enum Source: Sendable {
        case client(SocketStream, method: String, MessageLimits)
        case mock(MockStream<Request, Response>.Near)
    }

    private let source: Source

    init(_ stream: SocketStream, method: String, _ limits: MessageLimits) {
        self.source = .client(stream, method: method, limits)
    }

    /// Creates the near end of a mocked stream, for code under test; there is one.
    package init(mock: MockStream<Request, Response>) {
        self.source = .mock(MockStream.Near(mock))
    }

    /// Creates both ends of a mocked stream.
    public static func mock() -> (stream: MessageStream, far: MockStream<Request, Response>) {
        let far = MockStream<Request, Response>()
        return (MessageStream(mock: far), far)
    }

    /// Sends a message; returns when the next may be sent, like ``SocketStream/send(_:)``.
    ///
    /// - Throws: ``/HHSocket/SocketError`` if the stream has ended; `invalidArgument` if the message cannot be encoded,
    ///   in which case the stream continues.
    public nonisolated(nonsending) func send(_ message: Request) async throws(SocketError) {
        switch self.source {
        case .client(let stream, let method, _):
            let body: ByteBuffer
            do {
                body = try ByteBuffer(message: message)
            } catch {
                throw .invalid(
                    "an item of \(method) was not sent, because it cannot be written: \(error)",
                    underlying: error
                )
            }
            try await stream.send(body)
        case .mock(let near): try near.far.receive(message)
        }
    }

    /// Ends this side's messages. May be called any number of times.
    public func finish() {
        switch self.source {
        case .client(let stream, _, _): stream.finish()
        case .mock(let near): near.far.finishRequests()
        }
    }

    /// The final answer, once it has arrived. Its metadata are the trailers; its body is the one answer if the server
    /// does not stream, and otherwise empty.
    public var response: SocketResponse {
        get async throws(SocketError) {
            switch self.source {
            case .client(let stream, _, _): try await stream.response
            case .mock(let near): try await near.far.finalAnswer().response
            }
        }
    }

    /// Ends this side's messages, waits for the one answer of a server that does not stream, and decodes it.
    ///
    /// - Throws: ``/HHSocket/SocketError`` if the stream failed; `protobufFailed` if the answer cannot be decoded.
    public func answer() async throws(SocketError) -> Response {
        self.finish()
        switch self.source {
        case .client(let stream, let method, let limits):
            let response = try await stream.response
            do {
                return try response.body.message(limits: limits)
            } catch {
                throw response.malformedAnswer(to: method, expected: Response.protoMessageName, error)
            }
        case .mock(let near): return try await near.far.finalAnswer().message()
        }
    }

    /// Whether the server has ended the stream with status 200.
    var isAnswered: Bool {
        switch self.source {
        case .client(let stream, _, _): stream.call.end.map { $0.error == nil } ?? false
        case .mock(let near): near.far.isAnswered
        }
    }

    /// Cancels the stream: the server is notified, and waiting calls end with `cancelled`.
    public func cancel() {
        switch self.source {
        case .client(let stream, _, _): stream.cancel()
        case .mock(let near): near.far.wasCancelled()
        }
    }

    /// Ends a mocked stream with `error` when `limit` is reached; without effect on a client's.
    func end(at limit: MockLimit, with error: SocketError) {
        if case .mock(let near) = self.source { near.far.end(at: limit, with: error) }
    }

    /// An iterator over the messages that the server sends. One at a time reads them.
    public struct Iterator: AsyncIteratorProtocol {
        fileprivate enum Source {
            case client(SocketStream.Items.Iterator, method: String, MessageLimits)
            case mock(AsyncStream<Response>.Iterator, MockStream<Request, Response>.Near)
        }

        fileprivate var source: Source

        /// Waits for and returns the next message; nil once the server has ended the stream with status 200.
        ///
        /// - Throws: ``/HHSocket/SocketError`` if the stream ended otherwise; `protobufFailed` if an item cannot be
        ///   decoded, which cancels the stream.
        public mutating func next() async throws(SocketError) -> Response? { try await self.next(isolation: nil) }

        /// Waits on the caller's actor, and returns the next message, like ``next()``.
        public mutating func next(
            isolation actor: isolated (any Actor)? = #isolation
        ) async throws(SocketError) -> Response? {
            switch self.source {
            case .client(var iterator, let method, let limits):
                let item = try await iterator.next(isolation: actor)
                self.source = .client(iterator, method: method, limits)
                guard let item else { return nil }
                do {
                    return try item.message(limits: limits)
                } catch {
                    throw iterator.stream.cancelled(
                        byItemOf: method,
                        message: Response.protoMessageName,
                        item: item,
                        because: error
                    )
                }
            case .mock(var iterator, let near):
                let message = await iterator.next(isolation: actor)
                self.source = .mock(iterator, near)
                if let message { return message }
                try await near.far.throwEnd()
                return nil
            }
        }
    }

    public func makeAsyncIterator() -> Iterator {
        switch self.source {
        case .client(let stream, let method, let limits):
            Iterator(source: .client(stream.items.makeAsyncIterator(), method: method, limits))
        case .mock(let near): Iterator(source: .mock(near.far.responses.makeAsyncIterator(), near))
        }
    }
}
