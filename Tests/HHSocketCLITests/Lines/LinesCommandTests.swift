// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

/// `hhsocket lines` and `hhsocket lines-serve`: the behaviour on which calling programs rely.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct LinesCommandTests {
    /// Runs `body` with the address of `hhsocket lines-serve`.
    private func withEcho(_ arguments: [String] = [], _ body: (String) async throws -> Void) async throws {
        try await withServer(Command(["lines-serve", "--port", "0"] + arguments)) { address, _ in
            try await body(address)
        }
    }

    private func lines(_ arguments: String..., input: String = "") async throws -> Command.Outcome {
        try await Command.run(["lines"] + arguments, input: Data(input.utf8))
    }

    // MARK: What is sent

    @Test func linesOfStandardInputAreSent() async throws {
        try await self.withEcho { address in
            let outcome = try await self.lines(address, "--json", "--count", "5", input: "ä\n\nb\r\n \nlast")
            #expect(outcome.exitCode == 0)
            #expect(outcome.errors == "")
            #expect(outcome.lines.first == "{\"kind\":\"text\",\"text\":\"ä\"}")
            let texts = try outcome.objects().map { $0["text"] as? String }
            #expect(texts == ["ä", "", "b\r", " ", "last"])
        }
    }

    @Test func lineThatIsNotUTF8IsReportedAndIsNotSent() async throws {
        try await self.withEcho { address in
            let input = Data("a\n".utf8) + [0xFF, 0xFE] + Data("\nb\n".utf8)
            let outcome = try await Command.run(["lines", address, "--count", "2"], input: input)
            #expect(outcome.exitCode == 1)
            #expect(outcome.text == "a\nb\n")
            #expect(outcome.errorLines == ["error: invalidArgument: a line of standard input is not UTF-8"])
        }
    }

    @Test func linesThatAreGivenAreSentInOrderAndStandardInputIsNotRead() async throws {
        try await self.withEcho { address in
            let arguments = ["lines", address, "--send", "one", "--send", "", "--send", "three", "--count", "3"]
            let outcome = try await Command(arguments, keepsInputOpen: true).outcome()
            #expect(outcome.exitCode == 0)
            #expect(outcome.text == "one\n\nthree\n")
        }
    }

    @Test(arguments: ["lf", "crlf", "any", "nul", "1e", "0d0a0d0a"]) func delimiterIsThatOfBothSides(
        name: String
    ) async throws {
        try await self.withEcho(["--delimiter", name]) { address in
            let outcome = try await self.lines(
                address,
                "--delimiter",
                name,
                "--send",
                "a",
                "--send",
                "b c",
                "--count",
                "2"
            )
            #expect(outcome.exitCode == 0)
            #expect(outcome.text == "a\nb c\n")
        }
        let delimiter = try #require(LineDelimiter(name))
        let server = try await LineServer(delimiter: delimiter)
        _ = try await self.lines("\(server.endpoint)", "--delimiter", name, "--send", "x")
        #expect(try await server.received(1).map(\.text) == ["x"])
    }

    @Test func lineWithTheDelimiterIsRefusedAndTheOthersAreSent() async throws {
        try await self.withEcho { address in
            let outcome = try await self.lines(address, "--send", "a\nb", "--send", "c", "--count", "1")
            #expect(outcome.exitCode == 1)
            #expect(outcome.text == "c\n")
            #expect(outcome.errorLines.count == 1 && outcome.errors.hasPrefix("error: invalidArgument: "))
        }
    }

    @Test func heartbeatIsALine() async throws {
        let server = try await LineServer()
        let arguments = [
            "lines", "\(server.endpoint)", "--heartbeat", "-alive", "--heartbeat-every", "0.02",
        ]
        let command = try Command(arguments, keepsInputOpen: true)
        #expect(try await server.received(3).map(\.text) == ["-alive", "-alive", "-alive"])
        command.signal(SIGTERM)
        #expect(try await command.outcome().exitCode == 0)
    }

    // MARK: What is received

    @Test func lineThatIsNotUTF8IsReportedAndDoesNotCount() async throws {
        let server = try await LineServer()
        server.onOpen(.glued(.line("a"), .line([0xC3]), .line("b")))
        let command = try Command(["lines", "\(server.endpoint)", "--count", "2"], keepsInputOpen: true)
        let outcome = try await command.outcome()
        #expect(outcome.exitCode == 0)
        #expect(outcome.text == "a\nb\n")
        #expect(outcome.errorLines.count == 1 && outcome.errors.hasPrefix("error: decodingFailed: "))
    }

    // MARK: When it ends

    @Test func itEndsWhenAllHasLeft() async throws {
        let server = try await LineServer()
        let outcome = try await self.lines("\(server.endpoint)", input: "a\nb\n")
        #expect(outcome.exitCode == 0 && outcome.errors == "")
        try await server.ended(connection: 0)
        #expect(try await server.received(2).map(\.text) == ["a", "b"])
    }

    @Test(arguments: [SIGINT, SIGTERM]) func signalsEndIt(signal: CInt) async throws {
        let server = try await LineServer()
        server.onOpen(.line("here"))
        let command = try Command(["lines", "\(server.endpoint)"], keepsInputOpen: true)
        #expect(try await command.lines() == ["here"])
        command.signal(signal)
        let outcome = try await command.outcome()
        #expect(outcome.exitCode == 0 && outcome.errors == "")
    }

    @Test func serverThatEndsTCPIsALostLink() async throws {
        let server = try await LineServer()
        server.onOpen(.line("last words").then(.disconnect))
        let command = try Command(["lines", "\(server.endpoint)", "--once"], keepsInputOpen: true)
        let outcome = try await command.outcome()
        #expect(outcome.exitCode == 1)
        #expect(outcome.text == "last words\n")
        #expect(outcome.errorLines.count == 1 && outcome.errors.hasPrefix("error: connectionLost: "))
    }

    @Test func linesThatWereAskedForAreEnoughThoughTheLinkIsLostBehindThem() async throws {
        let server = try await LineServer()
        server.onOpen(.glued(.line("1"), .line("2")).then(.disconnect))
        for _ in 0..<5 {
            let command = try Command(
                ["lines", "\(server.endpoint)", "--once", "--count", "2"],
                keepsInputOpen: true
            )
            let outcome = try await command.outcome()
            #expect(outcome.exitCode == 0)
            #expect(outcome.text == "1\n2\n")
        }
    }

    @Test func lineThatIsTooLongIsALostLink() async throws {
        let server = try await LineServer()
        server.onOpen(number: 0, .line(String(repeating: "x", count: 1_048_577)))
        server.onOpen(number: 1, .line("after"))
        let command = try Command(["lines", "\(server.endpoint)", "--count", "1"], keepsInputOpen: true)
        let outcome = try await command.outcome()
        #expect(outcome.exitCode == 0)
        #expect(outcome.text == "after\n")
        #expect(outcome.errorLines.count == 1 && outcome.errors.hasPrefix("error: frameTooLarge: "))
    }

    @Test func lostLinkIsReplacedAndTheExitCodeStays() async throws {
        let server = try await LineServer()
        server.onOpen(number: 0, .glued(.line("one"), .line("half").cut(after: 2)).then(.disconnect))
        server.onOpen(number: 1, .line("two"))
        let command = try Command(["lines", "\(server.endpoint)", "--count", "2"], keepsInputOpen: true)
        let outcome = try await command.outcome()
        #expect(outcome.exitCode == 0)
        #expect(outcome.text == "one\ntwo\n")
        #expect(outcome.errorLines.count == 1)
    }

    @Test func refusedConnectionIsAttemptedAgainUnlessOnce() async throws {
        let server = try await LineServer()
        try await server.refuseConnections()
        let outcome = try await self.lines("\(server.endpoint)", "--once", "--send", "x")
        #expect(outcome.exitCode == 1)
        #expect(outcome.errorLines.count == 1)
        #expect(outcome.errors.hasPrefix("error: connectionRefused: cannot connect to \(server.endpoint)"))
        let command = try Command(["lines", "\(server.endpoint)", "--send", "x"])
        try await command.complains("a refusal") { errors in errors.contains("connectionRefused") ? () : nil }
        try await server.acceptConnections()
        #expect(try await command.outcome().exitCode == 0)
        #expect(try await server.received(1).map(\.text) == ["x"])
    }

    @Test func wrongArgumentsAreReported() async throws {
        for arguments in [
            ["ws://127.0.0.1:1/", "--send", "x"], ["127.0.0.1", "--send", "x"], ["a b:1", "--send", "x"],
            ["127.0.0.1:1", "--count", "0"], ["127.0.0.1:1", "--delimiter", "x"], ["127.0.0.1:1", "--delimiter", ""],
            [],
        ] {
            #expect(try await Command.run(["lines"] + arguments).exitCode == 64)
        }
        #expect(try await Command.run(["lines-serve", "--port", "65536"]).exitCode == 64)
    }

    // MARK: lines-serve

    /// Exchanges bytes with `lines-serve` until it ends the connection.
    private func exchange(_ bytes: [UInt8], with address: String) async throws -> [UInt8] {
        let port = try #require(Int(address.split(separator: ":").last ?? ""))
        let python = try #require(Command.installed("python3"))
        let code = """
            import socket, sys
            peer = socket.create_connection(("127.0.0.1", \(port)))
            peer.sendall(sys.stdin.buffer.read())
            peer.shutdown(socket.SHUT_WR)
            while data := peer.recv(65536): sys.stdout.buffer.write(data)
            """
        return try await Array(Command(["-c", code], of: python, input: Data(bytes)).outcome().output)
    }

    @Test func bytesAreEchoedAsTheyAreAndAClientThatHalfClosesGetsAll() async throws {
        let bytes: [UInt8] = [0xFF, 0, 0x0D, 0x0A, 0x0A] + Array("ä\r\n".utf8)
        let large = (0..<200_000).flatMap { Array("line \($0)\r\n".utf8) }
        for name in ["lf", "any"] {
            try await self.withEcho(["--delimiter", name]) { address in
                let echo = try await self.exchange(bytes, with: address)
                #expect(echo == bytes)
                // An unfinished line is not echoed.
                let withoutRest = try await self.exchange(bytes + [0x61], with: address)
                #expect(withoutRest == bytes)
                let all = try await self.exchange(large, with: address)
                #expect(all == large)
            }
        }
    }

    @Test func limitIsAMebibyte() async throws {
        try await self.withEcho { address in
            let fits = [UInt8](repeating: 0x78, count: 1_048_576) + [0x0A]
            #expect(try await self.exchange(fits, with: address) == fits)
            let outcome = try await Command.run(
                ["lines", address, "--once", "--count", "2"],
                input: Data("a\n".utf8) + Data(repeating: 0x78, count: 1_048_577) + Data("\n".utf8)
            )
            #expect(outcome.exitCode == 1)
            #expect(outcome.text == "a\n")
            #expect(outcome.errors.hasPrefix("error: connectionLost: "))
        }
    }

    @Test func firstLineIsAsAnnouncedAndATakenPortIsAnError() async throws {
        let server = try Command(["lines-serve", "--port", "0", "--announce", "%% %h %p"])
        let words = try await server.lines()[0].split(separator: " ")
        #expect(words.prefix(2) == ["%", "127.0.0.1"])
        let outcome = try await Command.run(["lines-serve", "--port", "\(words[2])"])
        #expect(outcome.exitCode == 1)
        #expect(outcome.errors.hasPrefix("error: bindFailed: ") && outcome.text == "")
        server.signal(SIGTERM)
        #expect(try await server.outcome().exitCode == 0)
    }

    @Test func signalEndsItAlthoughClientsStay() async throws {
        let server = try Command(["lines-serve", "--port", "0"])
        let address = try #require(try await server.lines()[0].split(separator: " ").last)
        let client = try Command(["lines", "\(address)", "--once"], keepsInputOpen: true)
        try client.type("x")
        #expect(try await client.lines() == ["x"])
        server.signal(SIGTERM)
        #expect(try await server.outcome().exitCode == 0)
        #expect(try await client.outcome().exitCode == 1)
    }
}
