// SPDX-License-Identifier: Apache-2.0
public import HHSocketMessage

/// The answer to a typed call: the message, with its metadata and origin.
public struct MessageResponse<Message: MessageBody>: Sendable {
    public let message: Message
    /// The answer that the message was decoded from, with its metadata, header and serial, and the server.
    public let response: SocketResponse

    /// Creates an answer from its message and the response that it was decoded from.
    public init(_ message: Message, _ response: SocketResponse) {
        self.message = message
        self.response = response
    }
}

extension MessageResponse: Equatable where Message: Equatable {}
extension MessageResponse: Hashable where Message: Hashable {}
