public import HHSocket
public import NIOCore

/// A stream. (The implementation follows.)
public final class SocketStream: Sendable {
    public let originalRequest: SocketRequest
    public let kind: StreamKind

    init(_ request: SocketRequest, _ kind: StreamKind) {
        self.originalRequest = request
        self.kind = kind
    }

    private var missing: SocketError { SocketError(.featureNotAgreed, message: "streams are not there yet") }

    public nonisolated(nonsending) func send(_ body: ByteBuffer) async throws(SocketError) { throw self.missing }
    public func send(
        _ body: ByteBuffer,
        completionHandler: @escaping @Sendable (Result<Void, SocketError>) -> Void
    ) { completionHandler(.failure(self.missing)) }
    public func finish() {}
    public var response: SocketResponse { get async throws(SocketError) { throw self.missing } }
    public func pause() {}
    public func resume() {}
    public func cancel() {}

    public struct Items: AsyncSequence, Sendable {
        public typealias Element = ByteBuffer
        public typealias Failure = SocketError
        let stream: SocketStream
        public struct Iterator: AsyncIteratorProtocol {
            let stream: SocketStream
            public mutating func next() async throws(SocketError) -> ByteBuffer? { throw self.stream.missing }
            public mutating func next(
                isolation actor: isolated (any Actor)? = #isolation
            ) async throws(SocketError) -> ByteBuffer? { throw self.stream.missing }
        }
        public func makeAsyncIterator() -> Iterator { Iterator(stream: self.stream) }
    }

    public var items: Items { Items(stream: self) }

    func cancelled(byItemOf method: String, _ message: String, _ item: ByteBuffer, _ error: any Error) -> SocketError {
        self.missing
    }
}

extension SocketClient {
    public nonisolated(nonsending) func stream(
        for request: consuming SocketRequest,
        kind: StreamKind = .bidirectional
    ) async throws(SocketError) -> SocketStream {
        throw SocketError(.featureNotAgreed, message: "streams are not there yet")
    }
}
