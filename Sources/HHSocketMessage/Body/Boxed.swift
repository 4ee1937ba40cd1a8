/// A message nested in a message of its own type, which a struct cannot store inline.
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
