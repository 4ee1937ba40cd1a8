// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketServer
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

/// `hhsocket ws` and `hhsocket ws-serve`: the behaviour on which calling programs rely.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct WebSocketCommandTests {
    /// Runs `body` with the URL of `hhsocket ws-serve`.
    private func withEcho(_ arguments: [String] = [], _ body: (String) async throws -> Void) async throws {
        try await withServer(Command(["ws-serve", "--port", "0"] + arguments)) { address, _ in
            try await body("ws://\(address)/any")
        }
    }

    private func ws(_ arguments: String..., input: String = "") async throws -> Command.Outcome {
        try await Command.run(["ws"] + arguments, input: Data(input.utf8))
    }

    /// A server in this process, whose `handler` serves each client.
    private func server(
        _ handler: @escaping @Sendable (WebSocketConnection) async throws -> Void
    ) async throws -> (server: SocketServer, url: String) {
        var listener = ServerListener()
        listener.webSocket = WebSocketListening(path: nil)
        let server = SocketServer(configuration: .init(listeners: [listener]), router: Router())
        try server.webSocket("/", handler)
        try await server.start()
        return (server, "ws://127.0.0.1:\(try #require(server.address).port)/")
    }

    // MARK: What is sent

    @Test func linesOfStandardInputAreTextMessages() async throws {
        try await self.withEcho { url in
            let outcome = try await self.ws(url, "--json", "--count", "5", input: "ä\n\nb\r\n \nlast")
            #expect(outcome.exitCode == 0)
            #expect(outcome.errors == "")
            let texts = try outcome.objects().map { $0["text"] as? String }
            #expect(texts == ["ä", "", "b\r", " ", "last"])
        }
    }

    @Test func lineThatIsNotUTF8IsReportedAndIsNotSent() async throws {
        try await self.withEcho { url in
            let input = Data("a\n".utf8) + [0xFF, 0xFE] + Data("\nb\n".utf8)
            let outcome = try await Command.run(["ws", url, "--count", "2"], input: input)
            #expect(outcome.exitCode == 1)
            #expect(outcome.text == "a\nb\n")
            #expect(outcome.errorLines == ["error: invalidArgument: a line of standard input is not UTF-8"])
        }
    }

    @Test func messagesThatAreGivenAreSentInOrderAndStandardInputIsNotRead() async throws {
        let folder = try TemporaryFolder()
        let path = folder.file("message")
        let bytes = Data((0..<300).map { UInt8(truncatingIfNeeded: $0) })
        try bytes.write(to: URL(fileURLWithPath: path))
        try await self.withEcho { url in
            let arguments = ["ws", url, "--send", "one", "--send", "", "--send-file", path, "--count", "3"]
            let command = try Command(arguments, keepsInputOpen: true)
            let outcome = try await command.outcome()
            #expect(outcome.exitCode == 0)
            #expect(outcome.text == "one\n\n\(bytes.base64EncodedString())\n")
            let json = try await self.ws(url, "--send-file", path, "--count", "1", "--json")
            #expect(json.text == "{\"kind\":\"binary\",\"base64\":\"\(bytes.base64EncodedString())\"}\n")
        }
    }

    @Test func compressedMessagesAreTheSame() async throws {
        try await self.withEcho(["--compress"]) { url in
            let text = String(repeating: "compressible ", count: 1_000)
            let outcome = try await self.ws(url, "--compress", "--send", text, "--send", "x", "--count", "2")
            #expect(outcome.exitCode == 0)
            #expect(outcome.text == "\(text)\nx\n")
        }
    }

    // MARK: When it ends

    @Test func itEndsWhenAllHasLeft() async throws {
        let texts = NIOLockedValueBox<[String]>([])
        let closed = Gate()
        let (server, url) = try await self.server { connection in
            for await message in connection.messages {
                texts.withLockedValue { $0.append(message.text ?? "") }
            }
            closed.open()
        }
        let outcome = try await self.ws(url, input: "a\nb\n")
        #expect(outcome.exitCode == 0 && outcome.errors == "")
        try await withDeadline("the end of the connection") { try await closed.wait() }
        #expect(texts.withLockedValue { $0 } == ["a", "b"])
        await server.shutdown(gracePeriod: .zero)
    }

    @Test func echoesAreCountedAsTheyAreSent() async throws {
        let answers = NIOLockedValueBox<[String]>([])
        let (server, url) = try await self.server { connection in
            for number in 0..<3 { try await connection.send(WebSocketMessage("\(number)")) }
            for await message in connection.messages {
                answers.withLockedValue { $0.append(message.text ?? "") }
            }
        }
        let command = try Command(["ws", url, "--echo", "--count", "3"], keepsInputOpen: true)
        let outcome = try await command.outcome()
        #expect(outcome.exitCode == 0 && outcome.text == "")
        try await eventually("the echoes") { answers.withLockedValue { $0 } == ["0", "1", "2"] }
        await server.shutdown(gracePeriod: .zero)
    }

    @Test(arguments: [SIGINT, SIGTERM]) func signalsCloseWith1000(signal: CInt) async throws {
        let (server, url) = try await self.server { connection in
            try await connection.send(WebSocketMessage("here"))
            for await _ in connection.messages {}
        }
        let command = try Command(["ws", url], keepsInputOpen: true)
        #expect(try await command.lines() == ["here"])
        command.signal(signal)
        let outcome = try await command.outcome()
        #expect(outcome.exitCode == 0 && outcome.errors == "")
        await server.shutdown(gracePeriod: .zero)
    }

    @Test func serverThatDoesNotAnswerTheCloseFrameIsNotWaitedFor() async throws {
        let release = Gate()
        let (server, url) = try await self.server { connection in
            // The close frame is answered when the handler reads it.
            for await _ in connection.messages { try await release.wait() }
        }
        // If it were waited for, the end would take the server's five seconds each time. Otherwise it may take that
        // long only on a slow machine.
        var isWaitedFor = true
        for _ in 0..<5 where isWaitedFor {
            let began = ContinuousClock.now
            let outcome = try await self.ws(url, "--send", "x")
            #expect(outcome.exitCode == 0)
            isWaitedFor = ContinuousClock.now - began >= .seconds(4.5)
        }
        #expect(!isWaitedFor)
        release.open()
        await server.shutdown(gracePeriod: .zero)
    }

    @Test(arguments: [
        (1_000, [], 0), (1_000, ["--count", "2"], 1), (1_001, [], 1), (4_000, [], 1), (3_500, [], 1),
    ])
    func serversCloseEndsTheOnlyLink(code: Int, options: [String], exitCode: Int) async throws {
        let (server, url) = try await self.server { connection in
            try await connection.send(WebSocketMessage("last words"))
            connection.close(code: UInt16(code), reason: "because")
            for await _ in connection.messages {}
        }
        let command = try Command(["ws", url, "--once"] + options, keepsInputOpen: true)
        let outcome = try await command.outcome()
        #expect(Int(outcome.exitCode) == exitCode)
        #expect(outcome.text == "last words\n")
        #expect(outcome.errorLines == ["closed: \(code) because"])
        await server.shutdown(gracePeriod: .zero)
    }

    @Test func codeThatEndsALinkForEverEndsTheCommand() async throws {
        let (server, url) = try await self.server { connection in
            connection.close(code: 4_500)
            for await _ in connection.messages {}
        }
        let command = try Command(["ws", url], keepsInputOpen: true)
        let outcome = try await command.outcome()
        #expect(outcome.exitCode == 1)
        #expect(outcome.errorLines == ["closed: 4500"])
        await server.shutdown(gracePeriod: .zero)
    }

    // MARK: Connections that fail

    @Test func lostLinkIsReplacedAndTheExitCodeStays() async throws {
        let connections = NIOLockedValueBox(0)
        let (server, url) = try await self.server { connection in
            let number = connections.withLockedValue { number in
                number += 1
                return number
            }
            try await connection.send(WebSocketMessage("connection \(number)"))
            if number == 1 { connection.close(code: 1_012) }
            for await _ in connection.messages {}
        }
        let command = try Command(["ws", url, "--count", "2"], keepsInputOpen: true)
        let outcome = try await command.outcome()
        #expect(outcome.exitCode == 0)
        #expect(outcome.text == "connection 1\nconnection 2\n")
        #expect(outcome.errorLines == ["closed: 1012"])
        await server.shutdown(gracePeriod: .zero)
    }

    @Test func refusedConnectionIsAttemptedAgainUnlessOnce() async throws {
        let reserved = try await self.server { _ in }
        await reserved.server.shutdown(gracePeriod: .zero)
        let outcome = try await self.ws(reserved.url, "--once", "--send", "x")
        #expect(outcome.exitCode == 1)
        #expect(outcome.errorLines.count == 1)
        #expect(outcome.errors.hasPrefix("error: connectionRefused: cannot connect to \(reserved.url)"))
        let command = try Command(["ws", reserved.url, "--send", "x"])
        try await command.complains("two attempts") { errors in
            errors.components(separatedBy: "connectionRefused").count > 2 ? () : nil
        }
        command.signal(SIGTERM)
        #expect(try await command.outcome().exitCode == 0)
    }

    @Test func refusedOpeningNamesTheStatus() async throws {
        try await self.withEcho(["--path", "/chat"]) { url in
            let outcome = try await self.ws(url, "--once", "--send", "x")
            #expect(outcome.exitCode == 1)
            #expect(outcome.errorLines.count == 1)
            #expect(outcome.errors.hasPrefix("error: handshakeRefused: "))
            #expect(outcome.errors.contains("404"))
        }
    }

    @Test(arguments: [
        ["http://127.0.0.1:1/"], ["ws://127.0.0.1:1/#there"], ["ws://127.0.0.1:1/", "--subprotocol", "not one"],
        ["ws://127.0.0.1:1/", "--header", "Sec-WebSocket-Key:x"],
    ])
    func argumentsThatNoAttemptCanUseEndTheCommand(arguments: [String]) async throws {
        let (server, url) = try await self.server { _ in }
        let there = arguments.map { $0 == "ws://127.0.0.1:1/" ? url : $0 }
        let command = try Command(["ws"] + there, keepsInputOpen: true)
        let outcome = try await command.outcome()
        #expect(outcome.exitCode == 64)
        #expect(outcome.errors.lowercased().hasPrefix("error: "))
        await server.shutdown(gracePeriod: .zero)
    }

    // MARK: ws-serve

    @Test func subprotocolIsOneThatBothHave() async throws {
        try await self.withEcho(["--subprotocol", "b", "--subprotocol", "a"]) { url in
            let configuration = try WebSocketLink.Configuration(url: url)
            for (offered, selected) in [(["x", "a"], "a"), (["x"], nil), ([], nil)] as [([String], String?)] {
                var configuration = configuration
                configuration.subprotocols = offered
                let link = WebSocketLink(configuration: configuration)
                let events = link.events
                link.connect()
                let opened = try await first(of: events, "the opening") {
                    if case .opened = $0 { true } else { false }
                }
                guard case .opened(_, let subprotocol, _) = opened else { return }
                #expect(subprotocol == selected)
                link.disconnect()
            }
        }
    }

    @Test func firstLineIsAsAnnouncedAndATakenPortIsAnError() async throws {
        let server = try Command(["ws-serve", "--port", "0", "--announce", "%% %h %p"])
        let words = try await server.lines()[0].split(separator: " ")
        #expect(words.prefix(2) == ["%", "127.0.0.1"])
        let outcome = try await Command.run(["ws-serve", "--port", "\(words[2])"])
        #expect(outcome.exitCode == 1)
        #expect(outcome.errors.hasPrefix("error: bindFailed: ") && outcome.text == "")
        server.signal(SIGTERM)
        #expect(try await server.outcome().exitCode == 0)
    }

    @Test func listenersOfServeAnnounceTheirScheme() async throws {
        let server = try Command([
            "serve", "--port", "0", "--listen", "ws://127.0.0.1:0/rpc", "--listen", "tcp+ws://127.0.0.1:0/both",
        ])
        let lines = try await server.lines(3)
        #expect(lines[0].hasPrefix("listening on 127.0.0.1:"))
        #expect(lines[1].hasPrefix("listening on ws://127.0.0.1:") && lines[1].hasSuffix("/rpc"))
        #expect(lines[2].hasPrefix("listening on tcp+ws://127.0.0.1:") && lines[2].hasSuffix("/both"))
        let addresses = lines.map { String($0.dropFirst("listening on ".count)) }
        let shared = addresses[2].replacingOccurrences(of: "tcp+ws://", with: "")
        let plain = shared.replacingOccurrences(of: "/both", with: "")
        for address in [addresses[0], addresses[1], "ws://\(shared)", plain] {
            let outcome = try await Command.run(["call", address, "--type", "1000", "--body", "hello"])
            #expect(outcome.exitCode == 0)
            #expect(outcome.text.hasPrefix("hello"))
        }
        server.signal(SIGTERM)
        #expect(try await server.outcome().exitCode == 0)
    }
}
