import Foundation
import SwiftProtobuf
import SwiftProtobufPluginLibrary

/// Finds unsupported features in a file.
struct SupportCheck {
    /// The files of `google.protobuf` whose messages the runtime provides.
    static let wellKnownFiles: Set = [
        "google/protobuf/duration.proto", "google/protobuf/empty.proto", "google/protobuf/timestamp.proto",
        "google/protobuf/wrappers.proto",
    ]

    private static let wellKnownPackage = "google.protobuf"

    private(set) var diagnostics: [Diagnostic] = []
    private let options: GeneratorOptions

    init(options: GeneratorOptions, file: FileDescriptor) {
        self.options = options
        guard file.edition == .proto2 || file.edition == .proto3 else {
            let paths = [DescriptorPaths.fileEdition, DescriptorPaths.fileSyntax].map { IndexPath(index: $0) }
            self.diagnostics.append(
                Diagnostic(
                    at: SourcePlace(in: file, paths),
                    "editions are not supported; write syntax = \"proto3\"; in the place of the edition"
                )
            )
            return
        }
        for service in file.services {
            for method in service.methods {
                self.checkType(method.inputType, of: method, "the method \(method.fullName)")
                self.checkType(method.outputType, of: method, "the method \(method.fullName)")
            }
        }
        // Messages of protoc-gen-swift are not checked.
        guard options.messages == .protobufC else { return }
        self.check(extensions: file.extensions)
        for message in file.allMessages { self.check(message) }
    }

    private mutating func check(_ message: Descriptor) {
        if message.options.messageSetWireFormat {
            self.diagnostics.append(
                Diagnostic(message, "message_set_wire_format of \(message.fullName) is not supported")
            )
        }
        self.check(extensions: message.extensions)
        for field in message.fields { self.check(field) }
    }

    private mutating func check(_ field: FieldDescriptor) {
        guard field.type != .group else {
            self.diagnostics.append(
                Diagnostic(field, "groups are not supported; make \(field.fullName) a field of a message's type")
            )
            return
        }
        let value = field.isMap ? field.messageType.mapKeyAndValue?.value ?? field : field
        if let message = value.messageType { self.checkType(message, of: field, "the field \(field.fullName)") }
        if let declared = value.enumType, !Self.isSupported(declared.file) {
            self.diagnostics.append(Self.unsupported(declared.fullName, of: field, "the field \(field.fullName)"))
        }
    }

    private mutating func checkType(_ message: Descriptor, of element: some ProvidesLocationPath, _ name: String) {
        guard self.options.messages == .protobufC, !Self.isSupported(message.file) else { return }
        self.diagnostics.append(Self.unsupported(message.fullName, of: element, name))
    }

    private mutating func check(extensions: [FieldDescriptor]) {
        for field in extensions where !Self.extendsOptions(field) {
            self.diagnostics.append(
                Diagnostic(
                    field,
                    "the extension \(field.fullName) of \(field.containingType.fullName) is not "
                        + "supported; only options "
                        + "can be extended"
                )
            )
        }
    }

    private static func unsupported(_ type: String, of element: some ProvidesLocationPath, _ name: String) -> Diagnostic
    {
        Diagnostic(
            element,
            "\(name) has the type \(type), which is not supported; of \(self.wellKnownPackage) there are "
                + "Duration, Empty, Timestamp and the wrappers such as StringValue"
        )
    }

    private static func isSupported(_ file: FileDescriptor) -> Bool {
        file.package != self.wellKnownPackage || self.wellKnownFiles.contains(file.name)
    }

    private static func extendsOptions(_ field: FieldDescriptor) -> Bool {
        guard let extended = field.containingType else { return false }
        return extended.file.package == self.wellKnownPackage && extended.name.hasSuffix("Options")
    }
}
