/// One field, as a `.proto` declares it.
public struct FieldDescriptor: Sendable {
    /// When a field has a value, and how many.
    public enum Presence: Sendable, Hashable {
        /// Always one; zero where none was sent. As in proto3 without `optional`.
        case implicit
        /// One or none.
        case explicit
        /// One, or the message is not complete.
        case required
        /// Any number, each by itself on the wire. What comes together is understood too.
        case repeated
        /// Any number, together behind one length on the wire. What comes by itself is understood too.
        case packed
        /// At most one among the fields of the same oneof, which are told apart by this index, from 0.
        case oneof(Int)
    }

    /// The name in the `.proto`.
    public let name: String
    /// 1 to 536,870,911.
    public let number: UInt32
    public let kind: FieldKind
    public let presence: Presence
    /// What a field of the kind `message` holds. A function, because messages may lie within themselves.
    let message: (@Sendable () -> MessageDescriptor)?
    /// Whether a closed enumeration knows a number. Nil for what is none.
    let knows: (@Sendable (Int32) -> Bool)?
    /// Whether it is a map, whose entries have no order of their own.
    private(set) var isMap = false

    /// - Parameters:
    ///   - message: Of fields of the kind `message`, and of no others: their messages' descriptor, the same at each
    ///     call.
    ///   - closed: The enumeration of a field of the kind `enum`, if it is closed, as those of proto2 are: numbers that
    ///     it does not know are unknown fields. Nil, the default, for open ones.
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

    /// A map: on the wire, a repeated message of a key and a value.
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
