// SPDX-License-Identifier: Apache-2.0
import SwiftProtobuf
import SwiftProtobufPluginLibrary

/// The modules whose types a file's generated code names, and the types that it re-exports from them.
struct ModuleImports {
    private let context: Context
    private var namer: SwiftProtobufNamer { self.context.names.namer }

    init(_ context: Context) {
        self.context = context
    }

    /// The other modules in alphabetical order, without the runtime. A module that is not used is left out,
    /// since the compiler warns about unused public imports.
    var used: [String] {
        var files: [FileDescriptor] = []
        if self.context.generatesMessages {
            files = self.context.file.allMessages.flatMap(Self.files)
            files += self.context.file.allExtensions.flatMap(Self.files(ofExtension:))
        }
        let services = self.context.generatesServices ? self.context.file.services : []
        let messages = services.flatMap(\.methods).flatMap { [$0.inputType, $0.outputType] }.compactMap { $0 }
        var modules = Set((files + messages.compactMap(\.file)).compactMap { self.otherModule(of: $0) })
        modules.remove(Names.runtime)
        return modules.sorted()
    }

    /// The types, such as `struct Common.Common_Price`, that the `.proto` makes visible by `import public`, as
    /// swift-protobuf re-exports them; none where the generated code is internal.
    var reexported: [String] {
        guard self.context.generatesMessages, self.context.options.visibility != .internal else { return [] }
        var types: [String] = []
        var seen: Set<String> = []
        var waiting = self.context.file.publicDependencies
        while let file = waiting.popLast() {
            // The code of a file in the same module re-exports what it imports itself.
            guard seen.insert(file.name).inserted, let module = self.otherModule(of: file) else { continue }
            guard module != Names.runtime else { continue }
            types += file.messages.map { "struct \(self.namer.fullName(message: $0))" }
            types += file.enums.map { "enum \(self.namer.fullName(enum: $0))" }
            let extensions = file.extensions.filter { !$0.extendsDescriptors }
            types += extensions.map { "let \(self.namer.fullName(extensionField: $0))" }
            waiting += file.publicDependencies
        }
        return types.sorted()
    }

    private func otherModule(of file: FileDescriptor) -> String? {
        guard let module = self.namer.mappings.moduleName(forFile: file), module != self.namer.targetModule else {
            return nil
        }
        return module
    }

    /// The files of the message that an extension extends, and of its own type.
    private static func files(ofExtension field: FieldDescriptor) -> [FileDescriptor] {
        [field.containingType?.file, field.messageType?.file, field.enumType?.file].compactMap { $0 }
    }

    /// The files of the types of a message's fields.
    private static func files(of message: Descriptor) -> [FileDescriptor] {
        let values = message.fields.map { field in
            field.isMap ? field.messageType.mapKeyAndValue?.value ?? field : field
        }
        return values.compactMap { $0.messageType?.file ?? $0.enumType?.file }
    }
}
