// SPDX-License-Identifier: Apache-2.0
import HHSocketFoundation

/// A reader of messages in protobuf's JSON.
package struct MessageJSONReader {
    private let options: MessageJSON.DecodingOptions

    package init(_ options: MessageJSON.DecodingOptions) {
        self.options = options
    }

    package func message(
        _ json: JSONValue,
        _ type: MessageDescriptor
    ) throws(MessageJSONError) -> DynamicMessage {
        switch type.wellKnownForm {
        case .timestamp:
            return try self.time(json, as: type, expected: "a timestamp such as 2026-02-03T04:05:06Z") {
                .init(timestamp: $0)
            }
        case .duration:
            return try self.time(json, as: type, expected: "a duration such as 1.5s") { .init(duration: $0) }
        case .wrapper:
            var message = DynamicMessage(type)
            if let value = try self.value(json, type.fields[0]) { message.set(0, value) }
            return message
        case .any: return try self.any(json, type)
        case .object:
            var message = DynamicMessage(type)
            message.set(0, try self.entries(json, type.fields[0]))
            return message
        case .list:
            var message = DynamicMessage(type)
            message.set(0, try self.elements(json, type.fields[0]))
            return message
        case .value: return try self.anyValue(json, type)
        case .fieldMask:
            guard case .string(let text) = json else { throw .expected("paths such as name,address.zipCode", json) }
            guard let paths = FieldMaskJSON.paths(text) else {
                throw ScalarJSON.expected("paths in lower camel case with commas between them", text)
            }
            var message = DynamicMessage(type)
            message.set(0, paths.map { .string($0) })
            return message
        case nil: return try self.plainMessage(json, type)
        }
    }

    /// Reads `{"@type": URL, …}`, with the members of the message, or with its special form as `value`. If the
    /// type is not known, `value` is the message's bytes in Base64.
    private func any(_ json: JSONValue, _ type: MessageDescriptor) throws(MessageJSONError) -> DynamicMessage {
        guard case .object(let members) = json else { throw .expected("an object with @type", json) }
        var message = DynamicMessage(type)
        guard !members.isEmpty else { return message }
        let urls = members.filter { $0.name == "@type" }
        guard urls.count == 1, case .string(let url) = urls[0].value else {
            throw MessageJSONError("@type, such as type.googleapis.com/chat.Note, is needed once")
        }
        let others = members.filter { $0.name != "@type" }
        message.set(0, .string(url))
        guard let inner = self.options.types.type(ofURL: url) else {
            guard self.options.acceptsUndeclaredTypes else {
                throw MessageJSONError("the type of \(url.quotedInJSON) is not among the options' types")
            }
            guard others.map(\.name) == ["value"] else {
                throw MessageJSONError(
                    "the type of \(url.quotedInJSON) is not declared; give the message's bytes as value, in Base64"
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
        if inner.wellKnownForm == nil {
            content = try self.plainMessage(.object(others), inner)
        } else {
            guard others.map(\.name) == ["value"] else {
                throw MessageJSONError("a \(inner.name) is needed as value, and nothing else besides @type")
            }
            do throws(MessageJSONError) {
                content = try self.message(others[0].value, inner)
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

    private func anyValue(_ json: JSONValue, _ type: MessageDescriptor) throws(MessageJSONError) -> DynamicMessage {
        var message = DynamicMessage(type)
        // The order of the fields: null, number, string, boolean, object, array.
        switch json {
        case .null: message.set(0, .int32(0))
        case .number: message.set(1, try ScalarJSON.value(json, of: .double))
        case .string(let text): message.set(2, .string(text))
        case .bool(let value): message.set(3, .bool(value))
        case .object, .array:
            let index = if case .object = json { 4 } else { 5 }
            if let value = try self.value(json, type.fields[index]) { message.set(index, value) }
        }
        return message
    }

    /// Whether null is a value of the field, instead of meaning that the field is absent.
    private func hasNull(_ field: FieldDescriptor) -> Bool {
        guard !field.isRepeated else { return false }
        switch field.kind {
        case .enum: return field.enumeration?.name == EnumDescriptor.nullValueName
        case .message:
            guard case .value = field.message?.wellKnownForm else { return false }
            return true
        default: return false
        }
    }

    private func plainMessage(_ json: JSONValue, _ type: MessageDescriptor) throws(MessageJSONError) -> DynamicMessage {
        guard case .object(let members) = json else { throw .expected("an object, for \(type.name)", json) }
        var message = DynamicMessage(type)
        var seen: [Int: String] = [:]
        var oneofs: [Int: String] = [:]
        for member in members {
            let step = MessageJSONError.Step.member(member.name)
            guard let index = type.index(ofJSONName: member.name) else {
                if let entry = self.options.types.extensions.entry(of: type, jsonName: member.name) {
                    try self.read(member, entry, into: &message)
                    continue
                }
                if self.options.ignoreUnknownFields { continue }
                throw Self.unknown(member.name, type)
            }
            let field = type.fields[index]
            if let other = seen.updateValue(member.name, forKey: index) {
                throw MessageJSONError("the same field as \(other)").within(step)
            }
            if case .null = member.value, !self.hasNull(field) { continue }
            if case .oneof(let oneof) = field.presence, let other = oneofs.updateValue(member.name, forKey: oneof) {
                throw MessageJSONError(
                    "\(other) and \(member.name) exclude each other, as members of the oneof \(type.oneofs[oneof])"
                )
                .within(step)
            }
            try self.read(member, index, into: &message)
        }
        for (index, field) in type.fields.enumerated() where field.presence == .required && message[index] == nil {
            throw MessageJSONError("the required field \(field.jsonName) is missing")
        }
        return message
    }

    /// Reads the value of an extension.
    private func read(
        _ member: JSONValue.Member,
        _ entry: ExtensionTable.Entry,
        into message: inout DynamicMessage
    ) throws(MessageJSONError) {
        if case .null = member.value, !self.hasNull(entry.field) { return }
        var extended = DynamicMessage(entry.descriptor)
        try self.read(member, 0, into: &extended)
        do throws(MessageError) {
            if entry.isItem, case .value(.message(let value)) = extended[0] {
                let bytes = try value.serializedBytes()
                message.unknownFields.append(item: entry.field.number, encodedMessage: bytes)
            } else {
                message.unknownFields.bytes += try extended.serializedBytes()
            }
        } catch {
            throw MessageJSONError("\(error)").within(.member(member.name))
        }
    }

    /// Reads the content of a field.
    private func read(
        _ member: JSONValue.Member,
        _ index: Int,
        into message: inout DynamicMessage
    ) throws(MessageJSONError) {
        let field = message.descriptor.fields[index]
        do throws(MessageJSONError) {
            if field.isMap {
                message.set(index, try self.entries(member.value, field))
            } else if field.isRepeated {
                message.set(index, try self.elements(member.value, field))
            } else if let value = try self.value(member.value, field) {
                message.set(index, value)
            }
        } catch {
            throw error.within(.member(member.name))
        }
    }

    private func elements(_ json: JSONValue, _ field: FieldDescriptor) throws(MessageJSONError) -> [DynamicValue] {
        guard case .array(let elements) = json else { throw .expected("an array", json) }
        var values: [DynamicValue] = []
        values.reserveCapacity(elements.count)
        for (index, element) in elements.enumerated() {
            do throws(MessageJSONError) {
                if let value = try self.value(element, field) { values.append(value) }
            } catch {
                throw error.within(.element(index))
            }
        }
        return values
    }

    private func entries(_ json: JSONValue, _ field: FieldDescriptor) throws(MessageJSONError) -> [DynamicValue] {
        guard case .object(let members) = json else { throw .expected("an object, for a map", json) }
        guard let type = field.message else { return [] }
        var entries: [DynamicValue] = []
        // `1` and `1.0` are the same key.
        var keys: Set<String> = []
        for member in members {
            do throws(MessageJSONError) {
                var entry = DynamicMessage(type)
                let key = try self.key(member.name, type.fields[0].kind)
                guard keys.insert(MapKey.text(key)).inserted else { throw MessageJSONError("this key comes twice") }
                entry.set(0, key)
                guard let value = try self.value(member.value, type.fields[1]) else { continue }
                entry.set(1, value)
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

    /// Reads one value; nil for one that is ignored, because its enumeration does not have it.
    private func value(_ json: JSONValue, _ field: FieldDescriptor) throws(MessageJSONError) -> DynamicValue? {
        if let type = field.message { return .message(try self.message(json, type)) }
        if let type = field.enumeration { return try self.enumeration(json, type).map { .int32($0) } }
        return try ScalarJSON.value(json, of: field.kind)
    }

    private func enumeration(_ json: JSONValue, _ type: EnumDescriptor) throws(MessageJSONError) -> Int32? {
        switch json {
        case .null where type.name == EnumDescriptor.nullValueName: return 0
        case .string(let text):
            if let number = type.number(ofName: text) { return number }
            if self.options.ignoreUnknownFields { return nil }
            let hint = NearestNames.hint(for: text, among: type.values.map(\.name), all: true)
            throw MessageJSONError("\(type.name) has no value \(text.quotedInJSON)\(hint)")
        case .number:
            let number: Int32 = try ScalarJSON.integer(json, "a 32-bit integer, for \(type.name)")
            guard !type.isClosed || type.name(ofNumber: number) != nil else {
                if self.options.ignoreUnknownFields { return nil }
                throw MessageJSONError("\(type.name) has no value \(number)")
            }
            return number
        default: throw .expected("a value of \(type.name), by name or number", json)
        }
    }

    private func time(
        _ json: JSONValue,
        as type: MessageDescriptor,
        expected: String,
        _ parse: (String) -> CivilTime?
    ) throws(MessageJSONError) -> DynamicMessage {
        guard case .string(let text) = json else { throw .expected(expected, json) }
        guard let time = parse(text) else { throw ScalarJSON.expected(expected, text) }
        var message = DynamicMessage(type)
        message.set(0, .int64(time.seconds))
        message.set(1, .int32(time.nanos))
        return message
    }

    private static func unknown(_ name: String, _ type: MessageDescriptor) -> MessageJSONError {
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

extension EnumDescriptor {
    /// The name of the enumeration whose only value is null in JSON.
    static let nullValueName = "google.protobuf.NullValue"
}
