// SPDX-License-Identifier: Apache-2.0
import SwiftProtobuf
import SwiftProtobufPluginLibrary

/// The names of the declarations that keep fields on the heap.
enum HeapNames {
    /// The type of the fields. A message's own types begin with no underscore.
    static let type = "_Fields"
    static let property = "_heap"
    static let fields = "self._heap.fields"
}

/// Writes a message: a struct that decodes itself from bytes, and encodes itself.
struct MessageGenerator {
    private let message: Descriptor
    private let context: Context
    /// The fields in the order of their numbers.
    private let fields: [FieldGenerator]
    private let isOnHeap: Bool

    init(_ message: Descriptor, _ context: Context) {
        self.message = message
        self.context = context
        let isOnHeap = context.storage.isOnHeap(message)
        self.isOnHeap = isOnHeap
        self.fields = message.sortedFields.map { FieldGenerator($0, isOnHeap: isOnHeap, context) }
    }

    func print(_ printer: inout CodePrinter) {
        let name = self.context.names.namer.relativeName(message: self.message)
        let comment = DocComment.lines(of: self.message)
        let declaration = "\(comment)\(self.context.access)struct \(name): \(Names.runtime).ProtobufMessage"
        printer.printBlock("\(declaration) {") { printer in
            self.printDescriptor(&printer)
            self.printProperties(&printer)
            self.printTypes(&printer)
            self.printBasics(&printer)
            if self.isOnHeap {
                self.printHeap(&printer)
            } else {
                self.printDecoding(&printer, self.context.access)
                self.printEncoding(&printer, self.context.access)
            }
            self.printCheck(&printer)
        }
    }

    private func printDescriptor(_ printer: inout CodePrinter) {
        // The type is explicit, because for a recursive message type inference would refer to the declaration itself.
        let beginning =
            "\(self.context.access)static let messageDescriptor: \(Names.runtime).MessageDescriptor = .init("
            + "\"\(self.message.fullName)\""
        guard !self.fields.isEmpty else { return printer.print("\(beginning))") }
        let types = self.fields.compactMap(\.declaredType).map { "\($0).self" }
        printer.print("\(beginning), \"\"\"")
        printer.withIndentation { printer in
            for field in self.fields { printer.print(field.declaration) }
        }
        let ending = types.isEmpty ? "" : ", types: [\(types.joined(separator: ", "))]"
        printer.print("    \"\"\"\(ending))")
    }

    private func printProperties(_ printer: inout CodePrinter) {
        var oneofs: Set<Int> = []
        // In the order of the file.
        for field in self.fields.sorted(by: { $0.field.index < $1.field.index }) {
            if let oneof = field.field.realContainingOneof, oneofs.insert(oneof.index).inserted {
                printer.print()
                self.generator(of: oneof).printProperty(&printer, isOnHeap: self.isOnHeap)
            }
            printer.print()
            field.printProperty(&printer)
        }
    }

    private func printTypes(_ printer: inout CodePrinter) {
        for oneof in self.message.realOneofs {
            printer.print()
            self.generator(of: oneof).printType(&printer)
        }
        for declared in self.message.enums {
            printer.print()
            EnumGenerator(declared, self.context).print(&printer)
        }
        let extensions = self.message.extensions.filter { !$0.extendsDescriptors }
        if !extensions.isEmpty {
            printer.printBlock("", "\(self.context.access)enum Extensions {") { printer in
                for field in extensions {
                    ExtensionGenerator(field, self.context).printDeclaration(&printer, isNested: true)
                }
            }
        }
        for nested in self.message.nested {
            printer.print()
            MessageGenerator(nested, self.context).print(&printer)
        }
    }

    private func printBasics(_ printer: inout CodePrinter) {
        let access = self.context.access
        let unknown = "\(access)var unknownFields"
        printer.print("", "/// Fields that this version of the message does not know; kept when it is sent on.")
        if self.isOnHeap {
            printer.print("\(unknown): \(Names.runtime).UnknownStorage {")
            printer.printIndented(
                "get { \(HeapNames.fields).unknownFields }",
                "_modify { yield &\(HeapNames.fields).unknownFields }"
            )
            printer.print("}")
        } else {
            printer.print("\(unknown) = \(Names.runtime).UnknownStorage()")
        }
        printer.print("", "\(access)init() {}")
        let storage = self.inOrder.compactMap(\.storage)
        guard !storage.isEmpty else { return }
        printer.print()
        for property in storage { printer.print(property) }
    }

    /// The fields in the order of the file.
    private var inOrder: [FieldGenerator] { self.fields.sorted { $0.field.index < $1.field.index } }

    private func printHeap(_ printer: inout CodePrinter) {
        let (access, runtime) = (self.context.access, Names.runtime)
        printer.print(
            "",
            "private var \(HeapNames.property) = \(runtime).HeapStored<\(HeapNames.type)>()",
            "",
            "\(access)mutating func decode(from decoder: inout \(runtime).MessageDecoder) {"
        )
        printer.printIndented("decoder.fields(&self.\(HeapNames.property))")
        printer.print("}", "", "\(access)func encode(to encoder: inout \(runtime).MessageEncoder) {")
        printer.printIndented("encoder.fields(self.\(HeapNames.property))")
        printer.printBlock("}", "", "fileprivate struct \(HeapNames.type): \(runtime).MessageFields {") { printer in
            var oneofs: Set<Int> = []
            for field in self.inOrder {
                if let property = field.heapProperty { printer.print(property) }
                guard let oneof = field.field.realContainingOneof, oneofs.insert(oneof.index).inserted else { continue }
                printer.print(self.generator(of: oneof).heapProperty)
            }
            printer.print("var unknownFields = \(runtime).UnknownStorage()")
            self.printDecoding(&printer, "")
            self.printEncoding(&printer, "")
        }
    }

    private func printDecoding(_ printer: inout CodePrinter, _ access: String) {
        let declaration = "\(access)mutating func decode(from decoder: inout \(Names.runtime).MessageDecoder)"
        printer.printBlock("", "\(declaration) {") { printer in
            let unknown = "decoder.unknown(tag, &self.unknownFields)"
            guard !self.fields.isEmpty else {
                return printer.print("while let tag = decoder.nextTag() { \(unknown) }")
            }
            printer.printBlock("while let tag = decoder.nextTag() {") { printer in
                printer.print("switch tag {")
                for field in self.fields { field.printDecoding(&printer) }
                printer.print("default: \(unknown)", "}")
            }
        }
    }

    /// Writes the function that encodes the fields, from the last to the first.
    private func printEncoding(_ printer: inout CodePrinter, _ access: String) {
        printer.printBlock("", "\(access)func encode(to encoder: inout \(Names.runtime).MessageEncoder) {") { printer in
            printer.print("encoder.unknown(self.unknownFields)")
            self.printFields(&printer, isReversed: true, line: \.encoding) { $0.printEncoding(&$1) }
        }
    }

    private func printCheck(_ printer: inout CodePrinter) {
        guard self.context.required.mayBeMissing(in: self.message) else { return }
        let access = self.context.access
        printer.printBlock("", "\(access)func checkRequired() throws(\(Names.runtime).MessageError) {") { printer in
            self.printFields(&printer, isReversed: false, line: \.check) { $0.printCheck(&$1) }
        }
    }

    /// Prints one line for each field, and each oneof in place of its first field.
    private func printFields(
        _ printer: inout CodePrinter,
        isReversed: Bool,
        line: (FieldGenerator) -> String?,
        _ printOneof: (OneofGenerator, inout CodePrinter) -> Void
    ) {
        var firsts: [Int: Int32] = [:]
        for field in self.fields {
            guard let oneof = field.field.realContainingOneof, firsts[oneof.index] == nil else { continue }
            firsts[oneof.index] = field.field.number
        }
        for field in isReversed ? self.fields.reversed() : self.fields {
            if let line = line(field) {
                printer.print(line)
            } else if let oneof = field.field.realContainingOneof, firsts[oneof.index] == field.field.number {
                printOneof(self.generator(of: oneof), &printer)
            }
        }
    }

    private func generator(of oneof: OneofDescriptor) -> OneofGenerator {
        let fields = self.fields.filter { $0.field.realContainingOneof === oneof }
        return OneofGenerator(oneof, fields: fields.sorted { $0.field.index < $1.field.index }, self.context)
    }
}
