public import HHSocket

extension SocketClient {
    /// Calls a method and waits for its answer. Cancelling the Swift task cancels the call.
    ///
    /// Generated clients call it; they read better.
    ///
    /// - Parameters:
    ///   - method: Which method: what is sent and what comes back.
    ///   - message: The request.
    ///   - options: How the call is made; as by default if left out.
    /// - Throws: ``HHSocket/SocketError``: as ``data(for:)``; with the code `invalidArgument` where `message` cannot be
    ///   written; `protobufFailed` where the answer is no such message, `emptyProtobuf` where it is none and empty.
    @inlinable  // So that the compiler can make code for the messages at hand, which is several times as fast.
    public nonisolated(nonsending) func call<Request, Response>(
        _ method: MethodDescriptor<Request, Response>,
        _ message: Request,
        options: CallOptions = CallOptions()
    ) async throws(SocketError) -> Response {
        let response = try await self.data(for: options.request(method, message))
        return try response.message(answering: method)
    }

    /// Makes a task for a call of a method, suspended.
    ///
    /// - Parameters:
    ///   - method: Which method: what is sent and what comes back.
    ///   - message: The request.
    ///   - options: How the call is made; as by default if left out.
    ///   - callbackQueue: Where `completionHandler` runs; nil, the default, for the configuration's.
    ///   - completionHandler: Called exactly once after ``SocketTask/resume()`` or ``SocketTask/cancel()``, with the
    ///     answer or with what went wrong, as ``call(_:_:options:)``.
    /// - Throws: ``HHSocket/SocketError`` with the code `invalidArgument`: `message` cannot be written.
    @inlinable
    public func messageTask<Request, Response>(
        with method: MethodDescriptor<Request, Response>,
        _ message: Request,
        options: CallOptions = CallOptions(),
        on callbackQueue: CallbackQueue? = nil,
        completionHandler: @escaping @Sendable (Result<Response, SocketError>) -> Void
    ) throws(SocketError) -> SocketTask {
        self.dataTask(with: try options.request(method, message), on: callbackQueue) { result in
            completionHandler(
                result.flatMap { response in
                    Result { () throws(SocketError) in try response.message(answering: method) }
                }
            )
        }
    }
}

extension SocketResponse {
    /// The payload as a message.
    ///
    /// - Throws: What the message's reader throws: ``HHSocketMessage/MessageError`` for generated ones.
    @inlinable
    public func message<Message: MessageBody>(as type: Message.Type = Message.self) throws -> Message {
        try self.body.message()
    }

    @inlinable
    package func message<Request, Response>(
        answering method: MethodDescriptor<Request, Response>
    ) throws(SocketError) -> Response {
        do {
            return try self.body.message()
        } catch {
            throw self.malformedAnswer(to: method.name, expected: Response.protoMessageName, error)
        }
    }

    @usableFromInline
    func malformedAnswer(to method: String, expected message: String, _ error: any Error) -> SocketError {
        let isEmpty = self.body.readableBytes == 0
        return SocketError(
            isEmpty ? .emptyProtobuf : .protobufFailed,
            message: "The answer to \(method) from \(self.endpoint), "
                + "\(isEmpty ? "which is empty" : "of \(self.body.readableBytes) bytes"), is no "
                + "\(message): \(error). Do both sides have the same .proto?",
            underlying: error,
            endpoint: self.endpoint,
            serial: self.serial,
            delivery: .answered,
            body: self.body
        )
    }
}
