// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketMessage

/// A schema as text in the form of a `.proto`, but with full names.
struct SchemaText {
    private let schema: ProtoSchema

    init(_ schema: ProtoSchema) {
        self.schema = schema
    }

    func text(_ selection: SchemaSelection) -> String {
        let blocks =
            selection.services.map(Self.service) + selection.messages.map(self.message)
            + selection.enums.map(Self.enumeration) + self.extensions(selection.extensions)
        return blocks.joined(separator: "\n")
    }

    private static func service(_ service: ProtoService) -> String {
        var text = Self.comment(service.comment, indent: "") + "service \(service.name) {\n"
        for method in service.methods {
            let request = (method.requestIsStream ? "stream " : "") + method.request
            let response = (method.responseIsStream ? "stream " : "") + method.response
            text += Self.comment(method.comment, indent: "  ")
            text += "  rpc \(method.shortName)(\(request)) returns (\(response))"
            text += method.type.map { " { option (hhsocket.message_type) = \($0); }\n" } ?? ";  // has no number\n"
        }
        return text + "}\n"
    }

    private func message(_ message: ProtoMessage) -> String {
        var text = Self.comment(message.comment, indent: "") + "message \(message.name) {\n"
        if let type = message.pushType { text += "  option (hhsocket.push_type) = \(type);\n" }
        var shown: Set<String> = []
        for field in message.fields {
            guard let oneof = field.oneof else {
                text += self.field(field, indent: "  ")
                continue
            }
            guard shown.insert(oneof).inserted else { continue }
            text += "  oneof \(oneof) {\n"
            for member in message.fields where member.oneof == oneof { text += self.field(member, indent: "    ") }
            text += "  }\n"
        }
        return text + "}\n"
    }

    /// Returns a block for each extended message.
    private func extensions(_ extensions: [ProtoExtension]) -> [String] {
        Dictionary(grouping: extensions, by: \.extended).sorted { $0.key < $1.key }.map { extended, extensions in
            "extend \(extended) {\n" + extensions.map { self.field($0.field, indent: "  ") }.joined() + "}\n"
        }
    }

    private func field(_ field: ProtoField, indent: String) -> String {
        let label =
            switch field.presence {
            case .required: "required "
            case .repeated, .packed: field.isMap ? "" : "repeated "
            case .explicit: field.kind == .message ? "" : "optional "
            case .implicit, .oneof: ""
            }
        let type = field.typeText(in: self.schema)
        return Self.comment(field.comment, indent: indent)
            + "\(indent)\(label)\(type) \(field.name) = \(field.number);\n"
    }

    private static func enumeration(_ type: ProtoEnum) -> String {
        let values = type.values.map { "  \($0.name) = \($0.number);\n" }
        return Self.comment(type.comment, indent: "") + "enum \(type.name) {\n\(values.joined())}\n"
    }

    private static func comment(_ comment: String, indent: String) -> String {
        let lines = comment.split(separator: "\n").map { $0.trimmingCharacters(in: .whitespaces) }
        return lines.filter { !$0.isEmpty }.map { "\(indent)// \($0.escaped)\n" }.joined()
    }
}

extension ProtoField {
    /// The type as written in a `.proto`, such as `map<string, chat.Note>`.
    func typeText(in schema: ProtoSchema) -> String {
        guard let name = self.typeName else { return "\(self.kind)" }
        guard self.isMap, let entry = schema.messages[name], entry.fields.count == 2 else { return name }
        return "map<\(entry.fields[0].kind), \(entry.fields[1].typeText(in: schema))>"
    }
}
