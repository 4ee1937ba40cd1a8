// SPDX-License-Identifier: Apache-2.0
import SwiftProtobufPluginLibrary

/// Finds names that several files of one module share in Swift, though they differ in protobuf: those of the packages
/// `foo_bar` and `fooBar`, or of two files with the same `swift_prefix`.
///
/// The generated files and all their imports are compared.
struct ModuleNameCheck {
    private struct Owner {
        var fullName: String
        var file: FileDescriptor
        var position: SourcePosition
    }

    private(set) var diagnostics: [Diagnostic] = []
    private let generated: Set<String>
    /// The declarations by module, if it is known, and name in Swift.
    private var owners: [String: Owner] = [:]

    init(_ files: [FileDescriptor], _ options: GeneratorOptions) {
        self.generated = Set(files.map(\.name))
        for file in files.withImports { self.add(file, Context(options: options, file: file)) }
    }

    private mutating func add(_ file: FileDescriptor, _ context: Context) {
        let namer = context.names.namer
        var declared: [(name: String, fullName: String, element: any ProvidesLocationPath)] = []
        declared += file.enums.map { (namer.relativeName(enum: $0), $0.fullName, $0) }
        declared += file.messages.map { (namer.relativeName(message: $0), $0.fullName, $0) }
        if context.generatesMessages {
            let extensions = file.extensions.filter { !$0.extendsDescriptors }
            declared += extensions.map { (namer.relativeName(extensionField: $0), $0.fullName, $0) }
        }
        if context.generatesServices {
            declared += file.services.map { (context.names.service($0), $0.fullName, $0) }
        }
        for (name, fullName, element) in declared {
            let owner = Owner(fullName: fullName, file: file, position: SourcePosition(element))
            guard let other = self.owners["\(namer.targetModule).\(name)"] else {
                self.owners["\(namer.targetModule).\(name)"] = owner
                continue
            }
            self.compare(owner, other, name: name)
        }
    }

    private mutating func compare(_ one: Owner, _ other: Owner, name: String) {
        // Names that clash within one file are reported elsewhere.
        guard one.file.name != other.file.name, !self.generated.isDisjoint(with: [one.file.name, other.file.name])
        else {
            return
        }
        let (blamed, rest) = self.generated.contains(one.file.name) ? (one, other) : (other, one)
        self.diagnostics.append(
            Diagnostic(
                at: blamed.position,
                "\(blamed.fullName) becomes \(name) in Swift, as \(rest.fullName) does (\(rest.position)); another "
                    + "package, or option swift_prefix, tells them apart"
            )
        )
    }
}
