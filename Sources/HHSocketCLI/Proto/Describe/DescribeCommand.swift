import ArgumentParser

struct DescribeCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "describe",
        abstract: "Tell what a .proto declares: methods, pushes and messages.",
        discussion: """
            Services come first, with each method's type, then messages, pushes among them, and enumerations. All \
            names are full ones. Without a symbol it is all that the file declares, but not what it imports.
            """
    )

    @OptionGroup var proto: ProtoOptions

    @Argument(help: "The full name of a service, a method, a message or an enumeration: nothing else is told.")
    var symbol: String?

    @Flag(help: "Print one JSON object: services, messages and enums.")
    var json = false

    func validate() throws {
        guard self.proto.proto != nil else { throw ValidationError("--proto is missing.") }
    }

    func run() async throws {
        Signals.ignoreBrokenPipes()
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
        } catch {
            throw ExitCode.failure
        }
    }
}
