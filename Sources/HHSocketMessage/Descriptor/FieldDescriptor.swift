/// One field, as a `.proto` declares it.
public struct FieldDescriptor: Sendable {
    /// The number of values that a field may have, and how their presence is encoded.
    public enum Presence: Sendable, Hashable {
        /// Always one; zero if none was sent. As in proto3 without `optional`.
        case implicit
        /// One or none.
        case explicit
        /// One; without it the message is incomplete.
        case required
        /// Any number, each encoded separately. Packed values are decoded too.
        case repeated
        /// Any number, encoded together with one length. Separate values are decoded too.
        case packed
        /// At most one among the fields of the same oneof, whose index in the message, from 0, this is.
        case oneof(Int)
    }

    /// The name in the `.proto`.
    public let name: String
    /// The number on the wire, 1 to 536,870,911.
    public let number: UInt32
    public let kind: FieldKind
    public let presence: Presence
    /// The descriptor of the messages in a field of the kind `message`. A function, because types may be recursive.
    let message: (@Sendable () -> MessageDescriptor)?
    /// Whether the field's closed enumeration declares a number; nil for other fields.
    let knows: (@Sendable (Int32) -> Bool)?
    /// Whether the field is a map, whose entries have no order.
    private(set) var isMap = false

    /// - Parameters:
    ///   - message: The descriptor of the field's messages, the same one at each call; required for fields of the kind
    ///     `message`, nil for others.
    ///   - closed: The enumeration of a field of the kind `enum`, if it is closed, as in proto2: numbers that it does
    ///     not declare become unknown fields. Nil, the default, for open ones.
    public init(
        _ name: String,
        _ number: UInt32,
        _ kind: FieldKind,
        _ presence: Presence = .implicit,
        message: (@Sendable () -> MessageDescriptor)? = nil,
        closed: (any ProtobufEnum.Type)? = nil
    ) {
        precondition((kind == .message) == (message != nil), "\(name): fields of messages, and no others, say of which")
        precondition((1...536_870_911).contains(number), "\(name) cannot have the number \(number)")
        self.name = name
        self.number = number
        self.kind = kind
        self.presence = presence
        self.message = message
        self.knows = closed.map { Self.judge(of: $0) }
    }

    private static func judge<Enum: ProtobufEnum>(of type: Enum.Type) -> @Sendable (Int32) -> Bool {
        { Enum(rawValue: Int($0)) != nil }
    }

    /// Creates the descriptor of a map, which is encoded as a repeated message with a key and a value.
    public static func map(
        _ name: String,
        _ number: UInt32,
        key: FieldKind,
        value: FieldKind,
        message: (@Sendable () -> MessageDescriptor)? = nil
    ) -> Self {
        let entry = MessageDescriptor(
            name,
            [.init("key", 1, key, .explicit), .init("value", 2, value, .explicit, message: message)],
            isEntry: true
        )
        var field = Self(name, number, .message, .repeated, message: { entry })
        field.isMap = true
        return field
    }
}
