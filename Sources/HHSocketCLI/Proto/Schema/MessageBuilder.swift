// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage
import SwiftProtobuf

/// Builds the fields of one message, and its descriptor.
struct MessageBuilder {
    private let message: Google_Protobuf_DescriptorProto
    private let name: String
    private let file: ProtoFile
    private let features: ProtoFeatures
    private let mapEntries: Set<String>
    /// The index of each oneof among those in the source. proto3's `optional` declares synthetic ones.
    private let oneofs: [Int32: Int]

    init(
        _ message: Google_Protobuf_DescriptorProto,
        _ name: String,
        file: ProtoFile,
        features: ProtoFeatures,
        mapEntries: Set<String>
    ) {
        self.message = message
        self.name = name
        self.file = file
        self.features = features
        self.mapEntries = mapEntries
        let written = Set(message.field.filter { $0.hasOneofIndex && !$0.proto3Optional }.map(\.oneofIndex)).sorted()
        self.oneofs = Dictionary(uniqueKeysWithValues: zip(written, 0...))
    }

    func field(
        _ field: Google_Protobuf_FieldDescriptorProto,
        comment: String,
        isMessageSetItem: Bool = false
    ) throws(ProtoError) -> ProtoField {
        // The numbers of a message set's items are no numbers of fields on the wire.
        guard (1...(isMessageSetItem ? .max - 1 : 536_870_911)).contains(field.number) else {
            throw self.error(field, "cannot have the number \(field.number)")
        }
        let features = self.features.overridden(by: field.options.features)
        let kind = try self.kind(field)
        var oneof: String?
        if field.hasOneofIndex, !field.proto3Optional {
            guard self.message.oneofDecl.indices.contains(Int(field.oneofIndex)), field.label == .optional else {
                throw self.error(field, "cannot be in a oneof")
            }
            oneof = self.message.oneofDecl[Int(field.oneofIndex)].name
        }
        let typeName = kind == .message || kind == .enum ? SchemaBuilder.fullName(field.typeName) : nil
        return ProtoField(
            name: field.name,
            jsonName: field.hasJsonName ? field.jsonName : FieldDescriptor.jsonName(of: field.name),
            number: UInt32(field.number),
            kind: kind,
            presence: self.presence(of: field, kind: kind, features: features),
            comment: comment,
            typeName: typeName,
            isMap: field.label == .repeated && typeName.map(self.mapEntries.contains) == true,
            // A map's entries and their values have a length whatever the features are.
            isGroup: field.type == .group
                || kind == .message && features.hasGroups && !self.message.options.mapEntry
                    && typeName.map(self.mapEntries.contains) != true,
            oneof: oneof
        )
    }

    func descriptor(_ fields: [ProtoField], _ table: DescriptorTable) throws(ProtoError) -> MessageDescriptor {
        for (field, next) in zip(fields, fields.dropFirst()) where field.number == next.number {
            throw ProtoError("\(self.file.name): \(self.name) has two fields with the number \(field.number)")
        }
        let oneofs = self.oneofs.sorted { $0.value < $1.value }.map { self.message.oneofDecl[Int($0.key)].name }
        let descriptors = fields.map { Self.descriptor($0, table) }
        return MessageDescriptor(self.name, oneofs: oneofs, descriptors, isMapEntry: self.message.options.mapEntry)
    }

    static func descriptor(_ field: ProtoField, _ table: DescriptorTable) -> FieldDescriptor {
        let name = field.typeName ?? ""
        let type: (@Sendable () -> TypeDescriptor)? =
            switch field.kind {
            case .message: { .message(table.message(name)) }
            case .enum: { .enumeration(table.enumeration(name)) }
            default: nil
            }
        return .init(
            field.name,
            jsonName: field.jsonName,
            number: field.number,
            kind: field.kind,
            presence: field.presence,
            isGroup: field.isGroup,
            type: type
        )
    }

    private func presence(
        of field: Google_Protobuf_FieldDescriptorProto,
        kind: FieldKind,
        features: ProtoFeatures
    ) -> FieldDescriptor.Presence {
        switch field.label {
        case .required: return .required
        case .repeated:
            let isPacked = field.options.hasPacked ? field.options.packed : features.isPacked
            let isPackable = kind != .message && kind != .string && kind != .bytes
            return isPacked && isPackable ? .packed : .repeated
        case .optional:
            if field.hasOneofIndex, let oneof = self.oneofs[field.oneofIndex], !field.proto3Optional {
                return .oneof(oneof)
            }
            if features.presence == .legacyRequired { return .required }
            let isImplicit =
                features.presence == .implicit && !field.proto3Optional && kind != .message
                && !self.message.options.mapEntry
            return isImplicit ? .implicit : .explicit
        }
    }

    private func kind(_ field: Google_Protobuf_FieldDescriptorProto) throws(ProtoError) -> FieldKind {
        switch field.type {
        case .double: .double
        case .float: .float
        case .int64: .int64
        case .uint64: .uint64
        case .int32: .int32
        case .fixed64: .fixed64
        case .fixed32: .fixed32
        case .bool: .bool
        case .string: .string
        case .message, .group: .message
        case .bytes: .bytes
        case .uint32: .uint32
        case .enum: .enum
        case .sfixed32: .sfixed32
        case .sfixed64: .sfixed64
        case .sint32: .sint32
        case .sint64: .sint64
        }
    }

    private func error(_ field: Google_Protobuf_FieldDescriptorProto, _ reason: String) -> ProtoError {
        ProtoError("\(self.file.name): \(self.name).\(field.name) \(reason)")
    }
}
