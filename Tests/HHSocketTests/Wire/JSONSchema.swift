// SPDX-License-Identifier: Apache-2.0
import Foundation

/// A value of JSON that distinguishes numbers and booleans.
indirect enum JSONValue: Decodable, Equatable {
    case null
    case boolean(Bool)
    case number(Double)
    case text(String)
    case list([JSONValue])
    case object([String: JSONValue])

    init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        if container.decodeNil() {
            self = .null
        } else if let value = try? container.decode(Bool.self) {
            self = .boolean(value)
        } else if let value = try? container.decode(Double.self) {
            self = .number(value)
        } else if let value = try? container.decode(String.self) {
            self = .text(value)
        } else if let value = try? container.decode([JSONValue].self) {
            self = .list(value)
        } else {
            self = .object(try container.decode([String: JSONValue].self))
        }
    }

    init(_ json: String) throws {
        self = try JSONDecoder().decode(JSONValue.self, from: Data(json.utf8))
    }

    var object: [String: JSONValue] { if case .object(let members) = self { members } else { [:] } }
    var list: [JSONValue] { if case .list(let elements) = self { elements } else { [] } }
    var text: String? { if case .text(let text) = self { text } else { nil } }
    var number: Double? { if case .number(let number) = self { number } else { nil } }

    /// The names of this kind of value in a schema.
    var types: [String] {
        switch self {
        case .null: ["null"]
        case .boolean: ["boolean"]
        case .number(let number): number.rounded() == number ? ["integer", "number"] : ["number"]
        case .text: ["string"]
        case .list: ["array"]
        case .object: ["object"]
        }
    }
}

/// The part of JSON Schema, draft 2020-12, that Docs/WireFormat.schema.json uses.
struct JSONSchema {
    let root: JSONValue

    /// The faults of a value; empty if it is valid. An unknown keyword is a fault, too.
    func complaints(about value: JSONValue) -> [String] {
        self.complaints(value, self.root, "$")
    }

    private func complaints(_ value: JSONValue, _ schema: JSONValue, _ path: String) -> [String] {
        guard case .object(let keywords) = schema else { return ["\(path): the schema is no object"] }
        return keywords.flatMap { self.complaints(value, $0.key, $0.value, keywords, path) }
    }

    private func complaints(
        _ value: JSONValue,
        _ keyword: String,
        _ operand: JSONValue,
        _ schema: [String: JSONValue],
        _ path: String
    ) -> [String] {
        func unless(_ isRight: Bool?) -> [String] { isRight ?? true ? [] : ["\(path): \(keyword) \(operand)"] }
        switch keyword {
        case "$schema", "$id", "$defs", "title", "description", "default":
            return []
        case "$ref":
            guard let name = operand.text, name.hasPrefix("#/$defs/"),
                let target = self.root.object["$defs"]?.object[String(name.dropFirst("#/$defs/".count))]
            else { return ["\(path): there is no \(operand)"] }
            return self.complaints(value, target, path)
        case "type":
            return unless(value.types.contains { operand == .text($0) })
        case "enum":
            return unless(operand.list.contains(value))
        case "anyOf":
            // All of them, so that every keyword is seen.
            let branches = operand.list.map { self.complaints(value, $0, path) }
            return branches.contains([]) ? [] : ["\(path): none of \(branches)"]
        case "required":
            guard case .object(let members) = value else { return [] }
            return operand.list.compactMap(\.text).filter { members[$0] == nil }.map { "\(path): has no \($0)" }
        case "properties":
            return value.object.flatMap { key, member in
                operand.object[key].map { self.complaints(member, $0, "\(path).\(key)") } ?? []
            }
        case "additionalProperties":
            let others = value.object.filter { schema["properties"]?.object[$0.key] == nil }
            guard operand != .boolean(false) else { return others.keys.map { "\(path): has \($0)" } }
            return others.flatMap { self.complaints($0.value, operand, "\(path).\($0.key)") }
        case "propertyNames":
            return value.object.keys.flatMap { self.complaints(.text($0), operand, "\(path).\($0)") }
        case "items":
            return value.list.enumerated().flatMap { self.complaints($0.element, operand, "\(path).\($0.offset)") }
        case "minItems":
            guard case .list(let elements) = value else { return [] }
            return unless(Double(elements.count) >= operand.number ?? .infinity)
        case "maxItems":
            guard case .list(let elements) = value else { return [] }
            return unless(Double(elements.count) <= operand.number ?? 0)
        case "minimum":
            return unless(value.number.map { $0 >= operand.number ?? .infinity })
        case "maximum":
            return unless(value.number.map { $0 <= operand.number ?? 0 })
        case "minLength":
            return unless(value.text.map { Double($0.unicodeScalars.count) >= operand.number ?? .infinity })
        case "pattern":
            guard let pattern = operand.text.flatMap({ try? Regex($0) }) else { return ["\(path): no pattern"] }
            return unless(value.text.map { $0.firstMatch(of: pattern) != nil })
        default:
            return ["\(path): the keyword \(keyword) is unknown here"]
        }
    }

    /// The names of all properties that the schema allows in any place.
    var propertyNames: Set<String> { Self.propertyNames(in: self.root) }

    private static func propertyNames(in schema: JSONValue) -> Set<String> {
        switch schema {
        case .object(let keywords):
            keywords.reduce(into: []) { names, keyword in
                if keyword.key == "properties" { names.formUnion(keyword.value.object.keys) }
                // The value of a user-defined name, such as a property called "properties", is a schema, too.
                names.formUnion(self.propertyNames(in: keyword.value))
            }
        case .list(let elements):
            elements.reduce(into: []) { $0.formUnion(self.propertyNames(in: $1)) }
        default:
            []
        }
    }
}
