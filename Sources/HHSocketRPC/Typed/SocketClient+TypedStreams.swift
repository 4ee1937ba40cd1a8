// SPDX-License-Identifier: Apache-2.0
public import HHSocket
public import HHSocketMessage
import NIOCore

/// Calls whose client, server or both stream. Generated clients call these functions, and read better.
extension SocketClient {
    /// Calls a method whose server streams, like ``stream(for:kind:)``.
    ///
    /// - Parameters:
    ///   - method: The method, with the types of its request and its items.
    ///   - message: The request.
    ///   - options: The options of the call; the defaults if omitted.
    /// - Returns: The sequence of the server's messages.
    /// - Throws: ``/HHSocket/SocketError`` if the stream cannot be opened; with the code `invalidArgument` if `message`
    ///   cannot be encoded.
    public nonisolated(nonsending) func serverStream<Request, Response>(
        _ method: MethodDescriptor<Request, Response>,
        _ message: Request,
        options: CallOptions = CallOptions()
    ) async throws(SocketError) -> MessageStream<Request, Response> {
        let stream = try await self.stream(for: try options.request(method, message), kind: .serverStreaming)
        return MessageStream(stream, method: method.name, self.messageLimits)
    }

    /// Calls a method whose client streams, like ``stream(for:kind:)``.
    ///
    /// - Parameters:
    ///   - method: The method, with the types of its items and its answer.
    ///   - options: The options of the call; the defaults if omitted.
    /// - Returns: A stream to send to, whose ``MessageStream/answer()`` is the server's.
    /// - Throws: ``/HHSocket/SocketError`` if the stream cannot be opened.
    public nonisolated(nonsending) func clientStream<Request, Response>(
        _ method: MethodDescriptor<Request, Response>,
        options: CallOptions = CallOptions()
    ) async throws(SocketError) -> MessageStream<Request, Response> {
        let request = SocketRequest(type: method.type, body: ByteBuffer(), options: options)
        return MessageStream(
            try await self.stream(for: request, kind: .clientStreaming),
            method: method.name,
            self.messageLimits
        )
    }

    /// Calls a method in which both sides stream, like ``stream(for:kind:)``.
    ///
    /// - Parameters:
    ///   - method: The method, with the types of both sides' items.
    ///   - options: The options of the call; the defaults if omitted.
    /// - Returns: A stream to send to, and the sequence of the server's messages.
    /// - Throws: ``/HHSocket/SocketError`` if the stream cannot be opened.
    public nonisolated(nonsending) func bidirectionalStream<Request, Response>(
        _ method: MethodDescriptor<Request, Response>,
        options: CallOptions = CallOptions()
    ) async throws(SocketError) -> MessageStream<Request, Response> {
        let request = SocketRequest(type: method.type, body: ByteBuffer(), options: options)
        return MessageStream(
            try await self.stream(for: request, kind: .bidirectional),
            method: method.name,
            self.messageLimits
        )
    }
}
