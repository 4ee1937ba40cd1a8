// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import TestSupport
import Testing

@testable import HHSocketCLI

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// `put`, `get` and `serve --store`.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct TransferCommandTests {
    /// Runs `body` with a folder with a store, and its server.
    private func withStore(
        _ options: [String] = [],
        _ body: (String, TemporaryFolder, Command) async throws -> Void
    ) async throws {
        let folder = try TemporaryFolder()
        try await withServe(["--store", folder.file("store")] + options) { address, server in
            try await body(address, folder, server)
        }
        withExtendedLifetime(folder) {}
    }

    private static func content(_ size: Int, seed: UInt64 = 1) -> Data {
        var generator = SeededGenerator(seed: seed)
        return Data(generator.bytes(size))
    }

    private func write(_ content: Data, _ folder: TemporaryFolder, _ name: String = "source") throws -> String {
        let path = folder.file(name)
        try content.write(to: URL(fileURLWithPath: path))
        return path
    }

    #if os(Linux)
    /// The system says that it is empty.
    @Test func aFileThatTheSystemGeneratesIsNotPutAsAnEmptyOne() async throws {
        try await self.withStore { address, folder, _ in
            let outcome = try await Command.run(["put", "/proc/version", address])
            #expect(outcome.exitCode == 1)
            #expect(outcome.output.isEmpty)
            #expect(outcome.errors.hasPrefix("error: sourceChanged: put of /proc/version: "), "\(outcome.errors)")
        }
    }
    #endif

    private func read(_ folder: TemporaryFolder, _ name: String) throws -> Data {
        try Data(contentsOf: URL(fileURLWithPath: folder.file(name)))
    }

    private func hidden(_ folder: TemporaryFolder) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: folder.path).filter { $0.hasPrefix(".") }
    }

    @Test func fileComesAndGoes() async throws {
        try await self.withStore { address, folder, server in
            let content = Self.content(2_000_000)
            let path = try self.write(content, folder)
            let hash = BuiltIn.sha256Hex(of: .init(bytes: content))
            let put = try await Command.run(["put", path, address])
            #expect(put.exitCode == 0 && put.text == "\(hash)\n" && put.errors == "", "\(put)")
            #expect(try self.read(folder, "store/\(hash)") == content)
            let get = try await Command.run(["get", address, hash, folder.file("copy")])
            #expect(get.exitCode == 0 && get.output.isEmpty && get.errors == "", "\(get)")
            #expect(try self.read(folder, "copy") == content)
            #expect(try self.hidden(folder) == [])
            #expect(server.errors == "")
        }
    }

    @Test(arguments: [["--id", "name.txt"], ["--id=name.txt"]])
    func idIsAName(option: [String]) async throws {
        try await self.withStore { address, folder, _ in
            let path = try self.write(Data("hello".utf8), folder)
            let put = try await Command.run(["put", path, address] + option)
            #expect(put.exitCode == 0 && put.text == "name.txt\n", "\(put)")
            #expect(try self.read(folder, "store/name.txt") == Data("hello".utf8))
        }
    }

    @Test(arguments: ["-x", "-", "--", "--help", "-.", "..."])
    func idsMayResembleOptions(id: String) async throws {
        try await self.withStore { address, folder, _ in
            let path = try self.write(Data("hello".utf8), folder)
            let put = try await Command.run(["put", path, address, "--id=\(id)"])
            #expect(put.exitCode == 0 && put.text == "\(id)\n", "\(put)")
            let copy = folder.file("copy")
            let get = try await Command.run(["get", address, "--", id, copy])
            #expect(get.exitCode == 0, "\(get)")
            #expect(try self.read(folder, "copy") == Data("hello".utf8))
        }
    }

    @Test func fileIsTheIdInTheCurrentFolder() async throws {
        try await self.withStore { address, folder, _ in
            for name in ["-x", "-", "plain"] {
                _ = try self.write(Data(name.utf8), folder, "store/\(name)")
                try FileManager.default.createDirectory(atPath: folder.file("work"), withIntermediateDirectories: true)
                let shell = try #require(Command.installed("sh", or: ["/bin"]))
                let line = "cd '\(folder.file("work"))' && exec '\(Command.hhsocket.path)' get \(address) -- \(name)"
                let get = try await Command.run(["-c", line], of: shell)
                #expect(get.exitCode == 0 && get.output.isEmpty, "\(get)")
                #expect(try self.read(folder, "work/\(name)") == Data(name.utf8))
            }
        }
    }

    @Test func standardOutputIsADash() async throws {
        try await self.withStore { address, folder, _ in
            let content = Self.content(1_000_000)
            _ = try self.write(content, folder, "store/a")
            let get = try await Command.run(["get", address, "a", "-"])
            #expect(get.exitCode == 0 && get.output == content && get.errors == "")
            let nothing = try await Command.run(["get", address, "b", "-"])
            #expect(nothing.exitCode == 1 && nothing.output.isEmpty)
        }
    }

    @Test func aClosedOutputIsAnError() async throws {
        try await self.withStore { address, folder, _ in
            _ = try self.write(Self.content(1_000_000), folder, "store/a")
            let shell = try #require(Command.installed("bash", or: ["/bin"]))
            let line = "set -o pipefail; '\(Command.hhsocket.path)' get \(address) a - | head -c 1 >/dev/null"
            let get = try await Command.run(["-c", line], of: shell)
            #expect(get.exitCode == 1)
            #expect(get.errors.hasPrefix("error: fileFailed: "), "\(get.errors)")
        }
    }

    @Test func secondPutSendsNothing() async throws {
        try await self.withStore { address, folder, _ in
            let path = try self.write(Self.content(500_000), folder)
            for _ in 0..<2 {
                let put = try await Command.run(["put", path, address, "--id", "a"])
                #expect(put.exitCode == 0 && put.text == "a\n" && put.errors == "", "\(put)")
            }
        }
    }

    @Test func connectionOptionsAreThoseOfCalls() async throws {
        let files = try TestServerFiles()
        try await self.withStore(["--cert", files.certificate, "--key", files.key]) { address, folder, _ in
            let path = try self.write(Data("hello".utf8), folder)
            let plain = try await Command.run(["put", path, address, "--timeout", "300ms"])
            #expect(plain.exitCode == 1 && plain.errors.hasPrefix("error: stalled: "), "\(plain)")
            let put = try await Command.run(["put", path, address, "--id", "a", "--ca", files.ca, "--verbose"])
            #expect(put.exitCode == 0 && put.text == "a\n", "\(put)")
            #expect(put.errors.contains("127.0.0.1"))
            let get = try await Command.run(["get", address, "a", "-", "--ca", files.ca, "--ipv4"])
            #expect(get.exitCode == 0 && get.text == "hello", "\(get)")
        }
        withExtendedLifetime(files) {}
    }

    @Test func typesAreAnOption() async throws {
        try await self.withStore(["--transfer-types", "0x1000"]) { address, folder, _ in
            let path = try self.write(Data("hello".utf8), folder)
            let other = try await Command.run(["put", path, address])
            #expect(other.exitCode == 1 && other.errors.hasPrefix("error: noStore: "), "\(other)")
            let put = try await Command.run(["put", path, address, "--id", "a", "--transfer-types", "4096"])
            #expect(put.exitCode == 0, "\(put)")
            let get = try await Command.run(["get", address, "a", "-", "--transfer-types", "0x1000"])
            #expect(get.text == "hello", "\(get)")
        }
    }

    // MARK: Errors

    @Test func errorsAreReportedAtOnce() async throws {
        try await self.withStore(["--max-unfinished-bytes-per-client", "10"]) { address, folder, server in
            let path = try self.write(Data("more than ten bytes".utf8), folder)
            let old = try self.write(Data("old".utf8), folder, "old")
            try FileManager.default.createDirectory(atPath: folder.file("folder"), withIntermediateDirectories: false)
            try #require(mkfifo(folder.file("pipe"), 0o600) == 0)
            for (arguments, code) in [
                (["put", path, address], "quota"),
                (["put", folder.file("missing"), address], "fileFailed"),
                (["put", folder.path, address], "fileFailed"),
                (["put", folder.file("pipe"), address], "fileFailed"),
                (["put", "/dev/null", address], "fileFailed"),
                (["put", "-", address], "fileFailed"),
                (["get", address, "nothing", old], "notFound"),
                (["get", address, "nothing", folder.file("folder")], "fileFailed"),
                (["get", address, "nothing", folder.file("missing/x")], "fileFailed"),
            ] {
                let outcome = try await Command.run(arguments)
                #expect(outcome.exitCode == 1 && outcome.output.isEmpty, "\(arguments): \(outcome)")
                #expect(outcome.errorLines.count == 1 && outcome.errors.hasPrefix("error: \(code): "), "\(outcome)")
                #expect(!outcome.errors.contains("\u{1B}") && !outcome.errors.contains("\r"))
            }
            #expect(try self.read(folder, "old") == Data("old".utf8))
            #expect(try self.hidden(folder) == [])
            #expect(server.errors == "")
        }
    }

    @Test func serverWithoutAStoreIsAnError() async throws {
        try await withServe { address, _ in
            let folder = try TemporaryFolder()
            let path = try self.write(Data("x".utf8), folder)
            for arguments in [["put", path, address], ["get", address, "x", "-"]] {
                let outcome = try await Command.run(arguments)
                #expect(outcome.exitCode == 1 && outcome.errors.hasPrefix("error: noStore: "), "\(outcome)")
            }
        }
    }

    @Test func connectionsAreTriedUntilTheTimeIsUp() async throws {
        let folder = try TemporaryFolder()
        let path = try self.write(Data("x".utf8), folder)
        for arguments in [["put", path, "127.0.0.1:1"], ["get", "127.0.0.1:1", "x", folder.file("copy")]] {
            let start = ContinuousClock.now
            let outcome = try await Command.run(arguments + ["--timeout", "1s"])
            #expect(outcome.exitCode == 1 && outcome.errors.hasPrefix("error: stalled: "), "\(outcome)")
            #expect(ContinuousClock.now - start >= .seconds(0.9))
        }
        #expect(try self.hidden(folder) == [])
    }

    /// The command waits for the first connection as well.
    @Test func theServerMayComeLater() async throws {
        let folder = try TemporaryFolder()
        let content = Self.content(300_000)
        let path = try self.write(content, folder)
        let address = "unix:\(folder.file("socket"))"
        let put = try Command(["put", path, address, "--id", "a"])
        let server = try Command(["serve", "--host", address, "--store", folder.file("store")])
        let outcome = try await put.outcome()
        #expect(outcome.exitCode == 0 && outcome.text == "a\n", "\(outcome)")
        #expect(try self.read(folder, "store/a") == content)
        server.signal(SIGTERM)
        #expect(try await server.outcome().exitCode == 0)
    }

    @Test(arguments: [
        ["put", "file", "127.0.0.1:1", "--id", "a/b"], ["put", "file", "127.0.0.1:1", "--id="],
        ["put", "file", "127.0.0.1:1", "--id", ".."], ["put", "file", "127.0.0.1:1", "--id", "."],
        ["put", "file", "127.0.0.1:1", "--id", String(repeating: "x", count: 129)],
        ["put", "file", "127.0.0.1:1", "--id", "ä"], ["put", "file"], ["put"], ["put", "file", "nowhere"],
        ["put", "file", "127.0.0.1:1", "--timeout", "0"], ["put", "file", "127.0.0.1:1", "--format", "mars"],
        ["put", "file", "127.0.0.1:1", "--transfer-types", "1"],
        ["put", "file", "127.0.0.1:1", "--transfer-types", "x"],
        ["get", "127.0.0.1:1", ".."], ["get", "127.0.0.1:1", "../x"], ["get", "127.0.0.1:1", ""],
        ["get", "127.0.0.1:1"], ["get", "127.0.0.1:1", "-x"], ["get", "127.0.0.1:1", "a", "b", "c"],
        ["get", "127.0.0.1:1", "a b"], ["serve", "--max-unfinished", "1"], ["serve", "--unfinished-lifetime", "1d"],
        ["serve", "--store", "x", "--max-unfinished", "0"], ["serve", "--store", "x", "--format", "mars"],
        ["serve", "--store", "x", "--transfer-types", "536870911"],
    ])
    func wrongUsageIs64(arguments: [String]) async throws {
        let outcome = try await WrongUsage(parsing: arguments)
        #expect(outcome.exitCode == 64, "\(outcome)")
        #expect(outcome.output.isEmpty)
    }

    @Test func storeIsMadeIfItsParentExists() async throws {
        let folder = try TemporaryFolder()
        let file = try self.write(Data("x".utf8), folder)
        for path in [folder.file("missing/store"), file, "\(file)/store"] {
            let outcome = try await Command.run(["serve", "--port", "0", "--store", path])
            #expect(outcome.exitCode == 1 && outcome.output.isEmpty, "\(outcome)")
            #expect(outcome.errors.hasPrefix("error: storeFailed: ") && outcome.errors.contains(path), "\(outcome)")
        }
        #expect(!FileManager.default.fileExists(atPath: folder.file("missing")))
    }

    // MARK: The terminal

    @Test func aTerminalHasAProgressBar() async throws {
        guard let python = Command.installed("python3") else { return }
        try await self.withStore { address, folder, _ in
            let path = try self.write(Self.content(3_000_000), folder)
            // Standard error is a terminal, standard output a pipe.
            let script = """
                import os, pty, subprocess, sys
                ours, theirs = pty.openpty()
                process = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=theirs)
                os.close(theirs)
                seen = b""
                try:
                    while True:
                        part = os.read(ours, 65536)
                        if not part: break
                        seen += part
                except OSError: pass
                print(process.stdout.read().decode().strip(), process.wait())
                print(seen.decode().replace("\\r", "|"))
                """
            let outcome = try await Command.run(
                ["-c", script, Command.hhsocket.path, "put", path, address, "--id", "a"],
                of: python
            )
            #expect(outcome.text.hasPrefix("a 0\n"), "\(outcome)")
            #expect(
                outcome.text.contains("|put \(path) [########################################] 100 %|"),
                "\(outcome)"
            )
        }
    }

    @Test func barsAreAsLongAsTheShare() {
        func text(_ done: UInt64, _ total: UInt64) -> String? {
            ProgressBar.text("x", ProgressBar.Progress(done: done, total: total))
        }
        #expect(text(0, 0) == nil)
        #expect(text(0, 5) == "x [\(String(repeating: ".", count: 40))] 0 %")
        #expect(text(.max, .max) == "x [\(String(repeating: "#", count: 40))] 100 %")
        #expect(text(1, 2)?.hasSuffix("#....................] 50 %") == true)
        #expect(text(7, 5)?.hasSuffix("] 100 %") == true)
    }
}
