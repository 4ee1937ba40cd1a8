// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketServer
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

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ServeTests {
    @Test func firstLineNamesTheAddress() async throws {
        try await withServe { address, server in
            #expect(server.output == "listening on \(address)\n")
            let endpoint = try #require(Endpoint(address))
            #expect(endpoint.host == "127.0.0.1")
        }
    }

    @Test func announceFormat() async throws {
        let server = try Command(["serve", "--port", "0", "--announce", "host=%h port=%p 100%% %x"])
        let line = try #require(try await server.lines().first)
        #expect(line.wholeMatch(of: /host=127\.0\.0\.1 port=[0-9]+ 100% %x/) != nil)
        server.signal(SIGINT)
        #expect(try await server.outcome().exitCode == 0)
    }

    @Test(arguments: [
        ("%h:%p", "::1:7000"), ("%%h", "%h"), ("%", "%"), ("a%", "a%"), ("%p%p", "70007000"), ("%q%h", "%q::1"),
        ("", ""),
    ])
    func announcement(format: String, line: String) {
        #expect(ServeCommand.announcement(format, Endpoint(host: "::1", port: 7000)) == line)
    }

    @Test func builtInTypes() async throws {
        try await withServe { address, _ in
            func expect(_ type: String, _ body: String, _ answer: String) async throws {
                let outcome = try await Command.run(["call", address, "--type", type, "--body", body])
                #expect(outcome.exitCode == 0)
                #expect(outcome.text == answer)
            }
            try await expect("1000", "echo this", "echo this")
            try await expect("1001", "5", "5")
            try await expect("1002", "200", "")
            try await expect("1003", "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
            try await expect("1005", "whatever", "serial: 50\n")
        }
    }

    @Test func builtInStreams() async throws {
        try await withServe { address, _ in
            func expect(
                _ arguments: [String],
                _ answer: String,
                input: String = "",
                exitCode: Int32 = 0
            ) async throws {
                let outcome = try await Command.run(["call", address] + arguments, input: Data(input.utf8))
                #expect(outcome.exitCode == exitCode, "\(outcome.errors)")
                #expect(outcome.text == answer)
            }
            try await expect(["--type", "1010", "--stream", "--body", "3 2"], "xx\nxx\nxx\n")
            try await expect(["--type", "1010", "--stream", "--body", "0 5"], "")
            for wrong in ["3  2", "3", " 3 2", "3 2 ", "a 2", "3 16777217", ""] {
                try await expect(["--type", "1010", "--stream", "--body", wrong], "", exitCode: 1)
            }
            let digest = "3 3 ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
            try await expect(["--type", "1011", "--items"], digest, input: "a\nb\nc")
            try await expect(["--type", "1012", "--items", "--stream"], "one\n\nthree\n", input: "one\n\nthree\n")
        }
    }

    @Test(arguments: ["synchronous", "connection", "global"]) func echoIsTheSameWhereverItIsMade(handler: String)
        async throws
    {
        try await withServe(["--echo-handler", handler]) { address, _ in
            let outcome = try await Command.run(["call", address, "--type", "1000", "--body", "echo this"])
            #expect(outcome.exitCode == 0)
            #expect(outcome.text == "echo this")
        }
    }

    @Test(arguments: [
        ("1001", "x"), ("1001", ""), ("1001", "-1"), ("1001", " 5"), ("1002", "4294967296"), ("1002", ""),
    ])
    func unreadablePayloadIsIllegalFormat(type: String, body: String) async throws {
        try await withServe { address, _ in
            let outcome = try await Command.run(["call", address, "--type", type, "--body", body])
            #expect(outcome.exitCode == 1)
            #expect(outcome.errors.hasPrefix("error: illegalFormat: "))
        }
    }

    @Test func decimalNumbersAreCutToTheLimit() {
        #expect(BuiltIn.decimal(ByteBuffer(string: "12"), limit: 100) == 12)
        #expect(BuiltIn.decimal(ByteBuffer(string: "101"), limit: 100) == 100)
        #expect(BuiltIn.decimal(ByteBuffer(string: String(repeating: "9", count: 100_000)), limit: 100) == 100)
        #expect(BuiltIn.decimal(ByteBuffer(string: "1e3"), limit: 100) == nil)
    }

    /// Starts a server with a request in flight.
    private func serverWithARequestInFlight(sleeping: String) async throws -> (Endpoint, Command, HostileClient) {
        let server = try Command(["serve", "--port", "0"])
        let address = try #require(try await server.lines().first?.split(separator: " ").last)
        let endpoint = try #require(Endpoint(address))
        let client = try await HostileClient(to: endpoint)
        // The server has taken the request when it has answered the heartbeat sent after it.
        await client.perform(.glued(.request(1001, serial: 50, sleeping), .ping()))
        #expect(try await client.response().type == FrameType.heartbeat)
        return (endpoint, server, client)
    }

    @Test func signalLetsARequestInFlightFinish() async throws {
        let (_, server, client) = try await self.serverWithARequestInFlight(sleeping: "500")
        server.signal(SIGTERM)
        let frames = try await client.responses(2)
        #expect(frames.contains(Frame(type: 1001, serial: 50, status: .ok, payload: ByteBuffer(string: "500"))))
        #expect(frames.contains { $0.type == FrameType.goAway })
        await client.perform(.close)
        let outcome = try await server.outcome()
        #expect(outcome.exitCode == 0)
        #expect(outcome.lines.count == 1)
        #expect(outcome.errors == "")
    }

    /// Waits really: the command is a process of its own, whose clock no test moves.
    @Test func drainsForFiveSecondsAtMost() async throws {
        let (_, server, client) = try await self.serverWithARequestInFlight(sleeping: "60000")
        let start = ContinuousClock.now
        server.signal(SIGTERM)
        #expect(try await server.outcome().exitCode == 0)
        let duration = ContinuousClock.now - start
        // The client must not be released earlier, or nothing would be in flight any more.
        await client.perform(.close)
        #expect(duration >= .seconds(4.9))
        #expect(duration < .seconds(50))
    }

    @Test func secondSignalEndsAtOnce() async throws {
        // Without it the end takes five seconds each time. With it, it may take that long only on a slow machine.
        for _ in 0..<5 {
            let (endpoint, server, client) = try await self.serverWithARequestInFlight(sleeping: "60000")
            let start = ContinuousClock.now
            server.signal(SIGTERM)
            // The first signal was handled: no connection is accepted any more.
            try await eventually("the end of its accepting") { (try? await HostileClient(to: endpoint)) == nil }
            server.signal(SIGINT)
            #expect(try await server.outcome().exitCode == 0)
            // It may have received a go-away before, and receives nothing else.
            while let frame = try? await client.response() { #expect(frame.type == FrameType.goAway) }
            if ContinuousClock.now - start < .seconds(4.5) { return }
        }
        Issue.record("a second signal does not end it sooner")
    }

    @Test func pingsOnlyWhenAskedTo() async throws {
        let pong = Frame(type: FrameType.heartbeat, serial: FrameSerial.clientPing, status: .ok)
        func withClient(_ arguments: [String], _ body: (HostileClient) async throws -> Void) async throws {
            try await withServe(arguments) { address, _ in
                let client = try await HostileClient(to: try #require(Endpoint(address)))
                await client.perform(.ping())
                try await body(client)
            }
        }
        try await withClient([]) { client in
            let answer = try await client.response()
            #expect(answer == pong)
            await #expect(throws: NothingHappened.self) { try await client.response(within: .seconds(1)) }
        }
        try await withClient(["--ping", "0.5"]) { client in
            let ping = Frame(type: FrameType.heartbeat, serial: 5, status: Status(rawValue: 0))
            let frames = try await client.responses(2)
            #expect(Set(frames) == [pong, ping])
        }
    }

    @Test func endOfInputEndsItIfAskedTo() async throws {
        let server = try Command(["serve", "--port", "0", "--announce", "READY %p", "--until-eof"])
        let outcome = try await server.outcome()
        #expect(outcome.exitCode == 0)
        #expect(outcome.text.wholeMatch(of: /READY [0-9]+\n/) != nil)
        #expect(outcome.errors == "")
    }

    @Test func takenPortIsAnErrorThatNamesIt() async throws {
        try await withServe { address, _ in
            let port = try #require(Endpoint(address)?.port)
            let outcome = try await Command.run(["serve", "--port", "\(port)"])
            #expect(outcome.exitCode == 1)
            #expect(outcome.output.isEmpty)
            #expect(outcome.errors.hasPrefix("error: bindFailed: "))
            #expect(outcome.errors.contains("127.0.0.1:\(port)"))
        }
    }

    @Test(arguments: [
        ["serve", "--port", "65536"], ["serve", "--port", "-1"], ["serve", "--port", "x"],
        ["serve", "--push", "15:text"],
        ["serve", "--push", "text"], ["serve", "--push-every", "1"], ["serve", "--ping", "0"], ["serve", "more"],
        ["serve", "--push", "2001:x", "--push-every", "-1"], ["unknown"], ["call"], ["listen"],
    ])
    func wrongUsageIs64(arguments: [String]) async throws {
        let outcome = try await WrongUsage(parsing: arguments)
        #expect(outcome.exitCode == 64)
        #expect(outcome.output.isEmpty)
        #expect(!outcome.errors.isEmpty)
    }

    @Test func helpNamesTheCommand() async throws {
        let outcome = try await Command.run(["--help"])
        #expect(outcome.exitCode == 0)
        #expect(outcome.text.contains("USAGE: hhsocket <subcommand>"))
        for command in ["serve", "call", "listen", "bench", "demo"] {
            #expect(outcome.text.contains("  \(command) "))
        }
    }
}
