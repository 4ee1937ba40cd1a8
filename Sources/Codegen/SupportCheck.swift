// SPDX-License-Identifier: Apache-2.0
import SwiftProtobuf
import SwiftProtobufPluginLibrary

/// Finds unsupported features in a file.
struct SupportCheck {
    /// The files of `google.protobuf` whose messages the runtime provides.
    static let wellKnownFiles: Set = [
        "google/protobuf/any.proto", "google/protobuf/api.proto", "google/protobuf/duration.proto",
        "google/protobuf/empty.proto", "google/protobuf/field_mask.proto", "google/protobuf/source_context.proto",
        "google/protobuf/struct.proto", "google/protobuf/timestamp.proto", "google/protobuf/type.proto",
        "google/protobuf/wrappers.proto",
    ]

    private static let wellKnownPackage = "google.protobuf"

    private(set) var diagnostics: [Diagnostic] = []
    private let options: GeneratorOptions

    init(options: GeneratorOptions, file: FileDescriptor) {
        self.options = options
        for service in file.services {
            for method in service.methods {
                self.checkType(method.inputType, of: method, "the method \(method.fullName)")
                self.checkType(method.outputType, of: method, "the method \(method.fullName)")
            }
        }
        // Messages of protoc-gen-swift are not checked.
        guard options.messages == .hhsocket else { return }
        for message in file.allMessages {
            for field in message.fields { self.check(field) }
        }
        for field in file.allExtensions { self.check(field) }
    }

    private mutating func check(_ field: FieldDescriptor) {
        let value = field.isMap ? field.messageType.mapKeyAndValue?.value ?? field : field
        if let message = value.messageType { self.checkType(message, of: field, "the field \(field.fullName)") }
        if let declared = value.enumType, !Self.isSupported(declared.file) {
            self.diagnostics.append(Self.unsupported(declared.fullName, of: field, "the field \(field.fullName)"))
        }
    }

    private mutating func checkType(_ message: Descriptor, of element: some ProvidesLocationPath, _ name: String) {
        guard self.options.messages == .hhsocket, !Self.isSupported(message.file) else { return }
        self.diagnostics.append(Self.unsupported(message.fullName, of: element, name))
    }

    private static func unsupported(_ type: String, of element: some ProvidesLocationPath, _ name: String) -> Diagnostic
    {
        Diagnostic(
            element,
            "\(name) has the type \(type), which is not supported; \(self.wellKnownPackage) is supported "
                + "except for the descriptors of descriptor.proto"
        )
    }

    private static func isSupported(_ file: FileDescriptor) -> Bool {
        file.package != self.wellKnownPackage || self.wellKnownFiles.contains(file.name)
    }
}
