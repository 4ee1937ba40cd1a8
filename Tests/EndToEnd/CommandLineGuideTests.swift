// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport
import Testing

/// `Docs/CLI.md`: its lines run one after the other, and the options that any page names exist.
@Suite(.tags(.io), .timeLimit(.minutes(10))) struct CommandLineGuideTests {
    /// A folder in which the page's lines find `hhsocket`, the examples and the protos, and may write.
    private struct Workspace {
        let folder: TemporaryFolder

        init() throws {
            let folder = try TemporaryFolder()
            self.folder = folder
            let files = FileManager.default
            for path in ["bin", ".build/debug"] {
                try files.createDirectory(atPath: folder.file(path), withIntermediateDirectories: true)
            }
            let links = [
                "bin/hhsocket": Command.hhsocket.path,
                ".build/debug/chat-example": Command.executable("chat-example").path,
                "Protos": packageFolder.appendingPathComponent("Protos").path,
            ]
            for (name, target) in links {
                try files.createSymbolicLink(atPath: folder.file(name), withDestinationPath: target)
            }
        }

        /// Lines of the page; the first that fails ends them. A server takes the place of the shell.
        func start(_ lines: String) throws -> Command {
            let shell = try #require(Command.installed("sh", or: ["/bin"]))
            return try Command(["-ec", "cd '\(self.folder.path)'; PATH=$PWD/bin:$PATH; \(lines)"], of: shell)
        }
    }

    @Test func theLinesRunInTheirOrder() async throws {
        let workspace = try Workspace()
        var server: Command?
        // The addresses of the page, and their replacements.
        var addresses: [(String, String)] = []
        let blocks = try DocumentationPage("Docs/CLI.md").blocks("sh")
        #expect(blocks.count >= 7)
        for block in blocks {
            if let serving = block.wholeMatch(of: /(.*hhsocket serve --port|.*chat-example serve) ([0-9]+)(.*)/) {
                server?.signal(SIGTERM)
                let (command, port, options) = (serving.output.1, serving.output.2, serving.output.3)
                let next = try workspace.start("exec \(command) 0\(options)")
                let line = try #require(try await next.lines().first)
                let address = try #require(line.firstMatch(of: /127\.0\.0\.1:[0-9]+/)).output
                addresses = [("127.0.0.1:\(port)", String(address))]
                server = next
            } else {
                var lines = block
                for (old, new) in addresses { lines = lines.replacingOccurrences(of: old, with: new) }
                // Some blocks run several benchmarks, whose passes take seconds in a debug build.
                let outcome = try await workspace.start(lines).outcome(within: patience * 5)
                #expect(outcome.exitCode == 0, "\(lines)\n\(outcome.text)\(outcome.errors)")
            }
        }
        server?.signal(SIGTERM)
        withExtendedLifetime(workspace.folder) {}
    }

    /// The commands of a page: each subcommand of `hhsocket`, and the rest of its line.
    private static func commands(of page: DocumentationPage) -> [(name: String, line: String)] {
        let languages = ["", "sh"]
        let lines = languages.flatMap { page.blocks($0) }.flatMap { $0.components(separatedBy: "\n") }
        let spans = page.prose.split(separator: "`", omittingEmptySubsequences: false).enumerated()
            .compactMap { $0.offset % 2 == 1 ? String($0.element) : nil }
        return (lines + spans).compactMap { line in
            guard line.hasPrefix("hhsocket ") else { return nil }
            let words = line.split(separator: " ").map(String.init)
            guard words.count > 1, words[1].first?.isLetter == true, words[1] != "help" else { return ("", line) }
            // The command `stomp` has subcommands.
            return (words[1] == "stomp" && words.count > 2 ? "stomp \(words[2])" : words[1], line)
        }
    }

    /// The options in a line.
    private static func options(in line: String) -> Set<String> {
        // Before a comment.
        let command = line.components(separatedBy: " #")[0]
        return Set(command.matches(of: /(?:^|\s)(--[a-z][a-z-]*)/).map { String($0.output.1) })
    }

    @Test func everyOptionThatAPageNamesExists() async throws {
        var named: [String: Set<String>] = [:]
        for path in try DocumentationPage.paths {
            for (name, line) in Self.commands(of: try DocumentationPage(path)) {
                named[name, default: []].formUnion(Self.options(in: line))
            }
        }
        #expect(named.count >= 5)
        for (name, options) in named {
            let help = try await Command.run(name.isEmpty ? ["--help"] : ["help"] + name.components(separatedBy: " "))
            #expect(help.exitCode == 0, "\(name): \(help.errors)")
            // Options of ArgumentParser, which the help does not list.
            let known = Set(help.text.matches(of: /--[a-z][a-z-]*/).map { String($0.output) })
                .union(["--generate-completion-script", "--help"])
            #expect(options.subtracting(known) == [], "hhsocket \(name)")
        }
    }

    @Test func optionsOfStompExist() async throws {
        let section = try DocumentationPage("Docs/CLI.md", section: "Messages through a broker: `stomp`")
        let helps = [
            try await Command.run(["help", "stomp", "send"]).text,
            try await Command.run(["help", "stomp", "subscribe"]).text,
        ]
        let rows = section.prose.components(separatedBy: "\n").filter { $0.hasPrefix("| `") }
        #expect(rows.count >= 9)
        for row in rows {
            let commands = row.hasPrefix("| `send`") ? [helps[0]] : row.hasPrefix("| `subscribe`") ? [helps[1]] : helps
            for option in row.matches(of: /`(--[a-z][a-z-0-9]*)/).map({ String($0.output.1) }) {
                #expect(commands.allSatisfy { $0.contains(option) }, "\(option)")
            }
        }
    }

    /// The table of options of `call`, and the text of `bench`.
    @Test(arguments: [("call", "Calls: `call`"), ("bench", "Measuring: `bench`")])
    func optionsOfTheSectionExist(name: String, section: String) async throws {
        let section = try DocumentationPage("Docs/CLI.md", section: section)
        let options = section.prose.matches(of: /`(--[a-z][a-z-]*)/).map { String($0.output.1) }
        #expect(options.count >= 6)
        let help = try await Command.run(["help", name]).text
        // `listen --hello` is another command's, and has the same name here.
        for option in options { #expect(help.contains(option), "hhsocket \(name) has no \(option)") }
    }
}
