// SPDX-License-Identifier: Apache-2.0
import SwiftProtobuf
import SwiftProtobufPluginLibrary

/// Writes an enum: open ones of proto3 keep undeclared numbers, closed ones of proto2 reject them.
struct EnumGenerator {
    private let descriptor: EnumDescriptor
    private let context: Context
    private let name: String
    private let canonical: [EnumValueDescriptor]

    init(_ descriptor: EnumDescriptor, _ context: Context) {
        self.descriptor = descriptor
        self.context = context
        self.name = context.names.namer.relativeName(enum: descriptor)
        self.canonical = descriptor.canonicalValues
    }

    func print(_ printer: inout CodePrinter) {
        let comment = DocComment.lines(of: self.descriptor)
        let declaration = "\(comment)\(self.context.access)enum \(self.name): \(Names.runtime).ProtobufEnum"
        printer.printBlock("\(declaration) {") { printer in
            self.printDescriptor(&printer)
            self.printCases(&printer)
            self.printAliases(&printer)
            self.printMembers(&printer)
        }
    }

    private func printDescriptor(_ printer: inout CodePrinter) {
        printer.print(
            "\(self.context.access)static let enumDescriptor = \(Names.runtime).EnumDescriptor("
                + "\"\(self.descriptor.fullName)\", \"\"\""
        )
        for value in self.descriptor.values { printer.printIndented("\(value.number) \(value.name)") }
        printer.print("    \"\"\"\(self.isOpen ? "" : ", isClosed: true"))", "")
    }

    private var isOpen: Bool { !self.descriptor.isClosed }

    private func printCases(_ printer: inout CodePrinter) {
        for value in self.canonical {
            printer.print("\(DocComment.lines(of: value))case \(self.declared(value))")
        }
        guard self.isOpen else { return }
        printer.print("/// A number that this version of the enum does not know.", "case UNRECOGNIZED(Int)")
    }

    /// Prints other names for the same number, without those that are identical in Swift.
    private func printAliases(_ printer: inout CodePrinter) {
        var taken = Set(self.canonical.map(self.declared))
        for value in self.descriptor.values where taken.insert(self.declared(value)).inserted {
            guard let original = self.canonical.first(where: { $0.number == value.number }) else { continue }
            printer.print(
                "",
                "\(DocComment.lines(of: value))\(self.context.access)static let \(self.declared(value)) = "
                    + "\(self.name).\(self.used(original))"
            )
        }
    }

    private func printMembers(_ printer: inout CodePrinter) {
        let access = self.context.access
        if let first = self.canonical.first {
            printer.print("", "\(access)init() { self = .\(self.used(first)) }")
        }
        printer.printBlock("", "\(access)init?(rawValue: Int) {") { printer in
            printer.print("switch rawValue {")
            for value in self.canonical { printer.print("case \(value.number): self = .\(self.used(value))") }
            printer.print(self.isOpen ? "default: self = .UNRECOGNIZED(rawValue)" : "default: return nil", "}")
        }
        printer.printBlock("", "\(access)var rawValue: Int {") { printer in
            printer.print("switch self {")
            for value in self.canonical { printer.print("case .\(self.used(value)): \(value.number)") }
            if self.isOpen { printer.print("case .UNRECOGNIZED(let value): value") }
            printer.print("}")
        }
        let all = self.canonical.map { ".\(self.used($0))" }.joined(separator: ", ")
        printer.print("", "\(access)static let allCases: [\(self.name)] = [\(all)]")
    }

    private func declared(_ value: EnumValueDescriptor) -> String {
        self.context.names.enumCase(value)
    }

    private func used(_ value: EnumValueDescriptor) -> String { Names.used(self.declared(value)) }
}
