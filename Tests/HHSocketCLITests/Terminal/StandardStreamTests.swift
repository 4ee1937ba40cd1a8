// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketTesting
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

/// Standard streams, signals and arguments in the states in which other programs start a command.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct StandardStreamTests {
    private static let hasFullDevice = FileManager.default.fileExists(atPath: "/dev/full")

    /// Commands that print something without a server.
    private static let local = [
        ["--help"], ["--version"], ["help", "call"], [], ["stomp"], ["--generate-completion-script", "bash"],
        ["describe", "--proto", TestProtos.descriptorSet], ["describe", "--proto", TestProtos.descriptorSet, "--json"],
        ["demo"],
        ["serve", "--port", "0", "--until-eof"],
    ]

    // MARK: Output that fails

    /// Returns the outcome with the standard output on a full disk.
    private func full(_ arguments: [String]) async throws -> Command.Outcome {
        try await ShellCommand.run("exec \"$hh\" \"$@\" >/dev/full", arguments)
    }

    private func isFull(_ outcome: Command.Outcome, _ command: [String]) {
        #expect(outcome.exitCode == 1, "\(command)")
        let reason = String(cString: strerror(ENOSPC))
        #expect(outcome.errors.contains("error: Cannot write to stdout: \(reason)\n"), "\(command): \(outcome.errors)")
    }

    @Test(.enabled(if: Self.hasFullDevice), arguments: Self.local)
    func anOutputThatCannotBeWrittenIsAnError(arguments: [String]) async throws {
        self.isFull(try await self.full(arguments), arguments)
    }

    @Test(.enabled(if: Self.hasFullDevice)) func anOutputThatCannotBeWrittenEndsConversations() async throws {
        let folder = try TemporaryFolder()
        let file = try folder.write("content", to: "file")
        try await withServe(["--push", "2001:news", "--push-every", "10ms", "--store", folder.file("store")]) {
            address,
            _ in
            for command in [
                ["call", address, "--type", "1000", "--body", "x"], ["call", address, "--type", "1000", "--json"],
                ["call", address, "--type", "1010", "--body", "3 5", "--stream"],
                ["call", address, "--type", "1011", "--items"], ["listen", address],
                ["listen", address, "--count", "1"],
                ["put", file, address],
            ] { self.isFull(try await self.full(command), command) }
        }
        try await withServer(Command(["lines-serve", "--port", "0"])) { address, _ in
            for options in [["--count", "1"], ["--once"], []] {
                let command = ["lines", address, "--send", "x"] + options
                // Without a count the answer may come after the end.
                let outcome = try await self.full(command)
                if options == ["--count", "1"] || outcome.exitCode != 0 { self.isFull(outcome, command) }
            }
        }
        try await withServer(Command(["ws-serve", "--port", "0"])) { address, _ in
            let command = ["ws", "ws://\(address)/", "--send", "x", "--count", "1"]
            self.isFull(try await self.full(command), command)
        }
    }

    @Test(.enabled(if: Self.hasFullDevice)) func aMessageThatCouldNotBePrintedIsNotAcknowledged() async throws {
        let broker = try await MockBroker()
        let command = try ShellCommand.start(
            "exec \"$hh\" \"$@\" >/dev/full",
            ["stomp", "subscribe", "stomp://\(broker.endpoint)", "/queue/q", "--ack", "client", "--heartbeat", "0"]
        )
        try await broker.publish("hello", to: "/queue/q")
        self.isFull(try await command.outcome(), ["stomp", "subscribe"])
        #expect(!broker.received(onConnection: 0).contains { $0.command == .ack })
    }

    /// A reader that has gone, such as `head`, wants no more.
    @Test(arguments: Self.local) func aReaderThatHasGoneIsNotReported(arguments: [String]) async throws {
        // The pipe has no reader when the command starts: it is the one of a process that has ended.
        let outcome = try await ShellCommand.run(
            "mkfifo \"$1\"; : <\"$1\" & exec 4>\"$1\"; wait; shift; exec \"$hh\" \"$@\" >&4",
            [try TemporaryFolder().file("fifo")] + arguments
        )
        #expect(!outcome.errors.contains("stdout"), "\(outcome.errors)")
    }

    #if os(Linux)
    /// A reader that is slow does not lose the reason for the exit code.
    @Test(arguments: [
        ["ws", "ws://127.0.0.1:1/", "--once", "--send", "x"], ["lines", "127.0.0.1:1", "--once", "--send", "x"],
        ["stomp", "subscribe", "stomp://127.0.0.1:1", "/queue/q"],
        ["stomp", "send", "stomp://127.0.0.1:1", "/queue/q", "--body", "x"],
        ["call", "127.0.0.1:1", "--type", "1000", "--body", "x"],
    ]) func anErrorIsWrittenBeforeTheEnd(arguments: [String]) async throws {
        // Its pipe is full until the command has failed, and would have ended. Nothing tells when a command that does
        // not end waits for its reader, so the script waits for a second.
        let script = """
            fifo=$1; shift
            mkfifo "$fifo"; exec 5<>"$fifo"
            head -c 65536 /dev/zero >&5
            "$hh" "$@" 2>&5 5>&- & pid=$!
            sleep 1
            tr -d '\\0' <"$fifo" >&2 5>&- & reader=$!
            exec 5>&-
            wait $pid; code=$?
            wait $reader
            exit $code
            """
        let folder = try TemporaryFolder()
        let outcome = try await ShellCommand.run(script, [folder.file("fifo")] + arguments)
        withExtendedLifetime(folder) {}
        #expect(outcome.exitCode == 1)
        #expect(outcome.errors.contains("connection refused"), "\(outcome.errors)")
    }
    #endif

    // MARK: Streams that are closed

    @Test(arguments: Self.local) func aClosedOutputIsAnErrorToo(arguments: [String]) async throws {
        let outcome = try await ShellCommand.run("exec \"$hh\" \"$@\" >&-", arguments)
        #expect(outcome.exitCode == 1)
        let reason = String(cString: strerror(EBADF))
        #expect(outcome.errors.contains("error: Cannot write to stdout: \(reason)\n"), "\(outcome.errors)")
    }

    @Test func aClosedInputIsNotAnEmptyOne() async throws {
        let outcome = try await ShellCommand.run("exec \"$hh\" inspect - <&-")
        #expect(outcome.exitCode == 1)
        #expect(outcome.errors.hasPrefix("error: Cannot read stdin: "), "\(outcome.errors)")
    }

    @Test func aServerWithoutStandardStreamsServes() async throws {
        let folder = try TemporaryFolder()
        let address = "unix:\(folder.file("socket"))"
        let command = ["serve", "--host", address, "--log", "trace"]
        let server = try ShellCommand.start("exec \"$hh\" \"$@\" <&- >&- 2>&-", command)
        let call = try await Command.run(
            ["call", address, "--type", "1000", "--body", "x", "--wait", "--timeout", "100s"]
        )
        #expect(call.text == "x", "\(call.errors)")
        server.signal(SIGTERM)
        // It could not announce its address.
        #expect(try await server.outcome().exitCode == 1)
    }

    #if os(Linux)
    @Test func nothingThatIsOpenedGetsTheNumberOfAStandardStream() async throws {
        let folder = try TemporaryFolder()
        let command = ["serve", "--host", "unix:\(folder.file("socket"))"]
        let server = try ShellCommand.start("exec \"$hh\" \"$@\" <&- >&- 2>&-", command)
        try await eventually("it listens") { FileManager.default.fileExists(atPath: folder.file("socket")) }
        let descriptors = "/proc/\(server.process)/fd"
        for stream in 0...2 {
            let file = try FileManager.default.destinationOfSymbolicLink(atPath: "\(descriptors)/\(stream)")
            #expect(file == "/dev/null")
        }
    }
    #endif

    // MARK: Signals

    @Test(arguments: [
        ["serve", "--port", "0"], ["lines-serve", "--port", "0"], ["ws-serve", "--port", "0"],
    ])
    func aSignalThatWasIgnoredAtTheStartStaysIgnored(arguments: [String]) async throws {
        let script = "trap '' INT HUP; exec \"$hh\" \"$@\""
        let server = try ShellCommand.start(script, arguments + ["--announce", "%h:%p"])
        _ = try await server.lines()
        for _ in 0..<3 { server.signal(SIGINT) }
        // It comes later, but may be handled earlier.
        if arguments[0] == "serve" {
            server.signal(SIGHUP)
            try await server.complains("SIGHUP is ignored: the server has no certificate to reload")
        }
        #expect(kill(server.process, 0) == 0)
        server.signal(SIGTERM)
        #expect(try await server.outcome().exitCode == 0)
    }

    #if os(Linux)
    /// Whether one of the descriptors of a process receives a signal.
    private static func waits(_ command: Command, for number: CInt) throws -> Bool {
        let folder = "/proc/\(command.process)/fdinfo"
        return try FileManager.default.contentsOfDirectory(atPath: folder).contains { name in
            guard let text = try? String(contentsOfFile: "\(folder)/\(name)", encoding: .utf8),
                let mask = text.split(separator: "\n").first(where: { $0.hasPrefix("sigmask:") }),
                let bits = UInt64(mask.dropFirst("sigmask:".count).filter { !$0.isWhitespace }, radix: 16)
            else { return false }
            return bits & 1 << UInt64(number - 1) != 0
        }
    }

    /// Every command that catches signals: it ignores what it was started to ignore, and nothing waits for it.
    @Test(arguments: [
        ["listen", "127.0.0.1:1"], ["lines", "127.0.0.1:1"], ["ws", "ws://127.0.0.1:1/"],
        ["call", "127.0.0.1:1", "--type", "1000", "--wait", "--timeout", "100s"], ["serve", "--port", "0"],
        ["get", "127.0.0.1:1", "x", "-", "--timeout", "100s"], ["stomp", "subscribe", "stomp://127.0.0.1:1", "/q"],
    ])
    func noCommandWaitsForASignalThatItWasStartedToIgnore(arguments: [String]) async throws {
        let command = try ShellCommand.start("trap '' INT; exec \"$hh\" \"$@\"", arguments, input: Data())
        try await eventually("it waits for SIGTERM, or has ended") {
            (try? Self.waits(command, for: SIGTERM)) ?? true
        }
        #expect((try? Self.waits(command, for: SIGINT)) != true)
        command.signal(SIGKILL)
    }
    #endif

    @Test func signalsThatWereIgnoredAreReceivedOnRequest() async throws {
        signal(SIGUSR2, SIG_IGN)
        defer { signal(SIGUSR2, SIG_DFL) }
        let ignored = Signals([SIGUSR2])
        let wanted = Signals([SIGUSR2], ignoredToo: true)
        kill(getpid(), SIGUSR2)
        #expect(await wanted.stream.first { _ in true } == SIGUSR2)
        ignored.continuation.finish()
        #expect(await ignored.stream.first { _ in true } == nil)
    }

    // MARK: Arguments

    @Test(arguments: ["--body", "--body-file", "--idempotency-key", "--token"])
    func anArgumentThatIsNotUTF8IsRefused(option: String) async throws {
        let outcome = try await ShellCommand.run(
            "exec \"$hh\" call 127.0.0.1:1 --type 1000 \"$1\" \"$(printf 'caf\\351')\"",
            [option]
        )
        #expect(outcome.exitCode == 64)
        #expect(outcome.output.isEmpty)
        #expect(outcome.errors.hasPrefix("Error: Argument 6 is not UTF-8, and would be changed."), "\(outcome.errors)")
    }

    @Test func anArgumentInUTF8IsSentAsItIs() async throws {
        try await withServe { address, _ in
            let outcome = try await Command.run(["call", address, "--type", "1000", "--body", "café \u{FFFD} 😀"])
            #expect(outcome.text == "café \u{FFFD} 😀")
        }
    }
}
