// SPDX-License-Identifier: Apache-2.0
public import HHSocketLink
public import NIOCore

extension Router {
    /// Answers each call of `method` in its own task. Generated code calls it for each method of a service.
    ///
    /// A request that is not a valid message is answered ``/HHSocket/Status/protobufFailed`` (402), an empty request
    /// that is not one ``/HHSocket/Status/emptyProtobuf`` (456), without calling `handler`: the answer's body says in
    /// English which field is wrong and at which byte, and so does the log at level `debug`. Errors that `handler`
    /// throws are answered as with ``handle(_:on:limits:_:)-(UInt32,_,_,_)``.
    ///
    /// - Parameters:
    ///   - method: The method.
    ///   - executor: Where its tasks run; nil, the default: on ``handlerExecutor``.
    ///   - limits: The limits on calls of the method; by default those of the group and of the server.
    ///   - handler: Answers a call.
    @inlinable  // So that the compiler can specialise the code for the messages in use, which is several times as fast.
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

    /// Answers calls of `method` on the event loop, without a task: the fastest way, for work that takes microseconds.
    /// Otherwise it behaves like the handler that is a task.
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

    /// Answers calls of `method` on the event loop. For generated messages, whose encoder is compiled into the handler.
    @_documentation(visibility: internal)
    @inlinable
    public mutating func handleSynchronously<Request: MessageBody, Response: ProtobufMessage>(
        _ method: MethodDescriptor<Request, Response>,
        limits: RouteLimits = RouteLimits(),
        _ handler: @escaping @Sendable (Request, ServerContext) throws -> Response
    ) {
        let messageLimits = self.messageLimits
        self.handleSynchronously(method.type, limits: limits) { request, context in
            try handler(context.message(of: request, messageLimits), context).serializedBuffer()
        } direct: { request, context, answer in
            let response = try handler(context.message(of: request, messageLimits), context)
            if response.encodeIfShort({ answer($0, &context) }) != nil { return nil }
            return try response.serializedBuffer()
        }
    }
}

extension ServerRequest {
    /// Decodes the payload as a message.
    ///
    /// - Parameters:
    ///   - type: The type of the message.
    ///   - limits: The limits on nesting and memory.
    /// - Throws: ``StatusError`` with the status 402, or 456 if the payload is empty, when it is not a valid message.
    ///   Its body gives the reason, in English.
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
    /// Decodes the payload as a message; if it is not valid, logs the reason.
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
            "a request is not the message that its type requires",
            metadata: [
                "type": "\(request.type)", "serial": "\(request.serial)", "status": "\(error.status.rawValue)",
                "error": "\(String(buffer: error.body))",
            ]
        )
    }
}
