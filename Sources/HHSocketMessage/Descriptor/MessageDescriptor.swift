// SPDX-License-Identifier: Apache-2.0
import Atomics

/// A message, as a `.proto` declares it: its name and its fields.
///
/// Each generated message has one. It serves code that accesses messages by the names of their fields, such as JSON and
/// errors; encoding and decoding generated messages does not need it.
public final class MessageDescriptor: Sendable {
    /// The full name, such as `chat.Note`.
    public let name: String
    /// Whether the message is an entry of a map, with a key and a value.
    package let isMapEntry: Bool

    private let content: DescriptorContent<MessageContent>
    private let lastLength = ManagedAtomic(0)

    /// - Parameters:
    ///   - name: The full name, such as `chat.Note`.
    ///   - oneofs: The names of the oneofs.
    ///   - fields: The fields, in any order; no two with the same number.
    ///   - isMapEntry: Whether the message is an entry of a map; false by default.
    package init(_ name: String, oneofs: [String] = [], _ fields: [FieldDescriptor], isMapEntry: Bool = false) {
        self.name = name
        self.isMapEntry = isMapEntry
        self.content = DescriptorContent { MessageContent(name, oneofs: oneofs, fields: fields) }
    }

    /// - Parameters:
    ///   - name: The full name, such as `chat.Note`.
    ///   - declaration: A line for each field, such as `3 note_id int64 optional`: number, name, kind, and
    ///     further properties. Used by generated code.
    ///   - types: The types of the fields that are messages or of an enumeration, in the order of the lines.
    public init(_ name: String, _ declaration: StaticString = "", types: [any DescribedType.Type] = []) {
        self.name = name
        self.isMapEntry = false
        self.content = DescriptorContent {
            var declaration = DescriptorDeclaration(declaration, types, of: name)
            let fields = declaration.fields()
            return MessageContent(name, oneofs: declaration.oneofs, fields: fields)
        }
    }

    /// The fields, in ascending order of their numbers.
    public var fields: [FieldDescriptor] { self.content.value.fields }
    /// The names of the oneofs, to which ``FieldDescriptor/Presence/oneof(_:)`` refers.
    public var oneofs: [String] { self.content.value.oneofs }

    /// Returns the index of the field with this number among ``fields``.
    package func index(ofNumber number: UInt32) -> Int? {
        let content = self.content.value
        if number &- 1 < content.dense { return Int(number) - 1 }
        var (low, high) = (Int(content.dense), content.fields.count)
        while low < high {
            let middle = (low + high) / 2
            if content.fields[middle].number < number { low = middle + 1 } else { high = middle }
        }
        return low < content.fields.count && content.fields[low].number == number ? low : nil
    }

    /// Returns the index of the field with this name in JSON, which may also be the one in the `.proto`.
    package func index(ofJSONName name: String) -> Int? { self.content.value.indexes[name] }

    /// The special form of the message in JSON; nil for most messages.
    var wellKnownForm: WellKnownForm? { self.content.value.wellKnownForm }

    /// The length of the last message of this type that was encoded and was not short, in bytes: an estimate for the
    /// next one. A wrong one only costs time.
    var expectedLength: Int {
        get { self.lastLength.load(ordering: .relaxed) }
        set { self.lastLength.store(newValue, ordering: .relaxed) }
    }

    /// Records that a message was not short.
    ///
    /// - Parameter length: The number of bytes that it takes.
    @usableFromInline
    func expectLongMessages(length: Int) { self.expectedLength = length }
}

/// The fields of a message, by number and by name.
final class MessageContent: AtomicReference, Sendable {
    let fields: [FieldDescriptor]
    let oneofs: [String]
    /// The number of leading fields that are numbered from 1 without a gap, so that the number gives the index.
    let dense: UInt32
    let indexes: [String: Int]
    let wellKnownForm: WellKnownForm?

    init(_ name: String, oneofs: [String], fields: [FieldDescriptor]) {
        let fields = fields.sorted { $0.number < $1.number }
        precondition(
            zip(fields, fields.dropFirst()).allSatisfy { $0.number < $1.number },
            "\(name) has two fields with the same number"
        )
        self.fields = fields
        self.oneofs = oneofs
        self.dense = UInt32(zip(fields, 1...).prefix { $0.number == $1 }.count)
        let names = zip(fields.map(\.name), fields.indices)
        let jsonNames = zip(fields.map(\.jsonName), fields.indices)
        // A name in JSON prevails over another field's name in the `.proto`.
        self.indexes = Dictionary(Array(jsonNames) + Array(names), uniquingKeysWith: { first, _ in first })
        self.wellKnownForm = WellKnownForm(name, fields)
    }
}
