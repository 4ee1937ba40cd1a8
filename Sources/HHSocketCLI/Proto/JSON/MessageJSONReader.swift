import Foundation
import HHSocketMessage

/// A reader of messages in protobuf's JSON.
struct MessageJSONReader {
    private let schema: ProtoSchema

    init(_ schema: ProtoSchema) {
        self.schema = schema
    }

    /// - Parameter name: The message's full name.
    func message(_ json: JSONValue, named name: String) throws(MessageJSONError) -> DynamicMessage {
        // A schema contains every message that it refers to.
        guard let type = self.schema.messages[name] else { throw MessageJSONError("\(name) is not declared") }
        switch WellKnownType(type) {
        case .timestamp:
            return try self.time(json, type, "a timestamp such as 2026-02-03T04:05:06Z") { .init(timestamp: $0) }
        case .duration: return try self.time(json, type, "a duration such as 1.5s") { .init(duration: $0) }
        case .wrapper:
            var message = DynamicMessage(type.descriptor)
            message.set(0, try self.value(json, type.fields[0]))
            return message
        case .any: return try self.any(json, type)
        case .object:
            var message = DynamicMessage(type.descriptor)
            message.set(0, try self.entries(json, type.fields[0]))
            return message
        case .list:
            var message = DynamicMessage(type.descriptor)
            message.set(0, try self.elements(json, type.fields[0]))
            return message
        case .value: return try self.anyValue(json, type)
        case .fieldMask:
            guard case .string(let text) = json else { throw .expected("paths such as name,address.zipCode", json) }
            guard let paths = FieldMaskJSON.paths(text) else {
                throw ScalarJSON.expected("paths in lower camel case with commas between them", text)
            }
            var message = DynamicMessage(type.descriptor)
            message.set(0, paths.map { .string($0) })
            return message
        case nil: return try self.plainMessage(json, type)
        }
    }

    /// Reads `{"@type": URL, …}`, with the members of the message, or with its special form as `value`. If the schema
    /// does not have the type, `value` is the message's bytes in Base64.
    private func any(_ json: JSONValue, _ type: ProtoMessage) throws(MessageJSONError) -> DynamicMessage {
        guard case .object(let members) = json else { throw .expected("an object with @type", json) }
        var message = DynamicMessage(type.descriptor)
        guard !members.isEmpty else { return message }
        let urls = members.filter { $0.name == "@type" }
        guard urls.count == 1, case .string(let url) = urls[0].value else {
            throw MessageJSONError("@type, such as type.googleapis.com/chat.Note, is needed once")
        }
        let others = members.filter { $0.name != "@type" }
        message.set(0, .string(url))
        guard let inner = self.schema.type(ofURL: url) else {
            guard others.map(\.name) == ["value"] else {
                throw MessageJSONError(
                    "the type of \(JSONLine.quoted(url)) is not declared; give the message's bytes as value, in Base64"
                )
            }
            do throws(MessageJSONError) {
                message.set(1, try ScalarJSON.value(others[0].value, of: .bytes))
            } catch {
                throw error.within(.member("value"))
            }
            return message
        }
        let content: DynamicMessage
        if WellKnownType(inner) == nil {
            content = try self.plainMessage(.object(others), inner)
        } else {
            guard others.map(\.name) == ["value"] else {
                throw MessageJSONError("a \(inner.name) is needed as value, and nothing else besides @type")
            }
            do throws(MessageJSONError) {
                content = try self.message(others[0].value, named: inner.name)
            } catch {
                throw error.within(.member("value"))
            }
        }
        do throws(MessageError) {
            message.set(1, .bytes(Data(try content.serializedBytes())))
        } catch {
            throw MessageJSONError("\(error)")
        }
        return message
    }

    private func anyValue(_ json: JSONValue, _ type: ProtoMessage) throws(MessageJSONError) -> DynamicMessage {
        var message = DynamicMessage(type.descriptor)
        // The order of the fields: null, number, string, boolean, object, array.
        switch json {
        case .null: message.set(0, .int32(0))
        case .number: message.set(1, try ScalarJSON.value(json, of: .double))
        case .string(let text): message.set(2, .string(text))
        case .bool(let value): message.set(3, .bool(value))
        case .object: message.set(4, .message(try self.message(json, named: type.fields[4].typeName ?? "")))
        case .array: message.set(5, .message(try self.message(json, named: type.fields[5].typeName ?? "")))
        }
        return message
    }

    /// Whether null is a value of the field, instead of meaning that the field is absent.
    private func hasNull(_ field: ProtoField) -> Bool {
        guard !field.isRepeated else { return false }
        switch field.kind {
        case .enum: return field.typeName == "google.protobuf.NullValue"
        case .message:
            guard let type = field.typeName.flatMap({ self.schema.messages[$0] }),
                case .value = WellKnownType(type)
            else { return false }
            return true
        default: return false
        }
    }

    private func plainMessage(_ json: JSONValue, _ type: ProtoMessage) throws(MessageJSONError) -> DynamicMessage {
        guard case .object(let members) = json else { throw .expected("an object, for \(type.name)", json) }
        var message = DynamicMessage(type.descriptor)
        var seen: [Int: String] = [:]
        var oneofs: [String: String] = [:]
        for member in members {
            let step = MessageJSONError.Step.member(member.name)
            guard let index = type.index(ofJSONName: member.name) else { throw Self.unknown(member.name, type) }
            let field = type.fields[index]
            if let other = seen.updateValue(member.name, forKey: index) {
                throw MessageJSONError("the same field as \(other)").within(step)
            }
            if case .null = member.value, !self.hasNull(field) { continue }
            if let oneof = field.oneof, let other = oneofs.updateValue(member.name, forKey: oneof) {
                throw MessageJSONError(
                    "\(other) and \(member.name) exclude each other, as members of the oneof \(oneof)"
                )
                .within(step)
            }
            do throws(MessageJSONError) {
                if field.isMap {
                    message.set(index, try self.entries(member.value, field))
                } else if field.isRepeated {
                    message.set(index, try self.elements(member.value, field))
                } else {
                    message.set(index, try self.value(member.value, field))
                }
            } catch {
                throw error.within(step)
            }
        }
        for (index, field) in type.fields.enumerated() where field.presence == .required && message[index] == nil {
            throw MessageJSONError("the required field \(field.jsonName) is missing")
        }
        return message
    }

    private func elements(_ json: JSONValue, _ field: ProtoField) throws(MessageJSONError) -> [DynamicValue] {
        guard case .array(let elements) = json else { throw .expected("an array", json) }
        var values: [DynamicValue] = []
        values.reserveCapacity(elements.count)
        for (index, element) in elements.enumerated() {
            do throws(MessageJSONError) {
                values.append(try self.value(element, field))
            } catch {
                throw error.within(.element(index))
            }
        }
        return values
    }

    private func entries(_ json: JSONValue, _ field: ProtoField) throws(MessageJSONError) -> [DynamicValue] {
        guard case .object(let members) = json else { throw .expected("an object, for a map", json) }
        guard let type = field.typeName.flatMap({ self.schema.messages[$0] }) else { return [] }
        var entries: [DynamicValue] = []
        // `1` and `1.0` are the same key.
        var keys: Set<String> = []
        for member in members {
            do throws(MessageJSONError) {
                var entry = DynamicMessage(type.descriptor)
                let key = try self.key(member.name, type.fields[0].kind)
                guard keys.insert(MapKey.text(key)).inserted else { throw MessageJSONError("this key comes twice") }
                entry.set(0, key)
                entry.set(1, try self.value(member.value, type.fields[1]))
                entries.append(.message(entry))
            } catch {
                throw error.within(.key(member.name))
            }
        }
        return entries
    }

    private func key(_ name: String, _ kind: FieldKind) throws(MessageJSONError) -> DynamicValue {
        switch (kind, name) {
        case (.bool, "true"): return .bool(true)
        case (.bool, "false"): return .bool(false)
        case (.bool, _): throw ScalarJSON.expected("the key true or false", name)
        default: return try ScalarJSON.value(.string(name), of: kind)
        }
    }

    /// Reads one value.
    private func value(_ json: JSONValue, _ field: ProtoField) throws(MessageJSONError) -> DynamicValue {
        switch field.kind {
        case .message: .message(try self.message(json, named: field.typeName ?? ""))
        case .enum: .int32(try self.enumeration(json, field.typeName ?? ""))
        default: try ScalarJSON.value(json, of: field.kind)
        }
    }

    private func enumeration(_ json: JSONValue, _ name: String) throws(MessageJSONError) -> Int32 {
        guard let type = self.schema.enums[name] else { throw MessageJSONError("\(name) is not declared") }
        switch json {
        case .null where name == "google.protobuf.NullValue": return 0
        case .string(let text):
            if let value = type.values.first(where: { $0.name == text }) { return value.number }
            let hint = NearestNames.hint(for: text, among: type.values.map(\.name), all: true)
            throw MessageJSONError("\(name) has no value \(JSONLine.quoted(text))\(hint)")
        case .number:
            let number: Int32 = try ScalarJSON.integer(json, "a 32-bit integer, for \(name)")
            guard !type.isClosed || type.values.contains(where: { $0.number == number }) else {
                throw MessageJSONError("\(name) has no value \(number)")
            }
            return number
        default: throw .expected("a value of \(name), by name or number", json)
        }
    }

    private func time(
        _ json: JSONValue,
        _ type: ProtoMessage,
        _ expected: String,
        _ parse: (String) -> CivilTime?
    ) throws(MessageJSONError) -> DynamicMessage {
        guard case .string(let text) = json else { throw .expected(expected, json) }
        guard let time = parse(text) else { throw ScalarJSON.expected(expected, text) }
        var message = DynamicMessage(type.descriptor)
        message.set(0, .int64(time.seconds))
        message.set(1, .int32(time.nanos))
        return message
    }

    private static func unknown(_ name: String, _ type: ProtoMessage) -> MessageJSONError {
        let hint = NearestNames.hint(for: name, among: type.fields.map(\.jsonName), all: true)
        return MessageJSONError("\(type.name) has no such field\(hint)").within(.member(name))
    }
}

/// Keys of maps, which are strings in JSON.
enum MapKey {
    static func text(_ key: DynamicValue) -> String {
        switch key {
        case .string(let text): text
        case .bool(let value): value ? "true" : "false"
        case .int32(let value): "\(value)"
        case .int64(let value): "\(value)"
        case .uint32(let value): "\(value)"
        case .uint64(let value): "\(value)"
        // Keys cannot have these types.
        case .float, .double, .bytes, .message: ""
        }
    }
}
