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
    private var propertyName: String { self.context.names.namer.messagePropertyName(oneof: self.oneof).name }

    func printProperty(_ printer: inout CodePrinter) {
        let comment = DocComment.lines(commentOf: self.oneof)
        printer.print("\(comment)\(self.context.access)var \(self.propertyName): \(self.typeName)? = nil")
    }

    func printType(_ printer: inout CodePrinter) {
        let comment = DocComment.lines(commentOf: self.oneof)
        let indirect = self.context.recursion.isRecursive(self.oneof) ? "indirect " : ""
        printer.print("\(comment)\(self.context.access)\(indirect)enum \(self.typeName): Hashable, Sendable {")
        printer.withIndentation { printer in
            for field in self.fields { printer.print("\(DocComment.lines(of: field.field))\(field.enumCase)") }
        }
        printer.print("}")
    }

    func printReading(_ printer: inout CodePrinter) {
        guard let first = self.fields.first else { return }
        printer.print("switch record.oneof(\(first.recordIndex)) {")
        for field in self.fields { printer.print(field.readingCase(of: self.oneof)) }
        printer.print("default: self.\(Names.used(self.propertyName)) = nil", "}")
    }

    func printWriting(_ printer: inout CodePrinter) {
        printer.print("switch self.\(Names.used(self.propertyName)) {")
        for field in self.fields { printer.print(field.writingCase) }
        printer.print("case nil: break", "}")
    }
}
