// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketCLI

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ListenTests {
    /// Starts a server that greets each client with three pushes.
    private func greetingServer() async throws -> MockServer {
        let server = try await MockServer()
        server.onOpen(
            .glued(
                .push(2001, "plain, ü"),
                .push(2002, "two\nlines\t\\ \u{1B}[31m"),
                .push(2001, ByteBuffer(bytes: [0xFF, 0x00]))
            )
        )
        return server
    }

    @Test func onePushALine() async throws {
        let server = try await self.greetingServer()
        let outcome = try await Command.run(["listen", "\(server.endpoint)", "--count", "3"])
        #expect(outcome.exitCode == 0)
        #expect(outcome.text == "2001 plain, ü\n2002 two\\nlines\\t\\\\ \\u{1b}[31m\n2001 base64:/wA=\n")
    }

    @Test func oneType() async throws {
        let server = try await self.greetingServer()
        let address = "\(server.endpoint)"
        let outcome = try await Command.run(["listen", address, "--type", "2002", "--count", "1", "--json"])
        #expect(outcome.exitCode == 0)
        let object = try #require(try outcome.objects().first)
        #expect(object["type"] as? Int == 2002)
        #expect(object["serial"] as? Int == 1)
        #expect(object["status"] as? Int == 200)
        #expect(object["server"] as? String == address)
        #expect(object["body"] as? String == "two\nlines\t\\ \u{1B}[31m")
    }

    /// A login and a subscription, on the first connection and on the next one.
    @Test func callsAreMadeOnEachConnectionInTheirOrder() async throws {
        let server = try await MockServer()
        server.on(1001, .answer("welcome"))
        server.on(1002, .glued(.answer("subscribed"), .push(2001, "news")))
        let listen = try Command([
            "listen", "\(server.endpoint)", "--call", "1001:me:secret", "--call", "0x3EA:-all", "--count", "2",
        ])
        #expect(try await listen.lines() == ["2001 news"])
        await server.perform(.close)
        #expect(try await listen.outcome().lines == ["2001 news", "2001 news"])
        let requests = server.received.filter { !FrameType.control.contains($0.type) }.map { "\($0.type) \($0.string)" }
        #expect(requests == ["1001 me:secret", "1002 -all", "1001 me:secret", "1002 -all"])
    }

    @Test func aCallThatTheServerRefusesEndsIt() async throws {
        let server = try await MockServer()
        server.on(1001, .status(Status(rawValue: 700)))
        let outcome = try await Command.run(["listen", "\(server.endpoint)", "--call", "1001:me"])
        #expect(outcome.exitCode == 1 && outcome.lines.isEmpty)
        #expect(outcome.errors.contains("700"))
    }

    @Test(arguments: [("chat.Chat/Login:{}", "requires --proto"), ("5:x", "5"), (":x", "call")])
    func aCallThatIsNoneIsWrongUsage(call: String, _ word: String) async throws {
        let outcome = try await Command.run(["listen", "127.0.0.1:1", "--call", call])
        #expect(outcome.exitCode == 64 && outcome.errors.contains(word))
    }

    @Test func linesAreFlushedAndSignalsEndItWell() async throws {
        let server = try await self.greetingServer()
        for signal in [SIGINT, SIGTERM] {
            let listen = try Command(["listen", "\(server.endpoint)"])
            #expect(try await listen.lines(3).first == "2001 plain, ü")
            listen.signal(signal)
            #expect(try await listen.outcome().exitCode == 0)
        }
    }

    @Test func keepsReconnecting() async throws {
        let server = try await MockServer()
        server.onOpen(.push(2001, "news").times(2))
        try await server.refuseConnections()
        let listen = try Command(["listen", "\(server.endpoint)", "--count", "2"])
        // It has failed once, and continues.
        try await listen.complains("connectionRefused")
        try await server.acceptConnections()
        #expect(try await listen.outcome().lines == ["2001 news", "2001 news"])
    }

    @Test func framesThatWereDroppedAreMentionedIfAskedFor() async throws {
        let server = try await MockServer()
        let stray = Frame(type: 2001, serial: 77, status: .ok, payload: ByteBuffer(string: "a push of its own serial"))
        server.onOpen(.glued(.frame(stray), .frame(stray), .push(2001, "news")))
        let listen = try Command(["listen", "\(server.endpoint)", "--verbose"])
        // While it runs, since it may run for days.
        try await listen.complains("dropped frames: 2 with a serial that no request had")
        listen.signal(SIGTERM)
        #expect(try await listen.outcome().lines == ["2001 news"])
        let quiet = try await Command.run(["listen", "\(server.endpoint)", "--count", "1"])
        #expect(!quiet.errors.contains("dropped"))
        let last = try await Command.run(["listen", "\(server.endpoint)", "--count", "1", "--verbose"])
        #expect(last.errors.contains("dropped frames: 2 with"), "\(last.errors)")
    }

    @Test func aServerThatIsSilentInAFormatMayHaveAnother() async throws {
        let server = try await MockServer(.drop, format: .plain)
        server.onOpen(.goSilent)
        let listen = try Command([
            "listen", "\(server.endpoint)", "--format", "plain", "--heartbeat", "100ms", "--heartbeat-misses", "0",
        ])
        try await listen.complains("hint: the server accepted the connection, but no push arrived")
        listen.signal(SIGTERM)
        #expect(try await listen.outcome().exitCode == 0)
    }

    @Test func survivesARestartOfTheServer() async throws {
        let first = try Command(["serve", "--port", "0", "--push", "2001:first", "--push-every", "0.05"])
        let address = try #require(try await first.lines().first?.split(separator: " ").last)
        let port = try #require(Endpoint(address)?.port)
        let listen = try Command(["listen", "\(address)"])
        #expect(try await listen.lines() == ["2001 first"])
        first.signal(SIGTERM)
        #expect(try await first.outcome().exitCode == 0)
        let second = try Command(["serve", "--port", "\(port)", "--push", "2001:second", "--push-every", "0.05"])
        try await listen.prints("2001 second\n")
        second.signal(SIGTERM)
        #expect(try await second.outcome().exitCode == 0)
        listen.signal(SIGTERM)
        #expect(try await listen.outcome().exitCode == 0)
    }
}

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct DemoTests {
    /// The command's, and the program of `make demo`.
    @Test(arguments: [(Command.hhsocket, ["demo"]), (Command.executable("demo-example"), [])] as [(URL, [String])])
    func everyStepIsALine(of program: URL, arguments: [String]) async throws {
        let outcome = try await Command.run(arguments, of: program, within: .seconds(240))
        #expect(outcome.exitCode == 0)
        #expect(outcome.errors == "")
        let steps = outcome.lines.compactMap { $0.firstMatch(of: #/^ *[0-9.]+ ms  ([a-z ]+?)  /#)?.output.1 }
        #expect(
            steps == [
                "servers", "connect", "calls", "big body", "push", "websocket", "cancel", "timeout", "failover",
                "found",
                "goodbye",
            ]
        )
        let found = try #require(outcome.lines.first { $0.contains("  found  ") })
        #expect(found.contains(/by itself, [0-9]+ ms after its return$/))
    }
}

@Suite struct TextTests {
    @Test(arguments: [
        ("plain ü 😀", "\"plain ü 😀\""), ("\"\\\n\r\t", #""\"\\\n\r\t""#), ("\0\u{1F}\u{7F}", #""\u0000\u001f\u007f""#),
        ("\u{2028}", #""\u2028""#), ("\r\n", #""\r\n""#), ("", "\"\""),
    ])
    func jsonStrings(text: String, json: String) throws {
        #expect(JSONLine.quoted(text) == json)
        let parsed = try JSONSerialization.jsonObject(with: Data("[\(json)]".utf8)) as? [String]
        #expect(parsed == [text])
    }

    @Test func bytesThatAreNotUTF8AreNotText() {
        for bytes in [[0xFF], [0xC0, 0x80], [0xED, 0xA0, 0x80], [0x61, 0xE2, 0x82]] as [[UInt8]] {
            #expect(ByteBuffer(bytes: bytes).utf8Text == nil)
        }
        #expect(ByteBuffer(string: "\u{FFFD}e\u{301}\0").utf8Text == "\u{FFFD}e\u{301}\0")
        #expect(ByteBuffer().utf8Text == "")
    }
}
