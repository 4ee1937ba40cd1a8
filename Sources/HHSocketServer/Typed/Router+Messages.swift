// SPDX-License-Identifier: Apache-2.0
public import HHSocket
public import NIOCore

extension Router {
    /// Answers calls of `method` in a task each. Generated code calls it for each method of a service.
    ///
    /// A request that is no such message is answered ``/HHSocket/Status/protobufFailed`` (402), an empty one that is
    /// none ``/HHSocket/Status/emptyProtobuf`` (456), and `handler` does not hear of it: the answer's body says in
    /// English which field is wrong and at which byte, and so does the log at level `debug`. What `handler` throws is
    /// answered as with ``handle(_:on:limits:_:)-(UInt32,_,_,_)``.
    ///
    /// - Parameters:
    ///   - method: Which method.
    ///   - executor: Where its tasks run; nil, the default: as ``handlerExecutor`` says.
    ///   - limits: The bounds of calls of the method; by default those of the group and of the server.
    ///   - handler: Answers a call.
    @inlinable  // So that the compiler can make code for the messages at hand, which is several times as fast.
    public mutating func handle<Request, Response>(
        _ method: MethodDescriptor<Request, Response>,
        on executor: HandlerExecutor? = nil,
        limits: RouteLimits = RouteLimits(),
        _ handler: @escaping @Sendable (Request, ServerContext) async throws -> Response
    ) {
        let messageLimits = self.messageLimits
        self.handle(method.type, on: executor, limits: limits) { request, context in
            try await ByteBuffer(message: handler(context.message(of: request, messageLimits), context))
        }
    }

    /// Answers calls of `method` on the event loop, without a task: the fastest way, for work of microseconds.
    /// Otherwise as with a handler that is a task.
    @inlinable
    public mutating func handleSynchronously<Request, Response>(
        _ method: MethodDescriptor<Request, Response>,
        limits: RouteLimits = RouteLimits(),
        _ handler: @escaping @Sendable (Request, ServerContext) throws -> Response
    ) {
        let messageLimits = self.messageLimits
        self.handleSynchronously(method.type, limits: limits) { request, context in
            try ByteBuffer(message: handler(context.message(of: request, messageLimits), context))
        }
    }

    /// Bounds calls of one method, as ``limit(_:to:)-(UInt32,_)`` does: of a service's that are registered together one
    /// so gets bounds of its own.
    public mutating func limit<Request, Response>(
        _ method: MethodDescriptor<Request, Response>,
        to limits: RouteLimits
    ) {
        self.limit(method.type, to: limits)
    }
}

extension ServerRequest {
    /// The payload as a message.
    ///
    /// - Parameters:
    ///   - type: The type of the message.
    ///   - limits: The bounds of nesting and of memory.
    /// - Throws: ``StatusError`` with the status 402, or 456 where the payload is empty: it is no such message. Its
    ///   body says why, in English.
    @inlinable
    public func message<Message: MessageBody>(
        as type: Message.Type = Message.self,
        limits: MessageLimits = .standard
    ) throws(StatusError) -> Message {
        do {
            return try self.body.message(limits: limits)
        } catch {
            throw StatusError(
                self.body.readableBytes == 0 ? .emptyProtobuf : .protobufFailed,
                body: ByteBuffer(string: "\(error)")
            )
        }
    }
}

extension ServerContext {
    /// The payload as a message; where it is none, the log says why.
    @inlinable
    func message<Message: MessageBody>(
        of request: ServerRequest,
        _ limits: MessageLimits
    ) throws(StatusError) -> Message {
        do {
            return try request.message(limits: limits)
        } catch {
            self.logRefusal(of: request, error)
            throw error
        }
    }

    @usableFromInline
    func logRefusal(of request: ServerRequest, _ error: StatusError) {
        self.logger.debug(
            "a request is not the message that its type asks for",
            metadata: [
                "type": "\(request.type)", "serial": "\(request.serial)", "status": "\(error.status.rawValue)",
                "error": "\(String(buffer: error.body))",
            ]
        )
    }
}
