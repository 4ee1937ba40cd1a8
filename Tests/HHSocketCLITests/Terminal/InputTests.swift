// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketTesting
import NIOCore
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

/// What commands read: standard input and files.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct InputTests {
    /// The two ends of a pipe.
    private struct Pipe {
        let input: Input
        let writer: CInt

        init(isNonblocking: Bool = false) throws {
            var ends: [CInt] = [-1, -1]
            try #require(pipe(&ends) == 0)
            if isNonblocking {
                try #require(fcntl(ends[0], F_SETFL, fcntl(ends[0], F_GETFL) | O_NONBLOCK) == 0)
            }
            self.input = Input(ends[0], "the pipe")
            self.writer = ends[1]
        }

        func write(_ text: String) {
            let bytes = Array(text.utf8)
            #expect(systemWrite(self.writer, bytes) == bytes.count)
        }

        func end() { close(self.writer) }
    }

    private static func text(_ line: InputLines.Line?) -> String? {
        if case .bytes(let bytes)? = line { String(buffer: bytes) } else { nil }
    }

    // MARK: Nonblocking input

    /// The property belongs to the open file, which another process may share.
    @Test func aNonblockingInputIsReadToItsEnd() async throws {
        let pipe = try Pipe(isNonblocking: true)
        let lines = InputLines(pipe.input)
        for text in ["one", "", "three"] {
            // Reading begins before anything is written, in all probability.
            let line = Task { try await lines.next() }
            await Task.yield()
            pipe.write(text + "\n")
            #expect(Self.text(try await line.value) == text)
        }
        let end = Task { try await lines.next() }
        pipe.write("last")
        pipe.end()
        #expect(Self.text(try await end.value) == "last")
        #expect(Self.text(try await lines.next()) == nil)
    }

    @Test func aStreamOfItemsWaitsForThoseOfANonblockingInput() async throws {
        try await withServe { address, _ in
            let call = try ShellCommand.start(
                """
                python3 -c 'import fcntl, os; fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_NONBLOCK)'
                exec "$hh" "$@"
                """,
                ["call", address, "--type", "1012", "--items"],
                keepsInputOpen: true
            )
            for number in 1...3 {
                // When an item has come back, the command waits for the next.
                try call.type("item \(number)")
                #expect(try await call.lines(number).last == "item \(number)")
            }
            call.signal(SIGTERM)
            _ = try await call.outcome()
        }
    }

    /// Runs the command with a nonblocking pipe, which is empty when the command reads on, and then has the rest.
    private func outcome(_ arguments: [String], of input: [UInt8]) async throws -> Command.Outcome {
        let script = """
            data=$1; shift
            python3 -c '
            import fcntl, os, struct, sys, termios, time
            data = bytes.fromhex(sys.argv[1])
            for part in (data[:3], data[3:]):
                os.write(1, part)
                for _ in range(30000):
                    if struct.unpack("i", fcntl.ioctl(1, termios.FIONREAD, bytes(4)))[0] == 0: break
                    time.sleep(0.002)
            ' "$data" | {
                python3 -c 'import fcntl, os; fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_NONBLOCK)'
                exec "$hh" "$@"
            }
            """
        let hexadecimal = input.map { String($0 >> 4, radix: 16) + String($0 & 0xF, radix: 16) }.joined()
        return try await ShellCommand.run(script, [hexadecimal] + arguments)
    }

    @Test func aBodyMayComeFromANonblockingInput() async throws {
        try await withServe { address, _ in
            let call = ["call", address, "--type", "1000", "--body-file", "-"]
            let outcome = try await self.outcome(call, of: Array("hello".utf8))
            #expect(outcome.exitCode == 0 && outcome.text == "hello", "\(outcome)")
        }
    }

    @Test func aNonblockingInputIsInspectedToItsEnd() async throws {
        let outcome = try await self.outcome(["inspect", "-"], of: InspectTests.request + InspectTests.request)
        #expect(outcome.exitCode == 0 && outcome.lines.count == 2, "\(outcome)")
        #expect(outcome.lines.first == InspectTests.requestLine)
    }

    // MARK: Failures

    /// Standard input is a folder, which cannot be read: neither is that its end, nor is anything sent.
    @Test(arguments: [
        ["call", "127.0.0.1:1", "--type", "1000", "--body-file", "-"],
        ["call", "127.0.0.1:1", "--proto", TestProtos.descriptorSet, "--method", "test.Echo/Everything"]
            + ["--json-body-file", "-"],
        ["lines", "127.0.0.1:1"], ["lines", "127.0.0.1:1", "--count", "1"], ["ws", "ws://127.0.0.1:1/"],
        ["ws", "ws://127.0.0.1:1/", "--send-file", "-"], ["inspect", "-"], ["inspect", "-", "--hex"],
        ["stomp", "send", "stomp://127.0.0.1:1", "/q", "--body-file", "-"],
        ["serve", "--port", "0", "--until-eof"],
    ])
    func anInputThatCannotBeReadIsAnErrorOfEachCommand(arguments: [String]) async throws {
        let outcome = try await ShellCommand.run("exec \"$hh\" \"$@\" </", arguments)
        #expect(outcome.exitCode == 1)
        let reason = String(cString: strerror(EISDIR))
        #expect(outcome.errors.contains("error: Cannot read stdin: \(reason)\n"), "\(outcome.errors)")
    }

    @Test func anItemThatCannotBeReadCancelsItsStream() async throws {
        try await withServe { address, _ in
            let call = ["call", address, "--type", "1013", "--items"]
            let outcome = try await ShellCommand.run("exec \"$hh\" \"$@\" </", call)
            #expect(outcome.exitCode == 1)
            #expect(outcome.output.isEmpty)
            #expect(outcome.errors.hasPrefix("error: Cannot read stdin: "), "\(outcome.errors)")
        }
    }

    // MARK: Limits

    @Test func oneByteBeyondTheLimitIsReadAtMost() throws {
        let pipe = try Pipe()
        pipe.write(String(repeating: "x", count: 100))
        let failure = #expect(throws: Input.Failure.self) { try pipe.input.rest(limit: 10) }
        #expect(failure?.description == "Cannot read the pipe: it is larger than 10 bytes, the limit")
        pipe.end()
        #expect(try pipe.input.rest(limit: 89).readableBytes == 89)
    }

    @Test func aLineBeyondTheLimitIsSkippedInBoundedMemory() async throws {
        let pipe = try Pipe()
        let lines = InputLines(pipe.input)
        let writing = Thread {
            let piece = [UInt8](repeating: 0x78, count: 1 << 20)
            for _ in 0..<(InputLines.maximumLength >> 20) * 2 {
                var rest = piece[...]
                while !rest.isEmpty { rest = rest.dropFirst(max(0, systemWrite(pipe.writer, Array(rest)))) }
            }
            _ = systemWrite(pipe.writer, Array("\nnext\n".utf8))
            close(pipe.writer)
        }
        writing.start()
        guard case .tooLong? = try await lines.next() else { return #expect(Bool(false)) }
        #expect(Self.text(try await lines.next()) == "next")
        #expect(try await lines.next() == nil)
    }

    /// Each option that takes a file is given one without an end.
    @Test(
        arguments: [
            (["call", "127.0.0.1:1", "--type", "1000", "--body-file"], 1),
            (["call", "127.0.0.1:1", "--type", "1000", "--format"], 64),
            (["call", "127.0.0.1:1", "--type", "1000", "--token-is-a-file"], 64),
            (
                ["call", "127.0.0.1:1", "--proto", TestProtos.descriptorSet, "--method", "test.Echo/Everything"]
                    + ["--json-body-file"], 1
            ),
            (["ws", "ws://127.0.0.1:1/", "--send-file"], 1), (["inspect", "--hex"], 1), (["describe", "--proto"], 1),
            (["stomp", "send", "stomp://127.0.0.1:1", "/q", "--body-file"], 1),
        ] as [([String], Int32)]
    )
    func aFileWithoutAnEndIsAnError(arguments: [String], code: Int32) async throws {
        var command = arguments + ["/dev/zero"]
        if command.contains("--token-is-a-file") {
            command = command.filter { !$0.contains("token") && $0 != "/dev/zero" } + ["--token", "@/dev/zero"]
        }
        let outcome = try await Command.run(command)
        #expect(outcome.exitCode == code)
        #expect(outcome.errors.contains("larger than") || outcome.errors.contains("longer than"), "\(outcome.errors)")
    }

    // MARK: Pipes

    /// Each option that takes a file is given a FIFO, as process substitution does.
    @Test func filesMayBePipes() async throws {
        let folder = try TemporaryFolder()
        let piped =
            "mkfifo \"$fifo\"; cat \"$content\" >\"$fifo\" & \"$hh\" \"$@\"; code=$?; rm -f \"$fifo\"; exit $code"
        func run(_ content: String, _ arguments: [String]) async throws -> Command.Outcome {
            let file = try folder.write(content, to: "content")
            let fifo = folder.file("fifo")
            let script = "content='\(file)'; fifo='\(fifo)'; \(piped)"
            return try await ShellCommand.run(script, arguments.map { $0.replacingOccurrences(of: "FIFO", with: fifo) })
        }
        let format = """
            {"request": ["type", "serial", "length"], "response": ["type", "serial", "status", "length"],
             "checksum": "adler32"}
            """
        try await withServe { address, _ in
            let call = ["call", address, "--type", "1000"]
            #expect(try await run("hello", call + ["--body-file", "FIFO"]).text == "hello")
            #expect(try await run(format, call + ["--body", "hi", "--format", "FIFO"]).text == "hi")
            #expect(try await run("secret\n", call + ["--body", "hi", "--token", "@FIFO"]).text == "hi")
            let method = ["--proto", TestProtos.descriptorSet, "--method", "test.Echo/Everything"]
            let json = try await run(#"{"aInt32": 5}"#, ["call", address] + method + ["--json-body-file", "FIFO"])
            #expect(json.text == "{\"aInt32\":5}\n")
            let empty = try await Command.run(call + ["--body-file", "/dev/null"])
            #expect(empty.exitCode == 0 && empty.output.isEmpty)
        }
        let frame = "000003E8 00000032 00000005 68656C6C 6F062C02 15\n"
        #expect(try await run(frame, ["inspect", "--hex", "FIFO"]).text.contains("length 5  checksum right"))
        // protoc would open it again.
        let proto = try await run("syntax = \"proto3\";\n", ["describe", "--proto", "FIFO"])
        #expect(proto.exitCode == 1)
        #expect(proto.errors.contains("not a regular file"), "\(proto.errors)")
    }
}

private func systemWrite(_ descriptor: CInt, _ bytes: [UInt8]) -> Int {
    write(descriptor, bytes, bytes.count)
}
