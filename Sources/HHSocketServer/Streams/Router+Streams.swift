// SPDX-License-Identifier: Apache-2.0
public import HHSocketLink
public import NIOCore

extension Router {
    /// Registers a stream: a request of `type` opens one, and `handler` runs in its own task for as long as it is open.
    /// The body that it returns is the final payload, sent with status 200 after all items; if the server streams, it
    /// must be empty.
    ///
    /// ```swift
    /// router.stream(204, kind: .clientStreaming) { stream, context in
    ///     var length = 0
    ///     for try await part in stream.items { length += part.readableBytes }
    ///     return ByteBuffer(string: "\(length)")
    /// }
    /// ```
    ///
    /// An error that `handler` throws is the final status, as with ``handle(_:on:limits:_:)-(UInt32,_,_,_)``; the body
    /// of a ``StatusError`` is sent if the server does not stream. Metadata that it sets
    /// (``ServerContext/answerMetadata``) are the trailers. A handler that returns before the client has ended its
    /// items ends the stream: the rest is dropped.
    ///
    /// The task is cancelled when the client cancels the stream, breaks a rule, or disconnects, and when the stream has
    /// made no progress for ``/HHSocket/StreamPolicy/idleLimit``. Middleware, admissions, limits, deadlines, metrics
    /// and traces see a stream as one call that lasts as long as its handler runs. There is no deadline unless the
    /// client, or a timeout here or of the server, sets one.
    ///
    /// A client has streams if its hello asks for them and ``ServerConfiguration/streams`` allows them;
    /// otherwise the request is answered ``/HHSocket/Status/illegalFormat`` (303). Repeats are not recognised: an
    /// idempotency key on a stream is answered 303, too.
    ///
    /// A later registration for the same type replaces the earlier one.
    ///
    /// - Parameters:
    ///   - type: As with ``handle(_:on:limits:_:)-(UInt32,_,_,_)``.
    ///   - kind: Which sides send items. Clients must use the same kind.
    ///   - executor: Where its tasks run; nil, the default: on ``handlerExecutor``.
    ///   - limits: The limits on streams of the type; by default those of the group and of the server.
    ///   - handler: Serves a stream.
    public mutating func stream(
        _ type: UInt32,
        kind: StreamKind,
        on executor: HandlerExecutor? = nil,
        limits: RouteLimits = RouteLimits(),
        _ handler: @escaping @Sendable (ServerStream, ServerContext) async throws -> ByteBuffer
    ) {
        let serve: Handler = { request, context in
            guard let exchange = context[ServedStream.self] else { throw StatusError(.illegalFormat) }
            let body = try await handler(ServerStream(request, exchange), context)
            return exchange.kind.serverStreams ? ByteBuffer() : body
        }
        self.register(.stream(serve, kind), on: executor, limits, for: type)
    }
}

/// The stream that a request opens, passed through middleware.
enum ServedStream: ServerContextKey {
    typealias Value = StreamExchange
}
