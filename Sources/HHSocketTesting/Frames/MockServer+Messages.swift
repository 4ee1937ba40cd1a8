// SPDX-License-Identifier: Apache-2.0
public import HHSocket
public import HHSocketMessage
import NIOCore

/// Reactions that send messages: those that `protoc-gen-hhsocket` generates, and any other
/// ``/HHSocketMessage/MessageBody``, such as swift-protobuf's with the module `HHSocketSwiftProtobuf`.
///
/// ```swift
/// server.on(Chat_Chat.Methods.send.type, try .answer(Chat_Receipt()))
/// ```
extension MockServer.Reaction {
    /// Answers with a message.
    ///
    /// - Parameters:
    ///   - message: The message, which is encoded at once.
    ///   - status: 200 by default; any 32 bits. In a format without statuses nothing is sent for any other.
    /// - Throws: The error of the message's encoder: ``/HHSocketMessage/MessageError`` for generated messages.
    public static func answer(_ message: some MessageBody, status: Status = .ok) throws -> Self {
        .answer(try ByteBuffer(message: message), status: status)
    }

    /// Sends a message as an item of the request's stream; of another with ``withSerial(_:)``.
    ///
    /// - Throws: The error of the message's encoder: ``/HHSocketMessage/MessageError`` for generated messages.
    public static func item(_ message: some MessageBody) throws -> Self {
        .item(try ByteBuffer(message: message))
    }

    /// Pushes a message, with the type of its `.proto`: in the standard format with serial 1 and status 200.
    ///
    /// - Throws: The error of the message's encoder: ``/HHSocketMessage/MessageError`` for generated messages.
    public static func push<Message: PushMessage>(_ message: Message) throws -> Self {
        .push(Message.pushType, try ByteBuffer(message: message))
    }
}
