import ArgumentParser

@main
struct HHSocketCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "hhsocket",
        abstract: "Calls, pushes and servers over one long TCP connection.",
        discussion: """
            Payloads go to stdout byte for byte, everything else to stderr.

            A duration is \(DurationArgument.form). A size is \(SizeArgument.form).

            Exit codes: 0 on success; 1 if something failed, such as a connection, a call or the reading of a file; 64 \
            for wrong usage: an option, its value, a combination of options, or a request that is not the method's message.
            """,
        version: Version.current,
        subcommands: [
            ServeCommand.self,
            CallCommand.self,
            ListenCommand.self,
            WebSocketCommand.self,
            WebSocketServeCommand.self,
            LinesCommand.self,
            LinesServeCommand.self,
            InspectCommand.self,
            DescribeCommand.self,
            BenchCommand.self,
            DemoCommand.self,
        ]
    )

    /// Runs the command given by the process's arguments. On an error the process exits with its message and code.
    static func main() async {
        let arguments = Array(CommandLine.arguments.dropFirst())
        let commands = Commands(of: Self.self)
        var command: any ParsableCommand
        do {
            command = try Self.parseAsRoot(arguments)
        } catch {
            // ArgumentParser checks values, and lets commands check their options, before it looks for unknown options.
            // The unknown one is often the cause of the error.
            if Self.exitCode(for: error) != .success, let unknown = commands?.unknownOption(in: arguments) {
                Self.exit(withUsageError: unknown.description, of: unknown.command)
            }
            Self.exit(withError: error)
        }
        do {
            if var command = command as? any AsyncParsableCommand {
                try await command.run()
            } else {
                try command.run()
            }
        } catch let error as ValidationError {
            Self.exit(withUsageError: error.message, of: type(of: command).configuration.commandName ?? "")
        } catch {
            Self.exit(withError: error)
        }
    }

    /// Exits with code 64 and the usage of a subcommand, in the form in which ArgumentParser reports wrong usage.
    ///
    /// - Parameter name: The subcommand's name; any other means the command itself.
    private static func exit(withUsageError message: String, of name: String) -> Never {
        let subcommand = Self.configuration.subcommands.first { $0.configuration.commandName == name }
        let usage = subcommand.map { Self.usageString(for: $0) } ?? Self.usageString()
        let path = subcommand == nil ? "hhsocket" : "hhsocket \(name)"
        StandardError.line(
            """
            Error: \(message)
            Usage: \(usage)
              See '\(path) --help' for more information.
            """
        )
        Self.exit(withError: ExitCode.validationFailure)
    }
}
