import SwiftProtobuf
import SwiftProtobufPluginLibrary

/// Writes a message: a struct that reads itself from a record and writes itself into one.
struct MessageGenerator {
    private let message: Descriptor
    private let context: Context
    /// The fields in the order of their numbers.
    private let fields: [FieldGenerator]

    init(_ message: Descriptor, _ context: Context) {
        self.message = message
        self.context = context
        self.fields = message.sortedFields.enumerated().map { FieldGenerator($1, index: $0, context) }
    }

    func print(_ printer: inout CodePrinter) {
        let name = self.context.names.namer.relativeName(message: self.message)
        let comment = DocComment.lines(of: self.message)
        printer.print("\(comment)\(self.context.access)struct \(name): \(Names.runtime).ProtobufMessage {")
        printer.withIndentation { printer in
            self.printDescriptor(&printer)
            self.printProperties(&printer)
            self.printTypes(&printer)
            self.printBasics(&printer)
            self.printReading(&printer)
            self.printWriting(&printer)
        }
        printer.print("}")
    }

    private func printDescriptor(_ printer: inout CodePrinter) {
        let oneofs = self.message.realOneofs.isEmpty ? "" : " oneofs: \(self.message.realOneofs.count),"
        // With an explicit type: for a recursive message, type inference would refer to the declaration itself.
        let beginning =
            "\(self.context.access)static let messageDescriptor: \(Names.runtime).MessageDescriptor = .init("
            + "\"\(self.message.fullName)\",\(oneofs) ["
        guard !self.fields.isEmpty else { return printer.print("\(beginning)])") }
        printer.print(beginning)
        printer.withIndentation { printer in
            for field in self.fields { printer.print(field.descriptor) }
        }
        printer.print("])")
    }

    private func printProperties(_ printer: inout CodePrinter) {
        var oneofs: Set<Int> = []
        // In the order of the file.
        for field in self.fields.sorted(by: { $0.field.index < $1.field.index }) {
            if let oneof = field.field.realContainingOneof, oneofs.insert(oneof.index).inserted {
                printer.print()
                self.generator(of: oneof).printProperty(&printer)
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
        for nested in self.message.nested {
            printer.print()
            MessageGenerator(nested, self.context).print(&printer)
        }
    }

    private func printBasics(_ printer: inout CodePrinter) {
        printer.print(
            "",
            "/// Fields that this version of the message does not know; kept when it is sent on.",
            "\(self.context.access)var unknownFields: \(Names.runtime).UnknownStorage",
            "",
            "\(self.context.access)init() {"
        )
        let inOrder = self.fields.sorted { $0.field.index < $1.field.index }
        printer.withIndentation { printer in
            for line in inOrder.compactMap(\.initialization) { printer.print(line) }
            printer.print("self.unknownFields = \(Names.runtime).UnknownStorage()")
        }
        printer.print("}")
        let storage = inOrder.compactMap(\.storage)
        guard !storage.isEmpty else { return }
        printer.print()
        for property in storage { printer.print(property) }
    }

    private func printReading(_ printer: inout CodePrinter) {
        let hasClosedEnums = self.fields.contains { $0.hasClosedEnum }
        printer.print("", "\(self.context.access)init(record: \(Names.runtime).RecordReader) {")
        printer.withIndentation { printer in
            if hasClosedEnums { printer.print("var unknown = record.unknownFields") }
            self.printFields(&printer, \.reading) { $0.printReading(&$1) }
            printer.print("self.unknownFields = \(hasClosedEnums ? "unknown" : "record.unknownFields")")
        }
        printer.print("}")
    }

    private func printWriting(_ printer: inout CodePrinter) {
        let runtime = Names.runtime
        printer.print(
            "",
            "\(self.context.access)func write(to record: \(runtime).RecordWriter) throws(\(runtime).MessageError) {"
        )
        printer.withIndentation { printer in
            self.printFields(&printer, \.writing) { $0.printWriting(&$1) }
            printer.print("record.unknownFields(self.unknownFields)")
        }
        printer.print("}")
    }

    /// Prints a line for each field, and each oneof in the place of its first field.
    private func printFields(
        _ printer: inout CodePrinter,
        _ line: (FieldGenerator) -> String?,
        _ printOneof: (OneofGenerator, inout CodePrinter) -> Void
    ) {
        var oneofs: Set<Int> = []
        for field in self.fields {
            if let line = line(field) {
                printer.print(line)
            } else if let oneof = field.field.realContainingOneof, oneofs.insert(oneof.index).inserted {
                printOneof(self.generator(of: oneof), &printer)
            }
        }
    }

    private func generator(of oneof: OneofDescriptor) -> OneofGenerator {
        let fields = self.fields.filter { $0.field.realContainingOneof === oneof }
        return OneofGenerator(oneof, fields: fields.sorted { $0.field.index < $1.field.index }, self.context)
    }
}
