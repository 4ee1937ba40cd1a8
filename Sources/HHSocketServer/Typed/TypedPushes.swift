// SPDX-License-Identifier: Apache-2.0
public import HHSocketMessage
import NIOCore

extension SocketServer {
    /// Sends a push to every connection, as ``push(type:body:)``.
    ///
    /// - Throws: The error of the message's encoder: ``/HHSocketMessage/MessageError`` for generated messages.
    /// - Returns: The number of connections that took it.
    @discardableResult
    public func push<Push: PushMessage>(_ message: Push) async throws -> Int {
        await self.push(type: Push.pushType, body: try ByteBuffer(message: message))
    }

    /// Sends a push to every connection of one client, as ``push(type:body:to:)``.
    ///
    /// - Throws: The error of the message's encoder: ``/HHSocketMessage/MessageError`` for generated messages.
    /// - Returns: The number of connections that took it; 0 if the client is not connected to this server.
    @discardableResult
    public func push<Push: PushMessage>(_ message: Push, to identity: String) async throws -> Int {
        await self.push(type: Push.pushType, body: try ByteBuffer(message: message), to: identity)
    }
}

extension ServerContext {
    /// Sends a push to every connection of one client, as ``push(type:body:to:)``.
    ///
    /// - Throws: The error of the message's encoder: ``/HHSocketMessage/MessageError`` for generated messages.
    /// - Returns: The number of connections that took it; 0 if the client is not connected to this server.
    @discardableResult
    public func push<Push: PushMessage>(_ message: Push, to identity: String) async throws -> Int {
        await self.push(type: Push.pushType, body: try ByteBuffer(message: message), to: identity)
    }
}

extension ServerSession {
    /// Sends a push to this connection.
    ///
    /// - Throws: The error of the message's encoder: ``/HHSocketMessage/MessageError`` for generated messages.
    /// - Returns: Whether it was taken. It is not if too many pushes wait already, if the connection is over, and in a
    ///   wire format without pushes.
    @discardableResult
    public func push<Push: PushMessage>(_ message: Push) async throws -> Bool {
        await self.push(type: Push.pushType, body: try ByteBuffer(message: message))
    }
}
