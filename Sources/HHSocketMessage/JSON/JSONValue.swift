// SPDX-License-Identifier: Apache-2.0
/// A JSON value. Numbers keep their text, since a `Double` would lose digits of large ones.
package indirect enum JSONValue: Sendable, Hashable {
    package struct Member: Sendable, Hashable {
        package var name: String
        package var value: JSONValue

        package init(name: String, value: JSONValue) {
            self.name = name
            self.value = value
        }
    }

    case null
    case bool(Bool)
    case number(String)
    case string(String)
    case array([JSONValue])
    /// The members in their written order.
    case object([Member])

    /// A description of the value's kind, for errors.
    package var kind: String {
        switch self {
        case .null: "null"
        case .bool: "a boolean"
        case .number: "a number"
        case .string: "a string"
        case .array: "an array"
        case .object: "an object"
        }
    }

    /// - Parameter isIndented: Whether each member is on its own line; otherwise the text is one line.
    package func text(isIndented: Bool = false) -> String {
        var text = ""
        self.write(to: &text, isIndented ? 0 : nil)
        return text
    }

    /// - Parameter level: The indentation of the current line; nil for text on one line.
    private func write(to text: inout String, _ level: Int?) {
        switch self {
        case .null: text += "null"
        case .bool(let value): text += value ? "true" : "false"
        case .number(let digits): text += digits
        case .string(let value): text += value.quotedInJSON
        case .array(let values):
            Self.writeList(values, opening: "[", closing: "]", to: &text, level: level) { value, text, level in
                value.write(to: &text, level)
            }
        case .object(let members):
            Self.writeList(members, opening: "{", closing: "}", to: &text, level: level) { member, text, level in
                text += member.name.quotedInJSON
                text += level == nil ? ":" : ": "
                member.value.write(to: &text, level)
            }
        }
    }

    private static func writeList<Element>(
        _ elements: [Element],
        opening: String,
        closing: String,
        to text: inout String,
        level: Int?,
        _ write: (Element, inout String, Int?) -> Void
    ) {
        text += opening
        let inner = level.map { $0 + 1 }
        for (index, element) in elements.enumerated() {
            if index > 0 { text += "," }
            Self.breakLine(&text, inner)
            write(element, &text, inner)
        }
        if !elements.isEmpty { Self.breakLine(&text, level) }
        text += closing
    }

    private static func breakLine(_ text: inout String, _ level: Int?) {
        if let level { text += "\n" + String(repeating: "  ", count: level) }
    }
}

extension JSONValue {
    /// Creates an object of the members that have a value.
    package static func object(_ members: KeyValuePairs<String, JSONValue?>) -> Self {
        .object(members.compactMap { name, value in value.map { Member(name: name, value: $0) } })
    }

    package static func number(_ value: some BinaryInteger) -> Self { .number("\(value)") }
}
