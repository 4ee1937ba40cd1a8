// SPDX-License-Identifier: Apache-2.0
import SwiftProtobufPluginLibrary

/// Finds extensions whose members have names in Swift that the extended message, or another extension of it, has too.
///
/// The generated files and all their imports are compared.
struct ExtensionNameCheck {
    private struct Owner {
        var fullName: String
        var position: SourcePosition
        var isGenerated: Bool
    }

    private(set) var diagnostics: [Diagnostic] = []
    /// The extensions by module, extended message and name in Swift.
    private var owners: [String: Owner] = [:]

    init(_ files: [FileDescriptor], _ options: GeneratorOptions) {
        guard options.messages == .hhsocket else { return }
        let generated = Set(files.map(\.name))
        for file in files.withImports {
            let names = Context(options: options, file: file).names
            for field in file.allExtensions { self.add(field, names, isGenerated: generated.contains(file.name)) }
        }
    }

    private mutating func add(_ field: FieldDescriptor, _ names: Names, isGenerated: Bool) {
        guard let message = field.containingType else { return }
        let own = names.members(of: message)
        let properties = names.namer.messagePropertyNames(extensionField: field)
        let owner = Owner(fullName: field.fullName, position: SourcePosition(field), isGenerated: isGenerated)
        var other: Owner?
        for name in [properties.value, properties.clear] + (field.isRepeated ? [] : [properties.has]) {
            if let field = own[name] {
                other = other ?? Owner(fullName: field.fullName, position: SourcePosition(field), isGenerated: false)
            }
            let key = "\(names.namer.targetModule) \(message.fullName) \(name)"
            other = other ?? self.owners[key]
            self.owners[key] = self.owners[key] ?? owner
        }
        // One diagnostic is enough: if the property's name clashes, the other names clash too.
        guard let other else { return }
        let (blamed, rest) = isGenerated ? (owner, other) : (other, owner)
        guard blamed.isGenerated else { return }
        self.diagnostics.append(
            Diagnostic(
                at: blamed.position,
                "\(blamed.fullName) becomes \(properties.value) in Swift, where \(message.fullName) has the members of "
                    + "\(rest.fullName) already (\(rest.position))"
            )
        )
    }
}
