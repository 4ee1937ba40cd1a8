// SPDX-License-Identifier: Apache-2.0
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
            PutCommand.self,
            GetCommand.self,
            WebSocketCommand.self,
            WebSocketServeCommand.self,
            LinesCommand.self,
            LinesServeCommand.self,
            STOMPCommand.self,
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
            Self.exit(withUsageError: error.message, of: Self.path(of: type(of: command)) ?? "")
        } catch {
            Self.exit(withError: error)
        }
    }

    /// The names by which a subcommand is called, such as `stomp send`; nil for the command itself.
    private static func path(
        of command: any ParsableCommand.Type,
        below parent: any ParsableCommand.Type = Self.self
    ) -> String? {
        for subcommand in parent.configuration.subcommands {
            let name = subcommand.configuration.commandName ?? ""
            if subcommand == command { return name }
            if let path = self.path(of: command, below: subcommand) { return "\(name) \(path)" }
        }
        return nil
    }

    /// The subcommand at this path; nil if there is none.
    private static func subcommand(at path: String) -> (any ParsableCommand.Type)? {
        path.split(separator: " ").reduce(Self.self as (any ParsableCommand.Type)?) { command, name in
            command?.configuration.subcommands.first { $0.configuration.commandName ?? "" == name }
        }
    }

    /// Exits with code 64 and the usage of a subcommand, in the form in which ArgumentParser reports wrong usage.
    ///
    /// - Parameter path: The subcommand's names; any others mean the command itself.
    private static func exit(withUsageError message: String, of path: String) -> Never {
        let subcommand = path.isEmpty ? nil : Self.subcommand(at: path)
        let usage = subcommand.map { Self.usageString(for: $0) } ?? Self.usageString()
        let name = subcommand == nil ? "hhsocket" : "hhsocket \(path)"
        StandardError.line(
            """
            Error: \(message)
            Usage: \(usage)
              See '\(name) --help' for more information.
            """
        )
        Self.exit(withError: ExitCode.validationFailure)
    }
}
