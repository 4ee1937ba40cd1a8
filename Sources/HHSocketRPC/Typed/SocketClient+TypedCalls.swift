// SPDX-License-Identifier: Apache-2.0
public import HHSocket
public import HHSocketMessage

extension SocketClient {
    /// Calls a method and waits for its answer. Cancelling the Swift task cancels the call.
    ///
    /// Generated clients call this function, and are easier to read.
    ///
    /// - Parameters:
    ///   - method: The method, with the types of its request and its answer.
    ///   - message: The request.
    ///   - options: The options of the call; the defaults if omitted.
    /// - Throws: ``/HHSocket/SocketError``, as ``data(for:)`` does; with the code `invalidArgument` if `message` cannot
    ///   be encoded, `protobufFailed` if the answer cannot be decoded, and `emptyProtobuf` if it is also empty.
    @inlinable  // So that the compiler can specialise the code for the messages, which makes it several times as fast.
    public nonisolated(nonsending) func call<Request, Response>(
        _ method: MethodDescriptor<Request, Response>,
        _ message: Request,
        options: CallOptions = CallOptions()
    ) async throws(SocketError) -> Response {
        let response = try await self.data(for: options.request(method, message))
        return try response.message(answering: method, self.messageLimits)
    }

    /// Calls a method and waits for its answer. For generated messages, whose encoder is compiled into the caller.
    @_documentation(visibility: internal)
    @inlinable
    public nonisolated(nonsending) func call<Request: ProtobufMessage, Response>(
        _ method: MethodDescriptor<Request, Response>,
        _ message: Request,
        options: CallOptions = CallOptions()
    ) async throws(SocketError) -> Response {
        let response = try await self.data(for: options.request(method, message))
        return try response.message(answering: method, self.messageLimits)
    }

    /// Calls a method and waits for its answer, and returns not only the message but also the metadata and the server.
    ///
    /// ```swift
    /// let answer = try await client.response(to: Chat_Chat.Methods.send, message)
    /// print(answer.message.number, answer.response.metadata)
    /// ```
    ///
    /// - Parameters:
    ///   - method: The method, with the types of its request and its answer.
    ///   - message: The request.
    ///   - options: The options of the call; the defaults if omitted.
    /// - Throws: The errors of ``call(_:_:options:)``. The metadata of an answer with a status other than 200 is in the
    ///   error, ``/HHSocket/SocketError/metadata``.
    @inlinable
    public nonisolated(nonsending) func response<Request, Response>(
        to method: MethodDescriptor<Request, Response>,
        _ message: Request,
        options: CallOptions = CallOptions()
    ) async throws(SocketError) -> MessageResponse<Response> {
        let response = try await self.data(for: options.request(method, message))
        return MessageResponse(try response.message(answering: method, self.messageLimits), response)
    }

    /// Makes a task for a call of a method, suspended.
    ///
    /// - Parameters:
    ///   - method: The method, with the types of its request and its answer.
    ///   - message: The request.
    ///   - options: The options of the call; the defaults if omitted.
    ///   - callbackQueue: The queue on which `completionHandler` runs; nil, the default, for the configuration's.
    ///   - completionHandler: Called exactly once after ``SocketTask/resume()`` or ``SocketTask/cancel()``, with the
    ///     answer or with an error of ``call(_:_:options:)``.
    /// - Throws: ``/HHSocket/SocketError`` with the code `invalidArgument` if `message` cannot be encoded.
    @inlinable
    public func messageTask<Request, Response>(
        with method: MethodDescriptor<Request, Response>,
        _ message: Request,
        options: CallOptions = CallOptions(),
        on callbackQueue: CallbackQueue? = nil,
        completionHandler: @escaping @Sendable (Result<Response, SocketError>) -> Void
    ) throws(SocketError) -> SocketTask {
        let limits = self.messageLimits
        return self.dataTask(with: try options.request(method, message), on: callbackQueue) { result in
            completionHandler(
                result.flatMap { response in
                    Result { () throws(SocketError) in try response.message(answering: method, limits) }
                }
            )
        }
    }

    /// The bounds of messages that are decoded, as the configuration has them.
    @usableFromInline var messageLimits: MessageLimits { self.host.configuration.messageLimits }
}

extension SocketResponse {
    @inlinable
    package func message<Request, Response>(
        answering method: MethodDescriptor<Request, Response>,
        _ limits: MessageLimits
    ) throws(SocketError) -> Response {
        do {
            return try self.body.message(limits: limits)
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
