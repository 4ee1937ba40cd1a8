// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage

/// A schema as one JSON object, for programs.
struct SchemaJSON {
    private let schema: ProtoSchema

    init(_ schema: ProtoSchema) {
        self.schema = schema
    }

    func json(_ selection: SchemaSelection) -> JSONValue {
        .object([
            "services": .array(selection.services.map(Self.service)),
            "messages": .array(selection.messages.map(self.message)),
            "enums": .array(selection.enums.map(Self.enumeration)),
            "extensions": .array(selection.extensions.map(self.`extension`)),
        ])
    }

    private static func service(_ service: ProtoService) -> JSONValue {
        let methods = service.methods.map { method in
            JSONValue.object([
                "name": .string(method.name),
                "type": method.type.map { .number($0) },
                "kind": .string(method.kind),
                "request": .string(method.request),
                "response": .string(method.response),
            ])
        }
        return .object([
            "name": .string(service.name),
            "file": .string(service.file),
            "methods": .array(methods),
        ])
    }

    private func message(_ message: ProtoMessage) -> JSONValue {
        let fields = message.fields.map { field in
            JSONValue.object([
                "name": .string(field.name),
                "jsonName": .string(field.jsonName),
                "number": .number(field.number),
                "type": .string(field.typeText(in: self.schema)),
                "presence": .string(Self.presence(field)),
                "oneof": field.oneof.map { .string($0) },
            ])
        }
        return .object([
            "name": .string(message.name),
            "file": .string(message.file),
            "pushType": message.pushType.map { .number($0) },
            "fields": .array(fields),
        ])
    }

    private func `extension`(_ extension: ProtoExtension) -> JSONValue {
        let field = `extension`.field
        return .object([
            "name": .string(field.name),
            "extends": .string(`extension`.extended),
            "file": .string(`extension`.file),
            "number": .number(field.number),
            "type": .string(field.typeText(in: self.schema)),
            "presence": .string(Self.presence(field)),
        ])
    }

    private static func presence(_ field: ProtoField) -> String {
        switch field.presence {
        case .implicit: "implicit"
        case .explicit: "explicit"
        case .required: "required"
        case .repeated, .packed: field.isMap ? "map" : "repeated"
        case .oneof: "oneof"
        }
    }

    private static func enumeration(_ type: ProtoEnum) -> JSONValue {
        let values = type.values.map { value in
            JSONValue.object(["name": .string(value.name), "number": .number(value.number)])
        }
        return .object(["name": .string(type.name), "file": .string(type.file), "values": .array(values)])
    }
}
