import HHSocketMessage

/// Makes JSON of messages, by protobuf's rules for it.
struct MessageJSONWriter {
    private let schema: ProtoSchema
    /// Whether fields that are zero because nothing was sent are written too.
    private let emitsDefaults: Bool

    init(_ schema: ProtoSchema, emitsDefaults: Bool = false) {
        self.schema = schema
        self.emitsDefaults = emitsDefaults
    }

    /// - Parameter name: The message's full name.
    func json(_ message: DynamicMessage, named name: String) throws(MessageJSONError) -> JSONValue {
        // The schema has all that it names.
        guard let type = self.schema.messages[name] else { throw MessageJSONError("\(name) is not declared") }
        switch WellKnownType(type) {
        case .timestamp: return try self.time(message, type, \.timestamp)
        case .duration: return try self.time(message, type, \.duration)
        case .wrapper: return try self.json(self.value(message, 0, type), type.fields[0])
        case .unsupported: throw MessageJSONError("\(name) is not supported")
        case nil: return try self.object(message, type)
        }
    }

    private func object(_ message: DynamicMessage, _ type: ProtoMessage) throws(MessageJSONError) -> JSONValue {
        var members: [JSONValue.Member] = []
        for (index, field) in type.fields.enumerated() {
            do throws(MessageJSONError) {
                guard let value = try self.json(message[index], field) else { continue }
                members.append(.init(name: field.jsonName, value: value))
            } catch {
                throw error.within(.member(field.jsonName))
            }
        }
        return .object(members)
    }

    /// Nil for what is not written.
    private func json(_ value: DynamicMessage.Field?, _ field: ProtoField) throws(MessageJSONError) -> JSONValue? {
        switch value {
        case .value(let value): return try self.json(value, field)
        case .values(let values):
            return field.isMap ? try self.entries(values, field) : try self.elements(values, field)
        case nil:
            guard self.emitsDefaults else { return nil }
            if field.isMap { return .object([JSONValue.Member]()) }
            if field.isRepeated { return .array([]) }
            guard field.presence == .implicit, field.kind != .message else { return nil }
            return try self.json(.zero(of: field.kind, message: MessageDescriptor("", [])), field)
        }
    }

    private func elements(_ values: [DynamicValue], _ field: ProtoField) throws(MessageJSONError) -> JSONValue {
        var elements: [JSONValue] = []
        elements.reserveCapacity(values.count)
        for (index, value) in values.enumerated() {
            do throws(MessageJSONError) {
                elements.append(try self.json(value, field))
            } catch {
                throw error.within(.element(index))
            }
        }
        return .array(elements)
    }

    private func entries(_ values: [DynamicValue], _ field: ProtoField) throws(MessageJSONError) -> JSONValue {
        guard let type = field.typeName.flatMap({ self.schema.messages[$0] }) else { return .null }
        var members: [JSONValue.Member] = []
        // Of several entries with the same key the last one counts.
        var places: [String: Int] = [:]
        for case .message(let entry) in values {
            let key = MapKey.text(self.value(entry, 0, type))
            let member: JSONValue.Member
            do throws(MessageJSONError) {
                member = .init(name: key, value: try self.json(self.value(entry, 1, type), type.fields[1]))
            } catch {
                throw error.within(.key(key))
            }
            if let place = places[key] {
                members[place] = member
            } else {
                places[key] = members.count
                members.append(member)
            }
        }
        return .object(members)
    }

    /// One value.
    private func json(_ value: DynamicValue, _ field: ProtoField) throws(MessageJSONError) -> JSONValue {
        switch (value, field.kind) {
        case (.message(let message), _): return try self.json(message, named: field.typeName ?? "")
        case (.int32(let number), .enum):
            let values = field.typeName.flatMap { self.schema.enums[$0] }?.values ?? []
            return values.first { $0.number == number }.map { .string($0.name) } ?? .number(number)
        default: return ScalarJSON.json(value) ?? .null
        }
    }

    /// What a field that is not repeated holds, or zero.
    private func value(_ message: DynamicMessage, _ index: Int, _ type: ProtoMessage) -> DynamicValue {
        if case .value(let value) = message[index] { return value }
        let field = type.fields[index]
        let inner = field.typeName.flatMap { self.schema.messages[$0] }?.descriptor
        return .zero(of: field.kind, message: inner ?? type.descriptor)
    }

    private func time(
        _ message: DynamicMessage,
        _ type: ProtoMessage,
        _ text: (CivilTime) -> String?
    ) throws(MessageJSONError) -> JSONValue {
        var time = CivilTime(seconds: 0, nanos: 0)
        if case .value(.int64(let seconds)) = message[0] { time.seconds = seconds }
        if case .value(.int32(let nanos)) = message[1] { time.nanos = nanos }
        guard let text = text(time) else {
            throw MessageJSONError("\(time.seconds) s and \(time.nanos) ns are no \(type.name)")
        }
        return .string(text)
    }
}
