// SPDX-License-Identifier: Apache-2.0
/// Reads the declarations of fields and values in generated code, where they are text: text takes less code, and
/// less time to compile, than calls would.
///
/// A field has one line:
/// ```
/// 1 note_id int64
/// 2 nick string optional
/// 3 texts map<int32,string>
/// 4 kind enum oneof=choice json=the kind
/// ```
/// A mistake is a bug of the generator, so it ends the program.
struct DescriptorDeclaration {
    private let message: String
    private let lines: [Substring]
    private var types: ArraySlice<any DescribedType.Type>
    private(set) var oneofs: [String] = []

    init(_ text: StaticString, _ types: [any DescribedType.Type], of message: String) {
        self.message = message
        self.lines = text.description.split(separator: "\n")
        self.types = types[...]
    }

    mutating func fields() -> [FieldDescriptor] {
        var fields: [FieldDescriptor] = []
        fields.reserveCapacity(self.lines.count)
        for line in self.lines { fields.append(self.field(line)) }
        precondition(self.types.isEmpty, "\(self.message): more types are given than fields have one")
        return fields
    }

    private mutating func field(_ line: Substring) -> FieldDescriptor {
        // A name in JSON may contain anything, so it is the last.
        let parts = line.split(separator: " json=", maxSplits: 1)
        let jsonName = parts.count > 1 ? String(parts[1]) : nil
        let words = parts[0].split(separator: " ")
        guard words.count >= 3, let number = UInt32(words[0]) else { self.fail(line) }
        let name = String(words[1])
        var presence = FieldDescriptor.Presence.implicit
        for word in words[3...] {
            switch word {
            case "optional": presence = .explicit
            case "required": presence = .required
            case "repeated": presence = .repeated
            case "packed": presence = .packed
            case _ where word.hasPrefix("oneof="): presence = .oneof(self.oneof(String(word.dropFirst(6))))
            default: self.fail(line)
            }
        }
        if words[2].hasPrefix("map<") {
            let kinds = words[2].dropFirst(4).dropLast().split(separator: ",").map { FieldKind(word: $0) }
            guard kinds.count == 2, let key = kinds[0], let value = kinds[1] else { self.fail(line) }
            let type = self.type(for: value, line)
            return .map(name, jsonName: jsonName, number: number, key: key, value: value, type: type)
        }
        let isGroup = words[2] == "group"
        guard let kind = isGroup ? .message : FieldKind(word: words[2]) else { self.fail(line) }
        let type = self.type(for: kind, line)
        return .init(
            name,
            jsonName: jsonName,
            number: number,
            kind: kind,
            presence: presence,
            isGroup: isGroup,
            type: type
        )
    }

    private mutating func oneof(_ name: String) -> Int {
        if let index = self.oneofs.firstIndex(of: name) { return index }
        self.oneofs.append(name)
        return self.oneofs.count - 1
    }

    private mutating func type(for kind: FieldKind, _ line: Substring) -> (@Sendable () -> TypeDescriptor)? {
        guard kind.hasType else { return nil }
        guard let type = self.types.popFirst() else { self.fail(line) }
        return { type.typeDescriptor }
    }

    private func fail(_ line: Substring) -> Never {
        preconditionFailure("\(self.message) does not declare a field in the line \"\(line)\"")
    }

    /// Returns the values of an enumeration, each of which has a line with its number and its name.
    static func values(_ text: StaticString, of name: String) -> [EnumDescriptor.Value] {
        text.description.split(separator: "\n").map { line in
            let words = line.split(separator: " ")
            guard words.count == 2, let number = Int32(words[0]) else {
                preconditionFailure("\(name) does not declare a value in the line \"\(line)\"")
            }
            return .init(name: String(words[1]), number: number)
        }
    }
}

extension FieldKind {
    /// Creates a kind by its name in a `.proto`; `enum` and `message` for types with names.
    init?(word: some StringProtocol) {
        guard let kind = Self.allCases.first(where: { "\($0)" == word }) else { return nil }
        self = kind
    }

    /// Whether fields of this kind have a type that a `.proto` declares.
    var hasType: Bool { self == .message || self == .enum }
}
