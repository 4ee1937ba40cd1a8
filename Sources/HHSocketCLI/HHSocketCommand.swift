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

            A file may be of any kind, such as a pipe, unless its option says otherwise.

            Exit codes: 0 on success; 1 if something failed, such as a connection, a call, the reading of a file or the \
            writing of the output; 64 for wrong usage: an option, its value, a combination of options, or a request that \
            is not the method's message.
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
            BrokerCommand.self,
            InspectCommand.self,
            DescribeCommand.self,
            BenchCommand.self,
            DemoCommand.self,
        ]
    )

    /// The reason for which a command does not run.
    enum Refusal: Error {
        /// An error that ArgumentParser reports, or a request for help. Its code is computed only once, which takes as
        /// long as parsing.
        case parsing(any Error, ExitCode)
        /// Wrong usage of the subcommand at a path. Any other path means the command itself.
        case usage(String, of: String)

        var exitCode: ExitCode {
            switch self {
            case .parsing(_, let code): code
            case .usage: .validationFailure
            }
        }

        /// The lines that the process prints before it exits.
        var text: String {
            switch self {
            case .parsing(let error, _): HHSocketCommand.fullMessage(for: error)
            case .usage(let message, let path): HHSocketCommand.text(ofUsageError: message, of: path)
            }
        }

        /// Exits with the text and the code. A text for which the user has asked, such as help, is output like any
        /// other: it is an error if it cannot be written, of which ArgumentParser takes no notice.
        func exit() -> Never {
            let text = self.text
            do throws(StandardOutput.Failure) {
                if text.isEmpty {
                    // The command has reported its failure.
                } else if self.exitCode == .success {
                    try StandardOutput.write(text + "\n")
                } else {
                    StandardError.line(text)
                }
            } catch {
                HHSocketCommand.exit(by: error)
            }
            HHSocketCommand.exit(withError: self.exitCode)
        }
    }

    /// Runs the command given by the process's arguments. On an error the process exits with its message and code.
    static func main() async {
        // First, while nothing else has been opened.
        StandardStreams.openClosed()
        Signals.ignoreBrokenPipes()
        var command: any ParsableCommand
        do throws(Refusal) {
            try Self.refuseRepairedArguments()
            command = try Self.command(for: Array(CommandLine.arguments.dropFirst()))
        } catch {
            error.exit()
        }
        do {
            if var command = command as? any AsyncParsableCommand {
                try await command.run()
            } else {
                try command.run()
            }
        } catch let error as ValidationError {
            Refusal.usage(error.message, of: Self.path(of: type(of: command)) ?? "").exit()
        } catch let failure as StandardOutput.Failure {
            Self.exit(by: failure)
        } catch let failure as Input.Failure {
            StandardError.line("error: \(failure)")
            Self.exit(withError: ExitCode.failure)
        } catch {
            Refusal.parsing(error, Self.exitCode(for: error)).exit()
        }
    }

    /// Exits because the output cannot be written.
    private static func exit(by failure: StandardOutput.Failure) -> Never {
        if !failure.hasNoReader { StandardError.line("error: \(failure)") }
        self.exit(withError: ExitCode.failure)
    }

    /// Refuses arguments that are not UTF-8, whose other bytes `CommandLine.arguments` has replaced. They are not
    /// shown: one may be a secret.
    private static func refuseRepairedArguments() throws(Refusal) {
        for number in 1..<max(1, Int(CommandLine.argc)) {
            guard let argument = CommandLine.unsafeArgv[number], String(validatingCString: argument) == nil else {
                continue
            }
            throw .usage(
                """
                Argument \(number) is not UTF-8, and would be changed. Give text in UTF-8, other bytes in a file or by \
                standard input, and a file by a name in UTF-8.
                """,
                of: ""
            )
        }
    }

    /// The options of all commands. They are gathered only after an error, because that takes longer than the rest of a
    /// start.
    private static let commands = Commands(of: HHSocketCommand.self)

    /// The command that these arguments describe.
    static func command(for arguments: [String]) throws(Refusal) -> any ParsableCommand {
        do {
            return try Self.parseAsRoot(arguments)
        } catch {
            // ArgumentParser checks values, and lets commands check their options, before it searches for unknown
            // options. The unknown one is often the cause of the error.
            let code = Self.exitCode(for: error)
            if code != .success, let unknown = Self.commands?.unknownOption(in: arguments) {
                throw .usage(unknown.description, of: unknown.command)
            }
            throw .parsing(error, code)
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

    /// Wrong usage with the usage of a subcommand, in the form in which ArgumentParser reports wrong usage.
    private static func text(ofUsageError message: String, of path: String) -> String {
        let subcommand = path.isEmpty ? nil : Self.subcommand(at: path)
        let usage = subcommand.map { Self.usageString(for: $0) } ?? Self.usageString()
        let name = subcommand == nil ? "hhsocket" : "hhsocket \(path)"
        return """
            Error: \(message)
            Usage: \(usage)
              See '\(name) --help' for more information.
            """
    }
}
