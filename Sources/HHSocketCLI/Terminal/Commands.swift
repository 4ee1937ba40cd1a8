// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import Foundation
import HHSocketMessage

/// The subcommands of a command and their options, as ArgumentParser describes them.
struct Commands {
    /// An option that a command does not have.
    struct UnknownOption: Hashable, CustomStringConvertible {
        /// The subcommand's names, such as `stomp send`; empty for the command itself.
        var command: String
        /// The option as written, such as `--typ`.
        var option: String
        /// The option with the nearest name, if one is near.
        var suggestion: String?

        var description: String {
            "Unknown option '\(self.option)'" + (self.suggestion.map { ". Did you mean '\($0)'?" } ?? "")
        }
    }

    /// The parts of ArgumentParser's description that matter here; its keys are those of `ToolInfoV0`.
    private struct Tool: Decodable {
        var command: Command
    }

    private struct Command: Decodable {
        var commandName: String
        var subcommands: [Command]?
        var arguments: [Argument]?
    }

    private struct Argument: Decodable {
        var kind: String
        var parsingStrategy: String
        var names: [Name]?
    }

    private struct Name: Decodable {
        var kind: String
        var name: String

        /// The name as written on a command line.
        var text: String { (self.kind == "long" ? "--" : "-") + self.name }
    }

    /// ArgumentParser's own options, which its description may omit.
    private static let builtIn = ["--help", "-h", "--version", "--generate-completion-script", "--help-hidden"]

    private let root: Command

    /// Creates the description; nil if ArgumentParser's is not in the expected form.
    init?(of command: any ParsableCommand.Type) {
        guard let tool = try? JSONDecoder().decode(Tool.self, from: Data(command._dumpHelp().utf8)) else { return nil }
        self.root = tool.command
    }

    /// Returns the first argument that has the form of an option but is not an option of its command.
    ///
    /// - Parameter arguments: The arguments of the process, without its name.
    func unknownOption(in arguments: [String]) -> UnknownOption? {
        var rest = arguments[...]
        var command = self.root
        var names: [String] = []
        while let subcommands = command.subcommands, let first = rest.first, !first.hasPrefix("-") {
            guard let subcommand = subcommands.first(where: { $0.commandName == first }) else { return nil }
            // `help` has only values, and reports them itself.
            guard first != "help" else { return nil }
            command = subcommand
            names.append(first)
            rest = rest.dropFirst()
        }
        let options = Self.options(of: command)
        while let argument = rest.popFirst() {
            // All arguments after two dashes are values.
            if argument == "--" { return nil }
            guard let option = Self.option(in: argument) else { continue }
            guard let known = options[option] else {
                guard !Self.builtIn.contains(option) else { continue }
                let known = options.keys.filter { $0.hasPrefix("--") }
                return UnknownOption(
                    command: names.joined(separator: " "),
                    option: option,
                    suggestion: NearestNames.nearest(to: option, among: known).first
                )
            }
            // Its value is the next argument even if it looks like an option.
            if known.kind == "option", known.parsingStrategy == "unconditional", !argument.contains("=") {
                _ = rest.popFirst()
            }
        }
        return nil
    }

    private static func options(of command: Command) -> [String: Argument] {
        var options: [String: Argument] = [:]
        for argument in command.arguments ?? [] {
            for name in argument.names ?? [] { options[name.text] = argument }
        }
        return options
    }

    /// Returns the option that an argument begins with: `--name`, `--name=value`, `-n` and `-nvalue`. Nil for values,
    /// and for negative numbers.
    private static func option(in argument: String) -> String? {
        if argument.hasPrefix("--") { return String(argument.prefix { $0 != "=" }) }
        guard argument.hasPrefix("-"), let letter = argument.dropFirst().first, letter.isLetter else { return nil }
        return "-\(letter)"
    }
}
