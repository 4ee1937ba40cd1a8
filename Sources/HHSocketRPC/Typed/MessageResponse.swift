// SPDX-License-Identifier: Apache-2.0
public import HHSocket
public import HHSocketMessage

/// The answer to a typed call: the message, with its metadata and origin.
public struct MessageResponse<Message: MessageBody>: Sendable {
    public var message: Message
    /// The answer that the message was decoded from, with its status, header and serial.
    public var response: SocketResponse

    /// Creates an answer from its message and the response that it was decoded from.
    public init(_ message: Message, _ response: SocketResponse) {
        self.message = message
        self.response = response
    }

    /// The metadata that the server sent with the message, by lower-case name; empty if it sent none.
    public var metadata: [String: String] { self.response.metadata }
    /// The server that answered.
    public var endpoint: Endpoint { self.response.endpoint }
}

extension MessageResponse: Equatable where Message: Equatable {}
extension MessageResponse: Hashable where Message: Hashable {}
