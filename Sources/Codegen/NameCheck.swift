// SPDX-License-Identifier: Apache-2.0
import Foundation
import SwiftProtobuf
import SwiftProtobufPluginLibrary

/// Finds names that are distinct in protobuf and identical in Swift.
struct NameCheck {
    private(set) var diagnostics: [Diagnostic] = []
    private let context: Context
    private var namer: SwiftProtobufNamer { self.context.names.namer }

    init(_ context: Context) {
        self.context = context
        self.checkFile()
        if context.generatesMessages {
            for message in context.file.messages { self.check(message, hidden: []) }
        }
        if context.generatesServices {
            for service in context.file.services { self.check(service) }
        }
    }

    /// Checks that top-level types and services do not share names with each other or with modules.
    private mutating func checkFile() {
        var names: Set = [Names.runtime, "HHSocketRPC", "HHSocketServer"]
        names.formUnion(ModuleImports(self.context).used)
        let prefix = self.context.file.options.swiftPrefix
        if !prefix.isEmpty, !isValidSwiftIdentifier(prefix) {
            let path = IndexPath(indexes: [DescriptorPaths.fileOptions, DescriptorPaths.swiftPrefix])
            let position = SourcePosition(in: self.context.file, [path])
            self.diagnostics.append(
                Diagnostic(at: position, "swift_prefix \"\(prefix)\" does not begin a name in Swift")
            )
        }
        if self.context.generatesMessages {
            for declared in self.context.file.enums {
                self.add(self.namer.relativeName(enum: declared), of: declared, declared.fullName, to: &names)
            }
            for message in self.context.file.messages {
                self.add(self.namer.relativeName(message: message), of: message, message.fullName, to: &names)
            }
        }
        guard self.context.generatesServices else { return }
        for service in self.context.file.services {
            self.add(self.context.names.service(service), of: service, service.fullName, to: &names)
        }
    }

    /// - Parameter hidden: The names of types declared in the enclosing messages, which hide those of the file.
    private mutating func check(_ message: Descriptor, hidden: Set<String>) {
        let taken: Set = ["messageDescriptor", "pushType", "unknownFields", HeapNames.type, Names.runtime]
        var types = taken
        for oneof in message.realOneofs {
            self.add(self.namer.relativeName(oneof: oneof), of: oneof, oneof.fullName, to: &types)
        }
        for declared in message.enums {
            self.add(self.namer.relativeName(enum: declared), of: declared, declared.fullName, to: &types)
        }
        for nested in message.nested {
            self.add(self.namer.relativeName(message: nested), of: nested, nested.fullName, to: &types)
        }
        let hidden = hidden.union(types).subtracting(taken)
        self.checkMembers(of: message)
        for field in message.fields { self.check(field, hidden: hidden) }
        for nested in message.nested { self.check(nested, hidden: hidden) }
    }

    private mutating func checkMembers(of message: Descriptor) {
        // A property would hide a module of its name.
        var members = Set(ModuleImports(self.context).used)
        for oneof in message.realOneofs {
            self.add(self.context.names.property(oneof), of: oneof, oneof.fullName, to: &members)
        }
        for field in message.fields {
            let hasPresence = field.hasPresence && field.realContainingOneof == nil
            let names = self.context.names.property(field, hasPresence: hasPresence)
            let storage = hasPresence ? [names.prefixed, names.has, names.clear] : []
            // One diagnostic is enough: if the property's name clashes, the other names clash too.
            let clashing = ([names.name] + storage).first { members.contains($0) }
            members.formUnion(storage)
            self.add(clashing ?? names.name, of: field, field.fullName, to: &members)
        }
    }

    private mutating func add(
        _ name: String,
        of element: some ProvidesLocationPath,
        _ fullName: String,
        to names: inout Set<String>
    ) {
        guard !names.insert(name).inserted else { return }
        self.diagnostics.append(
            Diagnostic(element, "\(fullName) becomes \(name) in Swift, where something else is called so")
        )
    }

    private mutating func check(_ field: FieldDescriptor, hidden: Set<String>) {
        let value = field.isMap ? field.messageType.mapKeyAndValue?.value ?? field : field
        if let message = value.messageType {
            self.check(self.namer.fullName(message: message), of: field, field.fullName, hidden: hidden)
        } else if let declared = value.enumType {
            self.check(self.namer.fullName(enum: declared), of: field, field.fullName, hidden: hidden)
        }
    }

    private mutating func check(_ service: ServiceDescriptor) {
        var methods: Set<String> = []
        let hidden: Set = ["Client", "ClientProtocol", "Methods", "MockClient", "ServiceProtocol"]
        for method in service.methods {
            self.add(self.context.names.method(method), of: method, method.fullName, to: &methods)
            for message in [method.inputType, method.outputType].compactMap({ $0 }) {
                self.check(self.namer.fullName(message: message), of: method, method.fullName, hidden: hidden)
            }
        }
    }

    /// - Parameter type: The type as written in Swift, which looks up its first component from the innermost scope
    ///   outwards.
    private mutating func check(
        _ type: String,
        of element: some ProvidesLocationPath,
        _ fullName: String,
        hidden: Set<String>
    ) {
        let beginning = type.prefix { $0 != "." }
        guard hidden.contains(String(beginning)) else { return }
        self.diagnostics.append(
            Diagnostic(
                element,
                "\(fullName) has the type \(type), but there Swift takes \(beginning) for what is "
                    + "declared closer by; a "
                    + "package, or option swift_prefix, tells them apart"
            )
        )
    }
}
