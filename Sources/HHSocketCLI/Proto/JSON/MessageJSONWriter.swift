import Foundation
import HHSocketMessage

/// A writer of messages in protobuf's JSON. Parts without a JSON form are written as their plain fields or in Base64,
/// each with an error, so that the rest of the message is not lost.
struct MessageJSONWriter {
    /// The number of errors that are kept; further ones are only counted.
    private static let maximumErrors = 10
    /// The depth beyond which an `Any` is not decoded. The decoder bounds the depth of each message, but not that of
    /// messages within the bytes of others.
    private static let maximumDepth = 100

    private let schema: ProtoSchema
    /// Whether absent fields are written too, as zero.
    private let emitsDefaults: Bool
    /// The path of the value that is being written.
    private var path: [MessageJSONError.Step] = []
    private var firstErrors: [MessageJSONError] = []
    private var furtherErrors = 0

    init(_ schema: ProtoSchema, emitsDefaults: Bool = false) {
        self.schema = schema
        self.emitsDefaults = emitsDefaults
    }

    /// The parts of the messages so far that have no JSON form.
    var faults: [String] {
        self.firstErrors.map(\.description)
            + (self.furtherErrors == 0 ? [] : ["and \(self.furtherErrors) more parts"])
    }

    /// - Parameter type: The message's type, of this writer's schema.
    mutating func json(_ message: DynamicMessage, _ type: ProtoMessage) -> JSONValue {
        switch WellKnownType(type) {
        case .timestamp: return self.time(message, type, \.timestamp)
        case .duration: return self.time(message, type, \.duration)
        case .wrapper: return self.json(self.value(message, 0, type), type.fields[0])
        case .any: return self.any(message)
        case .object: return self.json(message[0], type.fields[0]) ?? .object([JSONValue.Member]())
        case .list: return self.json(message[0], type.fields[0]) ?? .array([])
        case .value: return self.anyValue(message, type)
        case .fieldMask: return self.fieldMask(message, type)
        case nil: return self.object(message, type)
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

    private mutating func object(_ message: DynamicMessage, _ type: ProtoMessage) -> JSONValue {
        var members: [JSONValue.Member] = []
        for (index, field) in type.fields.enumerated() {
            let value = self.at(.member(field.jsonName)) { $0.json(message[index], field) }
            if let value { members.append(.init(name: field.jsonName, value: value)) }
        }
        return .object(members)
    }

    /// Returns a field's value; nil if it is not written.
    private mutating func json(_ value: DynamicMessage.Field?, _ field: ProtoField) -> JSONValue? {
        switch value {
        case .value(let value): return self.json(value, field)
        case .values(let values): return field.isMap ? self.entries(values, field) : self.elements(values, field)
        case nil:
            guard self.emitsDefaults else { return nil }
            if field.isMap { return .object([JSONValue.Member]()) }
            if field.isRepeated { return .array([]) }
            guard field.presence == .implicit, field.kind != .message else { return nil }
            return self.json(.zero(of: field.kind, message: MessageDescriptor("", [])), field)
        }
    }

    private mutating func elements(_ values: [DynamicValue], _ field: ProtoField) -> JSONValue {
        var elements: [JSONValue] = []
        elements.reserveCapacity(values.count)
        for (index, value) in values.enumerated() {
            elements.append(self.at(.element(index)) { $0.json(value, field) })
        }
        return .array(elements)
    }

    private mutating func entries(_ values: [DynamicValue], _ field: ProtoField) -> JSONValue {
        guard let type = field.typeName.flatMap({ self.schema.messages[$0] }) else { return .null }
        var members: [JSONValue.Member] = []
        // The last of several entries with the same key counts.
        var places: [String: Int] = [:]
        for case .message(let entry) in values {
            let key = MapKey.text(self.value(entry, 0, type))
            let value = self.at(.key(key)) { $0.json($0.value(entry, 1, type), type.fields[1]) }
            let member = JSONValue.Member(name: key, value: value)
            if let place = places[key] {
                members[place] = member
            } else {
                places[key] = members.count
                members.append(member)
            }
        }
        return .object(members)
    }

    /// Returns one value.
    private mutating func json(_ value: DynamicValue, _ field: ProtoField) -> JSONValue {
        switch (value, field.kind) {
        case (.message(let message), _):
            // A schema contains every message that it refers to.
            return field.typeName.flatMap { self.schema.messages[$0] }.map { self.json(message, $0) } ?? .null
        case (.int32(let number), .enum):
            if field.typeName == "google.protobuf.NullValue" { return .null }
            let values = field.typeName.flatMap { self.schema.enums[$0] }?.values ?? []
            return values.first { $0.number == number }.map { .string($0.name) } ?? .number(number)
        default: return ScalarJSON.json(value) ?? .null
        }
    }

    /// Returns the value of a field that is not repeated, or zero.
    private func value(_ message: DynamicMessage, _ index: Int, _ type: ProtoMessage) -> DynamicValue {
        if case .value(let value) = message[index] { return value }
        let field = type.fields[index]
        let inner = field.typeName.flatMap { self.schema.messages[$0] }?.descriptor
        return .zero(of: field.kind, message: inner ?? type.descriptor)
    }

    // MARK: Forms of their own

    private mutating func time(
        _ message: DynamicMessage,
        _ type: ProtoMessage,
        _ text: (CivilTime) -> String?
    ) -> JSONValue {
        var time = CivilTime(seconds: 0, nanos: 0)
        if case .value(.int64(let seconds)) = message[0] { time.seconds = seconds }
        if case .value(.int32(let nanos)) = message[1] { time.nanos = nanos }
        if let text = text(time) { return .string(text) }
        self.complain("\(time.seconds) s and \(time.nanos) ns are out of the range of \(type.name)")
        return self.object(message, type)
    }

    /// Returns the message's members with `@type`, or its special form as `value`. If the schema does not have the
    /// type, `value` is the message's bytes in Base64.
    private mutating func any(_ message: DynamicMessage) -> JSONValue {
        var url = ""
        var bytes = Data()
        if case .value(.string(let text)) = message[0] { url = text }
        if case .value(.bytes(let value)) = message[1] { bytes = value }
        if url.isEmpty, bytes.isEmpty { return .object([JSONValue.Member]()) }
        let undecoded = JSONValue.object(["@type": .string(url), "value": .string(bytes.base64EncodedString())])
        guard let type = self.schema.type(ofURL: url) else { return undecoded }
        guard self.path.count < Self.maximumDepth else {
            self.complain("messages lie too deep in one another to decode this one")
            return undecoded
        }
        let inner: DynamicMessage
        do {
            inner = try bytes.withUnsafeBytes { bytes in
                Result { try DynamicMessage(type.descriptor, serializedBytes: bytes) }
            }
            .get()
        } catch {
            self.complain("the value cannot be read as \(type.name): \(error)")
            return undecoded
        }
        let name = JSONValue.Member(name: "@type", value: .string(url))
        if WellKnownType(type) == nil, case .object(let members) = self.json(inner, type) {
            return .object([name] + members)
        }
        let value = self.at(.member("value")) { $0.json(inner, type) }
        return .object([name, .init(name: "value", value: value)])
    }

    private mutating func anyValue(_ message: DynamicMessage, _ type: ProtoMessage) -> JSONValue {
        for (index, field) in type.fields.enumerated() {
            guard case .value(let value) = message[index] else { continue }
            if field.kind == .enum { return .null }
            if case .double(let number) = value, !number.isFinite {
                self.complain("\(number) cannot be a \(type.name) in JSON")
            }
            return self.json(value, field)
        }
        return .null
    }

    private mutating func fieldMask(_ message: DynamicMessage, _ type: ProtoMessage) -> JSONValue {
        var paths: [String] = []
        if case .values(let values) = message[0] {
            for case .string(let path) in values { paths.append(path) }
        }
        if let text = FieldMaskJSON.text(paths) { return .string(text) }
        self.complain("a path would not be the same after \(type.name)'s camel case")
        return self.object(message, type)
    }
}
