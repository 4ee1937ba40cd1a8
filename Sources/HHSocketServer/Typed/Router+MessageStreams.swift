// SPDX-License-Identifier: Apache-2.0
public import HHSocketLink
public import NIOCore

extension Router {
    /// Serves a method whose server streams, in a task for each call. Generated code calls it.
    ///
    /// An opening request that is not a valid message is answered as with ``handle(_:on:limits:_:)-(UInt32,_,_,_)``,
    /// and the log gives the reason. Otherwise it behaves like ``stream(_:kind:on:limits:_:)``: a handler that returns
    /// ends the stream with status 200.
    ///
    /// - Parameters:
    ///   - method: The method.
    ///   - executor: Where its tasks run; nil, the default: on ``handlerExecutor``.
    ///   - limits: The limits on calls of the method; by default those of the group and of the server.
    ///   - handler: Serves a call.
    @inlinable  // So that the compiler can specialise the code for the messages in use.
    public mutating func handleServerStream<Request, Response>(
        _ method: MethodDescriptor<Request, Response>,
        on executor: HandlerExecutor? = nil,
        limits: RouteLimits = RouteLimits(),
        _ handler: @escaping @Sendable (Request, MessageWriter<Response>, ServerContext) async throws -> Void
    ) {
        let messageLimits = self.messageLimits
        self.stream(method.type, kind: .serverStreaming, on: executor, limits: limits) { stream, context in
            let message: Request = try context.message(of: stream.request, messageLimits)
            try await handler(message, MessageWriter(stream), context)
            return ByteBuffer()
        }
    }

    /// Serves a method whose client streams, in a task for each call. Generated code calls it.
    ///
    /// It behaves like ``stream(_:kind:on:limits:_:)``; the message that `handler` returns is the answer.
    ///
    /// - Parameters:
    ///   - method: The method.
    ///   - executor: Where its tasks run; nil, the default: on ``handlerExecutor``.
    ///   - limits: The limits on calls of the method; by default those of the group and of the server.
    ///   - handler: Serves a call.
    @inlinable
    public mutating func handleClientStream<Request, Response>(
        _ method: MethodDescriptor<Request, Response>,
        on executor: HandlerExecutor? = nil,
        limits: RouteLimits = RouteLimits(),
        _ handler: @escaping @Sendable (RequestMessages<Request>, ServerContext) async throws -> Response
    ) {
        let messageLimits = self.messageLimits
        self.stream(method.type, kind: .clientStreaming, on: executor, limits: limits) { stream, context in
            try await ByteBuffer(message: handler(RequestMessages(stream, context, limits: messageLimits), context))
        }
    }

    /// Serves a method whose client and server both stream, in a task for each call. Generated code calls it.
    ///
    /// It behaves like ``stream(_:kind:on:limits:_:)``: a handler that returns ends the stream with status 200.
    ///
    /// - Parameters:
    ///   - method: The method.
    ///   - executor: Where its tasks run; nil, the default: on ``handlerExecutor``.
    ///   - limits: The limits on calls of the method; by default those of the group and of the server.
    ///   - handler: Serves a call.
    @inlinable
    public mutating func handleBidirectionalStream<Request, Response>(
        _ method: MethodDescriptor<Request, Response>,
        on executor: HandlerExecutor? = nil,
        limits: RouteLimits = RouteLimits(),
        _ handler:
            @escaping @Sendable (RequestMessages<Request>, MessageWriter<Response>, ServerContext) async throws -> Void
    ) {
        let messageLimits = self.messageLimits
        self.stream(method.type, kind: .bidirectional, on: executor, limits: limits) { stream, context in
            try await handler(RequestMessages(stream, context, limits: messageLimits), MessageWriter(stream), context)
            return ByteBuffer()
        }
    }
}
