import Foundation
import HHSocket
import HHSocketServer
import NIOCore
import Testing

@testable import HHSocketCLI

@Suite(.timeLimit(.minutes(3))) struct ServeTests {
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
        ("%h:%p", "::1:7000"), ("%%h", "%h"), ("%", "%"), ("a%", "a%"), ("%p%p", "70007000"), ("%q%h", "%q::1"), ("", ""),
    ])
    func announcement(format: String, line: String) {
        #expect(ServeCommand.announcement(format, Endpoint(host: "::1", port: 7000)) == line)
    }

    @Test func builtInTypes() async throws {
        try await withServe { address, _ in
            func call(_ type: String, _ body: String) async throws -> (Int32, String) {
                let outcome = try await Command.run(["call", address, "--type", type, "--body", body])
                return (outcome.exitCode, outcome.text)
            }
            #expect(try await call("1000", "echo this") == (0, "echo this"))
            #expect(try await call("1001", "5") == (0, "5"))
            #expect(try await call("1002", "200") == (0, ""))
            #expect(
                try await call("1003", "abc")
                    == (0, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
            )
        }
    }

    @Test(arguments: [("1001", "x"), ("1001", ""), ("1001", "-1"), ("1001", " 5"), ("1002", "4294967296"), ("1002", "")])
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

    @Test func signalLetsARequestInFlightFinish() async throws {
        let server = try Command(["serve", "--port", "0"])
        let address = try #require(try await server.lines().first?.split(separator: " ").last)
        let call = try Command(["call", "\(address)", "--type", "1001", "--body", "700", "--json"])
        // Another client's answer comes after the first one's request was taken, since it is asked later.
        try await connections(to: "\(address)", atLeast: 1)
        server.signal(SIGTERM)
        let ended = try await server.outcome()
        let answered = try await call.outcome()
        #expect(ended.exitCode == 0)
        #expect(ended.errors == "")
        #expect(answered.exitCode == 0)
    }

    /// Returns when so many connections to `address` are established, and their requests are likely to be in.
    private func connections(to address: String, atLeast count: Int) async throws {
        // Twenty calls, one after the other: the other client's request was sent in the meantime.
        let outcome = try await Command.run(["call", address, "--type", "1000", "--repeat", "20"])
        #expect(outcome.exitCode == 0)
    }

    @Test func drainsForFiveSecondsAtMost() async throws {
        let server = try Command(["serve", "--port", "0"])
        let address = try #require(try await server.lines().first?.split(separator: " ").last)
        let call = try Command(["call", "\(address)", "--type", "1001", "--body", "60000", "--timeout", "60"])
        try await connections(to: "\(address)", atLeast: 1)
        let start = ContinuousClock.now
        server.signal(SIGTERM)
        #expect(try await server.outcome().exitCode == 0)
        #expect(ContinuousClock.now - start < .seconds(15))
        let outcome = try await call.outcome()
        #expect(outcome.exitCode == 1)
        #expect(outcome.errors.hasPrefix("error: connectionLost: "))
    }

    @Test func secondSignalEndsAtOnce() async throws {
        let server = try Command(["serve", "--port", "0"])
        let address = try #require(try await server.lines().first?.split(separator: " ").last)
        let call = try Command(["call", "\(address)", "--type", "1001", "--body", "60000", "--timeout", "60"])
        try await connections(to: "\(address)", atLeast: 1)
        let start = ContinuousClock.now
        server.signal(SIGTERM)
        // It has stopped accepting: the signal was taken.
        _ = try await value {
            try await Command.run(["call", "\(address)", "--type", "1000"]).exitCode == 1 ? true : nil
        }
        server.signal(SIGINT)
        #expect(try await server.outcome().exitCode == 0)
        #expect(ContinuousClock.now - start < .seconds(4.5))
        _ = try await call.outcome()
    }

    @Test func pingsOnlyWhenAskedTo() async throws {
        func pings(_ arguments: [String]) async throws -> [UInt8] {
            try await withServe(arguments) { address, _ in
                let endpoint = try #require(Endpoint(address))
                return try await RawConnection.bytes(from: endpoint, sending: heartbeat, count: 20 + 20, patience: 1)
            }
        }
        let answer: [UInt8] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 200, 0, 0, 0, 0, 0, 0, 0, 1]
        let ping: [UInt8] = [0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
        #expect(try await pings([]) == answer)
        #expect(try await pings(["--ping", "0.05"]) == answer + ping)
    }

    /// A client's heartbeat.
    private let heartbeat: [UInt8] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]

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
        ["serve", "--port", "65536"], ["serve", "--port", "-1"], ["serve", "--port", "x"], ["serve", "--push", "15:text"],
        ["serve", "--push", "text"], ["serve", "--push-every", "1"], ["serve", "--ping", "0"], ["serve", "more"],
        ["serve", "--push", "2001:x", "--push-every", "-1"], ["unknown"], ["call"], ["listen"],
    ])
    func wrongUsageIs64(arguments: [String]) async throws {
        let outcome = try await Command.run(arguments)
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
