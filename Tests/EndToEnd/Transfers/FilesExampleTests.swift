// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport
import Testing

/// `Examples/Files`, used by two people.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct FilesExampleTests {
    private static let program = Command.executable("files-example")

    private func withServer(_ body: (TemporaryFolder, [String]) async throws -> Void) async throws {
        let folder = try TemporaryFolder()
        let server = try Command(["serve", folder.file("store"), "0"], of: Self.program)
        defer { server.signal(SIGKILL) }
        let line = try #require(try await server.lines().first)
        let port = try #require(line.split(separator: ":").last.map(String.init))
        try await body(folder, ["127.0.0.1", port])
        withExtendedLifetime(folder) {}
    }

    @Test func printsWhatIsExpected() async throws {
        try await self.withServer { folder, server in
            let photo = try folder.write(String(repeating: "hhsocket\n", count: 333_333) + "end", to: "photo")
            var printed = ""
            for arguments in [
                ["put", photo, "photo"], ["put", photo, "photo"], ["find", "photo"],
                ["get", "photo", folder.file("copy")],
            ] {
                let outcome = try await Command.run(server + arguments, of: Self.program)
                #expect(outcome.exitCode == 0, "\(outcome)")
                // The percentages depend on the machine.
                printed += outcome.lines.filter { !$0.hasSuffix("%") }.map { "\($0)\n" }.joined()
            }
            let expected = packageFolder.appendingPathComponent("Examples/Files/expected.txt")
            #expect(printed == (try String(contentsOf: expected, encoding: .utf8)))
            #expect(FileManager.default.contentsEqual(atPath: photo, andPath: folder.file("copy")))
        }
    }

    @Test func existingFilesAreNotReplaced() async throws {
        try await self.withServer { folder, server in
            let (first, second) = (try folder.write("one", to: "one"), try folder.write("two", to: "two"))
            #expect(try await Command.run(server + ["put", first, "a"], of: Self.program).exitCode == 0)
            let outcome = try await Command.run(server + ["put", second, "a"], of: Self.program)
            #expect(outcome.exitCode == 1 && outcome.errors.contains("denied: a is there already"), "\(outcome)")
            #expect(try String(contentsOfFile: folder.file("store/a"), encoding: .utf8) == "one")
        }
    }

    @Test(arguments: [["put"], ["get", "a"], ["get", "a/b", "x"], ["find", ".."]])
    func wrongArgumentsAreErrors(arguments: [String]) async throws {
        let outcome = try await Command.run(["127.0.0.1", "1"] + arguments, of: Self.program)
        #expect(outcome.exitCode != 0)
    }
}
