// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketMessage
import NIOConcurrencyHelpers
import SwiftProtobuf

/// Builds a schema from a descriptor set, which may be any bytes: anything that would cause trouble later is refused.
struct SchemaBuilder {
    private var schema = ProtoSchema()
    private let descriptors = DescriptorTable()
    /// The names of map entries, which are synthetic messages.
    private var mapEntries: Set<String> = []
    /// The names of messages whose extensions have proto1's encoding.
    private var messageSets: Set<String> = []

    /// - Parameter onlyLast: Whether only the last file was requested, and the others are its imports.
    static func schema(of descriptorSet: Data, onlyLast: Bool) throws(ProtoError) -> ProtoSchema {
        let set: Google_Protobuf_FileDescriptorSet
        var extensions = SimpleExtensionMap()
        extensions.insert(contentsOf: CustomOptions.all)
        do {
            set = try Google_Protobuf_FileDescriptorSet(serializedBytes: descriptorSet, extensions: extensions)
        } catch {
            throw ProtoError("it is not a descriptor set written by protoc --descriptor_set_out")
        }
        guard let last = set.file.last else { throw ProtoError("it holds no files") }
        var builder = Self()
        // First, since the kinds of fields depend on them.
        for file in set.file { builder.findSpecialMessages(file.messageType, in: file.package) }
        for file in set.file {
            let isOwn = !file.name.hasPrefix("google/protobuf/") && file.name != "hhsocket/options.proto"
            try builder.add(file, isAskedFor: onlyLast ? file.name == last.name : isOwn)
        }
        try builder.checkReferences()
        try builder.checkExtensions()
        return builder.schema
    }

    private mutating func findSpecialMessages(_ messages: [Google_Protobuf_DescriptorProto], in scope: String) {
        for message in messages {
            let name = Self.join(scope, message.name)
            if message.options.mapEntry { self.mapEntries.insert(name) }
            if message.options.messageSetWireFormat { self.messageSets.insert(name) }
            self.findSpecialMessages(message.nestedType, in: name)
        }
    }

    private mutating func add(_ file: Google_Protobuf_FileDescriptorProto, isAskedFor: Bool) throws(ProtoError) {
        guard let features = ProtoFeatures(file) else {
            throw ProtoError(
                "\(file.name): only proto2, proto3 and the editions 2023 and 2024 are supported, not \(file.syntax)"
            )
        }
        let comments = ProtoComments(file)
        let origin = ProtoFile(name: file.name, package: file.package, isAskedFor: isAskedFor, features: features)
        self.schema.files.append(origin)
        for (index, message) in file.messageType.enumerated() {
            try self.add(message, in: file.package, file: origin, features: features, comments: comments[4, index])
        }
        for (index, declaration) in file.enumType.enumerated() {
            try self.add(declaration, in: file.package, file: origin, features: features, comments: comments[5, index])
        }
        for (index, field) in file.extension.enumerated() {
            try self.add(field, in: file.package, file: origin, features: features, comment: comments[7, index].own)
        }
        for (index, service) in file.service.enumerated() {
            self.schema.services.append(Self.service(service, in: file, comments: comments[6, index]))
        }
    }

    private mutating func add(
        _ message: Google_Protobuf_DescriptorProto,
        in scope: String,
        file: ProtoFile,
        features outer: ProtoFeatures,
        comments: ProtoComments
    ) throws(ProtoError) {
        let name = Self.join(scope, message.name)
        let features = outer.overridden(by: message.options.features)
        // protobuf's own limit.
        guard comments.depth <= 32 else { throw ProtoError("\(file.name): messages are nested too deeply") }
        guard self.schema.messages[name] == nil else { throw ProtoError("\(file.name): \(name) is declared twice") }
        for (index, inner) in message.nestedType.enumerated() {
            try self.add(inner, in: name, file: file, features: features, comments: comments[3, index])
        }
        for (index, declaration) in message.enumType.enumerated() {
            try self.add(declaration, in: name, file: file, features: features, comments: comments[4, index])
        }
        for (index, field) in message.extension.enumerated() {
            try self.add(field, in: name, file: file, features: features, comment: comments[6, index].own)
        }
        let builder = MessageBuilder(message, name, file: file, features: features, mapEntries: self.mapEntries)
        var fields: [ProtoField] = []
        for (index, field) in message.field.enumerated() {
            fields.append(try builder.field(field, comment: comments[2, index].own))
        }
        fields.sort { $0.number < $1.number }
        let descriptor = try builder.descriptor(fields, self.descriptors)
        self.descriptors.add(descriptor)
        self.schema.messages[name] = ProtoMessage(
            name: name,
            file: file.name,
            comment: comments.own,
            fields: fields,
            isMapEntry: message.options.mapEntry,
            pushType: message.options.getExtensionValue(ext: CustomOptions.pushType),
            descriptor: descriptor,
            codec: MessageCodec(descriptor)
        )
    }

    private mutating func add(
        _ declaration: Google_Protobuf_EnumDescriptorProto,
        in scope: String,
        file: ProtoFile,
        features outer: ProtoFeatures,
        comments: ProtoComments
    ) throws(ProtoError) {
        let name = Self.join(scope, declaration.name)
        guard self.schema.enums[name] == nil else { throw ProtoError("\(file.name): \(name) is declared twice") }
        let type = ProtoEnum(
            name: name,
            file: file.name,
            comment: comments.own,
            values: declaration.value.map { .init(name: $0.name, number: $0.number) },
            isClosed: outer.overridden(by: declaration.options.features).hasClosedEnums
        )
        self.schema.enums[name] = type
        let values = type.values.map { EnumDescriptor.Value(name: $0.name, number: $0.number) }
        self.descriptors.add(EnumDescriptor(name, values, isClosed: type.isClosed))
    }

    private mutating func add(
        _ extension: Google_Protobuf_FieldDescriptorProto,
        in scope: String,
        file: ProtoFile,
        features: ProtoFeatures,
        comment: String
    ) throws(ProtoError) {
        let extended = Self.fullName(`extension`.extendee)
        let isItem = self.messageSets.contains(extended)
        // It is a field of no message here.
        let builder = MessageBuilder(.init(), extended, file: file, features: features, mapEntries: self.mapEntries)
        var field = try builder.field(`extension`, comment: comment, isMessageSetItem: isItem)
        field.name = Self.join(scope, `extension`.name)
        field.jsonName = "[\(field.name)]"
        // Extensions have presence in proto3, too.
        if field.presence == .implicit { field.presence = .explicit }
        let descriptor = MessageBuilder.descriptor(field, self.descriptors)
        self.schema.extensions.append(
            ProtoExtension(
                extended: extended,
                file: file.name,
                field: field,
                declaration: .init(ofMessage: extended, descriptor, isMessageSetItem: isItem)
            )
        )
    }

    private static func service(
        _ service: Google_Protobuf_ServiceDescriptorProto,
        in file: Google_Protobuf_FileDescriptorProto,
        comments: ProtoComments
    ) -> ProtoService {
        let name = Self.join(file.package, service.name)
        let methods = service.method.enumerated().map { index, method in
            ProtoMethod(
                name: "\(name)/\(method.name)",
                comment: comments[2, index].own,
                request: Self.fullName(method.inputType),
                response: Self.fullName(method.outputType),
                requestIsStream: method.clientStreaming,
                responseIsStream: method.serverStreaming,
                type: method.options.getExtensionValue(ext: CustomOptions.messageType)
            )
        }
        return ProtoService(name: name, file: file.name, comment: comments.own, methods: methods)
    }

    /// Checks that all referenced types are declared.
    private func checkReferences() throws(ProtoError) {
        for message in self.schema.messages.values {
            for field in message.fields {
                try self.checkType(of: field, "\(message.name).\(field.name)")
                if field.isMap, self.schema.messages[field.typeName ?? ""]?.isEntryOfAMap != true {
                    throw ProtoError("\(message.name).\(field.name) is not a valid protobuf map")
                }
            }
        }
        for method in self.schema.services.flatMap(\.methods) {
            for type in [method.request, method.response] where self.schema.messages[type] == nil {
                throw Self.missing(type, method.name)
            }
        }
    }

    /// Checks that the message or enumeration of a field, if it has one, is declared.
    ///
    /// - Parameter name: The full name of the field, for the error.
    private func checkType(of field: ProtoField, _ name: String) throws(ProtoError) {
        guard let type = field.typeName else { return }
        let isThere = field.kind == .enum ? self.schema.enums[type] != nil : self.schema.messages[type] != nil
        guard isThere else { throw Self.missing(type, name) }
    }

    /// Checks the extensions, whose names and numbers must be unique, and leaves out those of messages that are not in
    /// the set, as of protobuf's own options in a set without imports.
    private mutating func checkExtensions() throws(ProtoError) {
        self.schema.extensions.removeAll { self.schema.messages[$0.extended] == nil }
        var names: Set<String> = []
        var numbers: [String: Set<UInt32>] = [:]
        for `extension` in self.schema.extensions {
            let (field, extended) = (`extension`.field, `extension`.extended)
            guard names.insert(field.name).inserted else {
                throw ProtoError("\(`extension`.file): \(field.name) is declared twice")
            }
            let isUsed = self.schema.messages[extended]?.fields.contains { $0.number == field.number } == true
            guard !isUsed, numbers[extended, default: []].insert(field.number).inserted else {
                throw ProtoError(
                    "\(`extension`.file): \(field.name): \(extended) has another field with the number \(field.number)"
                )
            }
            try self.checkType(of: field, field.name)
            guard !field.isMap else { throw ProtoError("\(field.name): an extension cannot be a map") }
        }
    }

    private static func missing(_ type: String, _ user: String) -> ProtoError {
        ProtoError("\(user) is of \(type), which is not in it; write it with --include_imports")
    }

    private static func join(_ scope: String, _ name: String) -> String { scope.isEmpty ? name : "\(scope).\(name)" }

    /// Returns a full name without the dot that descriptor sets put before it.
    static func fullName(_ name: String) -> String { name.hasPrefix(".") ? String(name.dropFirst()) : name }
}

extension ProtoMessage {
    /// Whether it has a key and a value, with a valid kind of key.
    fileprivate var isEntryOfAMap: Bool {
        guard self.fields.map(\.number) == [1, 2], !self.fields.contains(where: \.isRepeated) else { return false }
        switch self.fields[0].kind {
        case .float, .double, .bytes, .enum, .message: return false
        default: return true
        }
    }
}

/// The descriptors by name, which fields look up when they are first used.
final class DescriptorTable: Sendable {
    private struct Descriptors {
        var messages: [String: MessageDescriptor] = [:]
        var enums: [String: EnumDescriptor] = [:]
    }

    private static let noMessage = MessageDescriptor("", [])
    private static let noEnum = EnumDescriptor("", [])
    private let descriptors = NIOLockedValueBox(Descriptors())

    func add(_ descriptor: MessageDescriptor) {
        self.descriptors.withLockedValue { $0.messages[descriptor.name] = descriptor }
    }

    func add(_ descriptor: EnumDescriptor) {
        self.descriptors.withLockedValue { $0.enums[descriptor.name] = descriptor }
    }

    /// The message with this name, which ``SchemaBuilder`` has checked to exist.
    func message(_ name: String) -> MessageDescriptor {
        self.descriptors.withLockedValue { $0.messages[name] } ?? Self.noMessage
    }

    /// The enumeration with this name, which ``SchemaBuilder`` has checked to exist.
    func enumeration(_ name: String) -> EnumDescriptor {
        self.descriptors.withLockedValue { $0.enums[name] } ?? Self.noEnum
    }
}
