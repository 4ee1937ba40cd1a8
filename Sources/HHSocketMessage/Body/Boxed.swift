/// A message that lies within a message of its own kind, for which a structure has no room.
@frozen
public indirect enum Boxed<Message: Hashable & Sendable>: Hashable, Sendable {
    case message(Message)

    @inlinable
    public init(_ value: Message) {
        self = .message(value)
    }

    @inlinable
    public var value: Message {
        switch self {
        case .message(let value): value
        }
    }
}
