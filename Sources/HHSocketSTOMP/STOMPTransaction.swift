// SPDX-License-Identifier: Apache-2.0
public import HHSocket
public import NIOCore

/// A transaction of a broker, on one connection: the messages and acknowledgements sent in it take effect together, or
/// not at all. ``STOMPClient/transaction(isolation:_:)`` creates it.
public struct STOMPTransaction: Sendable {
    /// The header `transaction`.
    package let id: String
    private let sender: STOMPSender
    private let settler: STOMPSettler

    init(id: String, _ sender: STOMPSender, _ settler: STOMPSettler) {
        self.id = id
        self.sender = sender
        self.settler = settler
    }

    /// Sends a message as part of the transaction, and returns when it was handed to the system.
    ///
    /// - Parameters:
    ///   - body: The bytes of the body.
    ///   - destination: The header `destination`.
    ///   - headers: Further headers; none by default.
    ///   - contentType: The header `content-type`; nil, the default: none, and the body is just bytes.
    ///
    /// - Throws: ``/HHSocket/SocketError`` as
    ///   ``STOMPClient/send(_:to:headers:contentType:receipt:)-(ByteBuffer,_,_,_,_)`` does; `connectionLost` if the
    ///   transaction has ended with its connection: nothing of it took effect.
    public func send(
        _ body: ByteBuffer,
        to destination: String,
        headers: STOMPHeaders = [:],
        contentType: String? = nil
    ) async throws(SocketError) {
        try await self.send(STOMPFrame.sending(body, to: destination, headers: headers, contentType: contentType))
    }

    private func send(_ frame: STOMPFrame) async throws(SocketError) {
        try self.sender.check(frame)
        try await self.settler.operations.run { [id, settler] turn, completion in
            settler.send(frame, inTransaction: id, in: &turn, completion)
        }
    }

    /// Sends a text as part of the transaction, with the content type `text/plain` unless specified otherwise.
    ///
    /// - Throws: ``/HHSocket/SocketError``.
    public func send(
        _ text: String,
        to destination: String,
        headers: STOMPHeaders = [:],
        contentType: String? = STOMPClient.textType
    ) async throws(SocketError) {
        try await self.send(self.sender.sending(text, to: destination, headers: headers, contentType: contentType))
    }

    /// Acknowledges a message, if the transaction is committed.
    ///
    /// - Throws: ``/HHSocket/SocketError`` as ``STOMPMessage/ack(headers:receipt:)`` does.
    public func ack(_ message: STOMPMessage) async throws(SocketError) {
        try await message.settle(isAcknowledged: true, in: self.id)
    }

    /// Rejects a message, if the transaction is committed.
    ///
    /// - Throws: ``/HHSocket/SocketError`` as ``STOMPMessage/nack(headers:receipt:)`` does.
    public func nack(_ message: STOMPMessage) async throws(SocketError) {
        try await message.settle(isAcknowledged: false, in: self.id)
    }
}
