// SPDX-License-Identifier: Apache-2.0
/// A method of a service, as a `.proto` declares it: the types of its request, its response and its frames.
public struct MethodDescriptor<Request: MessageBody, Response: MessageBody>: Sendable, Hashable {
    /// The number of messages in each direction: one, or a stream.
    public enum Kind: Sendable, Hashable {
        case unary, serverStream, clientStream, bidirectionalStream
    }

    /// The effect of calling the method again: `option idempotency_level = NO_SIDE_EFFECTS;`.
    public enum Idempotency: Sendable, Hashable {
        /// The `.proto` declares no level: each call may have a further effect.
        case unknown
        /// The method only reads. A call may be repeated, and its answer may be kept.
        case noSideEffects
        /// Repeating a call has no further effect.
        case idempotent
    }

    /// The full name, such as `chat.Chat/Send`.
    public let name: String
    /// The frames' type: `option (hhsocket.message_type) = 101;`.
    public let type: UInt32
    public let kind: Kind
    public let idempotency: Idempotency

    public init(_ name: String, type: UInt32, kind: Kind, idempotency: Idempotency = .unknown) {
        self.name = name
        self.type = type
        self.kind = kind
        self.idempotency = idempotency
    }
}
