// SPDX-License-Identifier: Apache-2.0
import HHSocketFoundation

/// A writer of messages in protobuf's JSON. Parts without a JSON form are written as their plain fields or in Base64,
/// each with an error, so that the rest of the message is not lost.
package struct MessageJSONWriter {
    /// The number of errors that are kept; further ones are only counted.
    private static let maximumErrors = 10
    /// The depth beyond which an `Any`, and the extensions of a message, are not decoded. The decoder bounds the depth
    /// of each message, but not that of messages within the bytes of others.
    private static let maximumDepth = 100

    private let options: MessageJSON.EncodingOptions
    /// The path of the value that is being written.
    private var path: [MessageJSONError.Step] = []
    private var firstErrors: [MessageJSONError] = []
    private var furtherErrors = 0

    package init(_ options: MessageJSON.EncodingOptions) {
        self.options = options
    }

    /// The parts of the messages so far that have no JSON form.
    package var faults: [String] {
        self.firstErrors.map(\.description)
            + (self.furtherErrors == 0 ? [] : ["and \(self.furtherErrors) more parts"])
    }

    /// The first part that has no JSON form; nil if all have one.
    var firstFault: MessageJSONError? { self.firstErrors.first }

    package mutating func json(_ message: DynamicMessage) -> JSONValue {
        let fields = message.descriptor.fields
        switch message.descriptor.wellKnownForm {
        case .timestamp: return self.time(message, \.timestamp)
        case .duration: return self.time(message, \.duration)
        case .wrapper: return self.json(Self.value(message, 0), fields[0])
        case .any: return self.any(message)
        case .object: return self.json(message[0], fields[0]) ?? .object([JSONValue.Member]())
        case .list: return self.json(message[0], fields[0]) ?? .array([])
        case .value: return self.anyValue(message)
        case .fieldMask: return self.fieldMask(message)
        case nil: return self.object(message)
        }
    }

    private mutating func complain(_ error: String) {
        guard self.firstErrors.count < Self.maximumErrors else { return self.furtherErrors += 1 }
        self.firstErrors.append(MessageJSONError(error, at: self.path))
    }

    private mutating func at<Result>(_ step: MessageJSONError.Step, _ body: (inout Self) -> Result) -> Result {
        self.path.append(step)
        defer { self.path.removeLast() }
        return body(&self)
    }

    private mutating func object(_ message: DynamicMessage) -> JSONValue {
        var members: [JSONValue.Member] = []
        for (index, field) in message.descriptor.fields.enumerated() {
            let name = self.options.preserveProtoFieldNames ? field.name : field.jsonName
            let value = self.at(.member(name)) { $0.json(message[index], field) }
            if let value { members.append(.init(name: name, value: value)) }
        }
        return .object(members + self.extensions(of: message))
    }

    private mutating func extensions(of message: DynamicMessage) -> [JSONValue.Member] {
        guard self.options.types.extensions.mayHaveValues(message) else { return [] }
        guard self.path.count < Self.maximumDepth else {
            self.complain("messages lie too deep in one another to decode the extensions of this one")
            return []
        }
        var members: [JSONValue.Member] = []
        for (entry, value) in self.options.types.extensions.values(of: message) {
            let name = entry.field.jsonName
            let json = self.at(.member(name)) { writer -> JSONValue? in
                switch value {
                case .success(let value): return writer.json(value, entry.field)
                case .failure(let error):
                    writer.complain("the value of the extension cannot be read: \(error)")
                    return nil
                }
            }
            if let json { members.append(.init(name: name, value: json)) }
        }
        return members
    }

    /// Returns a field's value; nil if it is not written.
    private mutating func json(_ value: DynamicMessage.Field?, _ field: FieldDescriptor) -> JSONValue? {
        switch value {
        case .value(let value): return self.json(value, field)
        case .values(let values): return field.isMap ? self.entries(values, field) : self.elements(values, field)
        case nil:
            guard self.options.alwaysPrintFieldsWithNoPresence else { return nil }
            if field.isMap { return .object([JSONValue.Member]()) }
            if field.isRepeated { return .array([]) }
            guard field.presence == .implicit, field.kind != .message else { return nil }
            return self.json(.zero(of: field), field)
        }
    }

    private mutating func elements(_ values: [DynamicValue], _ field: FieldDescriptor) -> JSONValue {
        var elements: [JSONValue] = []
        elements.reserveCapacity(values.count)
        for (index, value) in values.enumerated() {
            elements.append(self.at(.element(index)) { $0.json(value, field) })
        }
        return .array(elements)
    }

    private mutating func entries(_ values: [DynamicValue], _ field: FieldDescriptor) -> JSONValue {
        guard let type = field.message else { return .null }
        var members: [JSONValue.Member] = []
        // The last of several entries with the same key counts.
        var indices: [String: Int] = [:]
        for case .message(let entry) in values {
            let key = MapKey.text(Self.value(entry, 0))
            let value = self.at(.key(key)) { $0.json(Self.value(entry, 1), type.fields[1]) }
            let member = JSONValue.Member(name: key, value: value)
            if let index = indices[key] {
                members[index] = member
            } else {
                indices[key] = members.count
                members.append(member)
            }
        }
        return .object(members)
    }

    /// Returns one value.
    private mutating func json(_ value: DynamicValue, _ field: FieldDescriptor) -> JSONValue {
        switch value {
        case .message(let message): return self.json(message)
        case .int32(let number) where field.kind == .enum:
            if field.enumeration?.name == EnumDescriptor.nullValueName { return .null }
            guard !self.options.alwaysPrintEnumsAsInts else { return .number(number) }
            return field.enumeration?.name(ofNumber: number).map { .string($0) } ?? .number(number)
        case .int64(let number) where self.options.alwaysPrintInt64sAsNumbers: return .number(number)
        case .uint64(let number) where self.options.alwaysPrintInt64sAsNumbers: return .number(number)
        default: return ScalarJSON.json(value) ?? .null
        }
    }

    /// Returns the value of a field that is not repeated, or zero.
    private static func value(_ message: DynamicMessage, _ index: Int) -> DynamicValue {
        if case .value(let value) = message[index] { return value }
        return .zero(of: message.descriptor.fields[index])
    }

    // MARK: Special forms

    private mutating func time(_ message: DynamicMessage, _ text: (CivilTime) -> String?) -> JSONValue {
        var time = CivilTime(seconds: 0, nanos: 0)
        if case .value(.int64(let seconds)) = message[0] { time.seconds = seconds }
        if case .value(.int32(let nanos)) = message[1] { time.nanos = nanos }
        if let text = text(time) { return .string(text) }
        self.complain("\(time.seconds) s and \(time.nanos) ns are out of the range of \(message.descriptor.name)")
        return self.object(message)
    }

    /// Returns the message's members with `@type`, or its special form as `value`. If the type is not
    /// known, `value` is the message's bytes in Base64.
    private mutating func any(_ message: DynamicMessage) -> JSONValue {
        var url = ""
        var bytes = Data()
        if case .value(.string(let text)) = message[0] { url = text }
        if case .value(.bytes(let value)) = message[1] { bytes = value }
        if url.isEmpty, bytes.isEmpty { return .object([JSONValue.Member]()) }
        let undecoded = JSONValue.object(["@type": .string(url), "value": .string(bytes.base64EncodedString())])
        guard let type = self.options.types.type(ofURL: url) else {
            if !self.options.acceptsUndeclaredTypes {
                self.complain("the type of \(url.quotedInJSON) is not among the options' types")
            }
            return undecoded
        }
        guard self.path.count < Self.maximumDepth else {
            self.complain("messages lie too deep in one another to decode this one")
            return undecoded
        }
        let inner: DynamicMessage
        do {
            inner = try DynamicMessage(type, serializedBytes: Array(bytes))
        } catch {
            self.complain("the value cannot be read as \(type.name): \(error)")
            return undecoded
        }
        let name = JSONValue.Member(name: "@type", value: .string(url))
        if type.wellKnownForm == nil, case .object(let members) = self.json(inner) {
            return .object([name] + members)
        }
        let value = self.at(.member("value")) { $0.json(inner) }
        return .object([name, .init(name: "value", value: value)])
    }

    private mutating func anyValue(_ message: DynamicMessage) -> JSONValue {
        for (index, field) in message.descriptor.fields.enumerated() {
            guard case .value(let value) = message[index] else { continue }
            if field.kind == .enum { return .null }
            if case .double(let number) = value, !number.isFinite {
                self.complain("\(number) cannot be a \(message.descriptor.name) in JSON")
            }
            return self.json(value, field)
        }
        return .null
    }

    private mutating func fieldMask(_ message: DynamicMessage) -> JSONValue {
        var paths: [String] = []
        if case .values(let values) = message[0] {
            for case .string(let path) in values { paths.append(path) }
        }
        if let text = FieldMaskJSON.text(paths) { return .string(text) }
        self.complain("a path would not be the same after \(message.descriptor.name)'s camel case")
        return self.object(message)
    }
}
