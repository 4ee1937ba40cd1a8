// SPDX-License-Identifier: Apache-2.0
import SwiftProtobuf
import SwiftProtobufPluginLibrary

/// Writes the members of a message for a oneof: an optional property, and an enum with a case for each field.
struct OneofGenerator {
    private let oneof: OneofDescriptor
    /// The fields in the order of the file.
    private let fields: [FieldGenerator]
    private let context: Context

    init(_ oneof: OneofDescriptor, fields: [FieldGenerator], _ context: Context) {
        self.oneof = oneof
        self.fields = fields
        self.context = context
    }

    private var typeName: String { self.context.names.namer.relativeName(oneof: self.oneof) }
    private var propertyName: String { self.context.names.property(self.oneof) }

    func printProperty(_ printer: inout CodePrinter, isOnHeap: Bool) {
        let comment = DocComment.lines(commentOf: self.oneof)
        let declaration = "\(comment)\(self.context.access)var \(self.propertyName): \(self.typeName)?"
        guard isOnHeap else { return printer.print("\(declaration) = nil") }
        printer.print("\(declaration) {")
        printer.printIndented(
            "get { \(HeapNames.fields).\(Names.used(self.propertyName)) }",
            "_modify { yield &\(HeapNames.fields).\(Names.used(self.propertyName)) }"
        )
        printer.print("}")
    }

    var heapProperty: String { "var \(self.propertyName): \(self.typeName)?" }

    func printType(_ printer: inout CodePrinter) {
        let comment = DocComment.lines(commentOf: self.oneof)
        printer.printBlock("\(comment)\(self.context.access)enum \(self.typeName): Hashable, Sendable {") { printer in
            for field in self.fields { printer.print("\(DocComment.lines(of: field.field))\(field.enumCase)") }
        }
    }

    func printEncoding(_ printer: inout CodePrinter) {
        self.printSwitch(&printer, self.fields.map(\.encodingCase), isWhole: true)
    }

    /// Checks the messages that may lack a required field, if there are any.
    func printCheck(_ printer: inout CodePrinter) {
        let cases = self.fields.compactMap(\.checkCase)
        guard !cases.isEmpty else { return }
        self.printSwitch(&printer, cases, isWhole: cases.count == self.fields.count)
    }

    private func printSwitch(_ printer: inout CodePrinter, _ cases: [String], isWhole: Bool) {
        printer.print("switch self.\(Names.used(self.propertyName)) {")
        for line in cases { printer.print(line) }
        printer.print(isWhole ? "case nil: break" : "default: break", "}")
    }
}
