// SPDX-License-Identifier: Apache-2.0
/// One field, as a `.proto` declares it.
public struct FieldDescriptor: Sendable {
    /// The number of values that a field may have, and how their presence is encoded.
    public enum Presence: Sendable, Hashable {
        /// Exactly one; zero if none was sent, as in proto3 without `optional`.
        case implicit
        /// One or none.
        case explicit
        /// One; without it the message is incomplete.
        case required
        /// Any number, each encoded separately. Packed values are decoded too.
        case repeated
        /// Any number, encoded together with one length. Separate values are decoded too.
        case packed
        /// At most one among the fields of the same oneof, whose index in ``MessageDescriptor/oneofs`` this is.
        case oneof(Int)
    }

    /// The name in the `.proto`.
    public let name: String
    /// The name in JSON: by default `name` in lower camel case.
    public let jsonName: String
    /// The number on the wire, 1 to 536,870,911; for an extension of a message set up to 2,147,483,646.
    public let number: UInt32
    public let kind: FieldKind
    public let presence: Presence
    /// Whether the field's messages are encoded as groups, between two tags instead of behind a length.
    package let isGroup: Bool
    /// The type of the field's messages or of its enumeration; nil for other kinds. A function, because types may be
    /// recursive.
    private let type: (@Sendable () -> TypeDescriptor)?

    /// - Parameters:
    ///   - name: The name, as the `.proto` has it.
    ///   - jsonName: The name in JSON; by default `name` in lower camel case.
    ///   - number: 1 to 536,870,911; another number ends the program.
    ///   - kind: The type of the field.
    ///   - presence: Whether the field has presence, or is repeated; `implicit` by default.
    ///   - isGroup: Whether messages are encoded as groups; false by default.
    ///   - type: The type of the field's messages or of its enumeration, the same one at each call; required for the
    ///     kinds `message` and `enum`, nil for others.
    package init(
        _ name: String,
        jsonName: String? = nil,
        number: UInt32,
        kind: FieldKind,
        presence: Presence = .implicit,
        isGroup: Bool = false,
        type: (@Sendable () -> TypeDescriptor)? = nil
    ) {
        precondition(
            kind.hasType == (type != nil),
            "\(name): fields of messages and enumerations have a type, others none"
        )
        precondition((1...Self.maximumItemNumber).contains(number), "\(name) cannot have the number \(number)")
        self.name = name
        self.jsonName = jsonName ?? Self.jsonName(of: name)
        self.number = number
        self.kind = kind
        self.presence = presence
        self.isGroup = isGroup
        self.type = type
    }

    /// Creates the descriptor of a map, which is encoded as a repeated message with a key and a value.
    ///
    /// - Parameters:
    ///   - name: The name, as the `.proto` has it.
    ///   - jsonName: The name in JSON; by default `name` in lower camel case.
    ///   - number: 1 to 536,870,911; another number ends the program.
    ///   - key: The type of the keys.
    ///   - value: The type of the values.
    ///   - type: The type of the map's values, if they are messages or of an enumeration.
    package static func map(
        _ name: String,
        jsonName: String? = nil,
        number: UInt32,
        key: FieldKind,
        value: FieldKind,
        type: (@Sendable () -> TypeDescriptor)? = nil
    ) -> Self {
        let key = Self("key", number: 1, kind: key, presence: .explicit)
        let value = Self("value", number: 2, kind: value, presence: .explicit, type: type)
        let entry = MessageDescriptor(name, [key, value], isMapEntry: true)
        return Self(name, jsonName: jsonName, number: number, kind: .message, presence: .repeated) { .message(entry) }
    }

    /// The largest number of an extension of a message set, where it is a value.
    static let maximumItemNumber: UInt32 = 2_147_483_646

    /// The descriptor of the field's messages, for a map that of its entries; nil for other kinds.
    public var message: MessageDescriptor? {
        guard self.kind == .message, case .message(let descriptor) = self.type?() else { return nil }
        return descriptor
    }

    /// The descriptor of the field's enumeration; nil for other kinds.
    public var enumeration: EnumDescriptor? {
        guard self.kind == .enum, case .enumeration(let descriptor) = self.type?() else { return nil }
        return descriptor
    }

    /// Whether the field is a map, whose entries are messages with a key and a value.
    package var isMap: Bool { self.isRepeated && self.message?.isMapEntry == true }

    /// Whether the field may have several values.
    public var isRepeated: Bool { self.presence == .repeated || self.presence == .packed }

    /// Returns the name in JSON by protoc's rule: underscores are left out, and the letters after them are capitals.
    package static func jsonName(of name: String) -> String {
        var result = ""
        var isAfterUnderscore = false
        for character in name {
            if character != "_" { result += isAfterUnderscore ? character.uppercased() : String(character) }
            isAfterUnderscore = character == "_"
        }
        return result
    }
}

/// The type of a field: of its messages, or its enumeration.
public enum TypeDescriptor: Sendable {
    case message(MessageDescriptor)
    case enumeration(EnumDescriptor)
}

/// A type that a field may have, with its descriptor. Generated messages and enumerations conform to it.
public protocol DescribedType: Sendable {
    static var typeDescriptor: TypeDescriptor { get }
}
