// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocketMessage

struct DescribeCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "describe",
        abstract: "Describe the declarations of a .proto: methods, pushes and messages.",
        discussion: """
            Prints services with the type of each method, then messages, including pushes, then enumerations and \
            extensions, with their full names. Without a symbol these are all declarations of the file, but not those that \
            it imports.
            """
    )

    @OptionGroup var proto: ProtoOptions

    @Argument(help: "The full name of a service, method, message, enumeration or extension, to describe only that.")
    var symbol: String?

    @Flag(help: "Print a JSON object: services, messages, enums and extensions.")
    var json = false

    func validate() throws {
        guard self.proto.proto != nil else { throw ValidationError("--proto is missing.") }
    }

    func run() async throws {
        guard let schema = try self.proto.schema() else { return }
        do {
            let selection = try SchemaSelection(schema, symbol: self.symbol)
            if self.json {
                let text = SchemaJSON(schema).json(selection).text(isIndented: StandardOutput.isTerminal)
                try StandardOutput.write(text + "\n")
            } else {
                try StandardOutput.write(SchemaText(schema).text(selection))
            }
        } catch let error as ProtoError {
            StandardError.line("error: \(error.description)")
            throw ExitCode.validationFailure
        }
    }
}
