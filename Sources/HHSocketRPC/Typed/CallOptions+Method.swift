// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketMessage
import NIOCore

/// Conversion of the options of a typed call to its request.
extension CallOptions {
    /// Returns the request for a call of `method`.
    ///
    /// - Throws: ``/HHSocket/SocketError`` with the code `invalidArgument` if the message cannot be written.
    @inlinable
    func request<Request, Response>(
        _ method: MethodDescriptor<Request, Response>,
        _ message: Request
    ) throws(SocketError) -> SocketRequest {
        do {
            return SocketRequest(type: method.type, body: try ByteBuffer(message: message), options: self.of(method))
        } catch {
            throw Self.cannotBeWritten(method.name, error)
        }
    }

    /// Returns the request for a call of `method`. For generated messages, whose encoder is compiled into the caller.
    ///
    /// - Throws: ``/HHSocket/SocketError`` with the code `invalidArgument` if the message cannot be written.
    @inlinable
    func request<Request: ProtobufMessage, Response>(
        _ method: MethodDescriptor<Request, Response>,
        _ message: Request
    ) throws(SocketError) -> SocketRequest {
        do {
            return SocketRequest(type: method.type, body: try message.serializedBuffer(), options: self.of(method))
        } catch {
            throw Self.cannotBeWritten(method.name, error)
        }
    }

    /// These options, completed by the method's `.proto`.
    @inlinable
    package func of<Request, Response>(_ method: MethodDescriptor<Request, Response>) -> CallOptions {
        var options = self
        options.isIdempotentMethod = method.idempotency != .unknown
        return options
    }

    @usableFromInline
    package static func cannotBeWritten(_ method: String, _ error: any Error) -> SocketError {
        .invalid("\(method) was not called, because the request cannot be written: \(error)", underlying: error)
    }
}
