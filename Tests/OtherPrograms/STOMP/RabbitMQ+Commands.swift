// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketSTOMP
import NIOCore
import TestSupport
import Testing

extension RabbitMQTests {
    /// `hhsocket stomp send` and `hhsocket stomp subscribe`: the behaviour on which calling programs rely.
    @Suite(.tags(.io)) struct RabbitMQCommands {
        private static let user = ["--login", "guest", "--passcode", "guest", "--vhost", "/"]
        /// The options that the commands require for the node's certificate.
        private static let authority = packageFolder.appendingPathComponent("Tests/Certificates/authority.pem").path

        private static func arguments(_ command: String, _ door: Broker.Door, _ queue: TestQueue) async throws
            -> [String]
        {
            let url = try await RabbitMQ.shared.url(door)
            let tls = door == .stompTLS || door == .webSocketTLS ? ["--ca", Self.authority] : []
            return ["stomp", command, url, queue.destination] + Self.user + tls
        }

        private func send(
            _ queue: TestQueue,
            by door: Broker.Door = .stomp,
            _ options: String...,
            input: Data = Data()
        ) async throws -> Command.Outcome {
            try await Command.run(Self.arguments("send", door, queue) + options, input: input)
        }

        private func subscribe(
            _ queue: TestQueue,
            by door: Broker.Door = .stomp,
            _ options: String...
        ) async throws -> Command {
            try await Command(Self.arguments("subscribe", door, queue) + options)
        }

        @Test(arguments: Broker.Door.allCases) func bodiesAreLines(door: Broker.Door) async throws {
            let queue = TestQueue()
            let sent = try await self.send(queue, by: door, "--body", "--hello", "--receipt")
            #expect(sent.exitCode == 0 && sent.text == "" && sent.errors == "", "\(sent)")
            #expect(try await self.send(queue, by: door, "--receipt").exitCode == 0)
            // Without a receipt the message was only sent.
            #expect(try await self.send(queue, by: door, "--body", "ä\nb").exitCode == 0)
            let outcome = try await self.subscribe(queue, by: door, "--count", "3").outcome()
            #expect(outcome.exitCode == 0 && outcome.errors == "", "\(outcome)")
            #expect(outcome.text == "--hello\n\nä\nb\n")
            try await RabbitMQ.shared.waitUntil(queue, "nothing is left") { $0 == Broker.Queue() }
        }

        @Test func headersAndBodiesAreJSON() async throws {
            let queue = TestQueue()
            let folder = try TemporaryFolder()
            let path = folder.file("body")
            let bytes = Data((0...255).map { UInt8($0) })
            try bytes.write(to: URL(fileURLWithPath: path))
            let first = try await self.send(
                queue,
                "--body",
                "say \"ä\"\n",
                "--content-type",
                "text/x",
                "--header",
                "Url: http://a:1",
                "--header",
                "é:",
                "--receipt"
            )
            #expect(first.exitCode == 0, "\(first)")
            #expect(try await self.send(queue, "--body-file", path, "--receipt").exitCode == 0)
            #expect(try await self.send(queue, "--body-file", "-", "--receipt", input: Data("in".utf8)).exitCode == 0)
            let outcome = try await self.subscribe(queue, "--json", "--count", "3").outcome()
            #expect(outcome.exitCode == 0 && outcome.errors == "", "\(outcome)")
            let lines = outcome.lines
            #expect(lines.count == 3)
            #expect(lines.first?.hasSuffix(#","body":"say \"ä\"\n"}"#) == true, "\(lines)")
            let objects = try outcome.objects()
            let headers = try #require(objects.first?["headers"] as? [String: String])
            #expect(headers["Url"] == " http://a:1" && headers["é"] == "" && headers["content-type"] == "text/x")
            #expect(headers["destination"] == queue.destination)
            #expect(objects[1].keys.sorted() == ["bodyBase64", "headers"])
            #expect(objects[1]["bodyBase64"] as? String == bytes.base64EncodedString())
            #expect(objects[2]["body"] as? String == "in")
        }

        @Test(arguments: ["client", "client-individual"]) func countKeepsTheRest(ack: String) async throws {
            let queue = TestQueue()
            let client = try await RabbitMQ.shared.client()
            try await client.sendAll(["1", "2", "3", "4", "5"], to: queue.destination)
            for (count, text) in [("2", "1\n2\n"), ("1", "3\n")] {
                let outcome = try await self.subscribe(queue, "--ack", ack, "--count", count).outcome()
                #expect(outcome.exitCode == 0 && outcome.text == text && outcome.errors == "", "\(outcome)")
            }
            try await RabbitMQ.shared.waitUntil(queue, "two are left") { $0 == Broker.Queue(ready: 2) }
            let subscription = try client.subscribe(to: queue.destination)
            #expect(try await subscription.next(2).map(\.text) == ["4", "5"])
            try await client.disconnect()
        }

        @Test(arguments: ["send", "subscribe"]) func wrongPasscodeIsNeverPrinted(command: String) async throws {
            let url = try await RabbitMQ.shared.url()
            let arguments = ["stomp", command, url, "/queue/x", "--vhost", "/", "--login", "guest"]
            let outcome = try await Command.run(arguments + ["--passcode", "-SECRET"])
            #expect(outcome.exitCode == 1 && outcome.text == "")
            let endpoint = url.dropFirst("stomp://".count)
            let expected =
                "error: handshakeRefused: the broker at \(endpoint) refused CONNECT: Bad CONNECT: "
                + "Access refused for user 'guest'"
            #expect(outcome.errorLines == [expected])
            #expect(!"\(outcome)".contains("SECRET"))
        }

        @Test func errorOfTheBrokerIsReportedByBothCommands() async throws {
            let url = try await RabbitMQ.shared.url()
            for options in [["send", url, "/nonsense/x", "--receipt"], ["subscribe", url, "/nonsense/x"]] {
                let outcome = try await Command.run(["stomp"] + options + Self.user)
                #expect(outcome.exitCode == 1 && outcome.text == "")
                #expect(outcome.errorLines.count == 1, "\(outcome.errors)")
                #expect(
                    outcome.errors.contains("Unknown destination: '/nonsense/x' is not a valid"),
                    "\(outcome.errors)"
                )
            }
        }

        @Test func errorOfTheBrokerEndsTheCommand() async throws {
            let queue = TestQueue()
            let command = try await self.subscribe(queue, "--ack", "client")
            try await RabbitMQ.shared.waitUntil(queue, "a subscription") { $0.consumers == 1 }
            try await RabbitMQ.shared.control("delete_queue", queue.name)
            let outcome = try await command.outcome()
            #expect(outcome.exitCode == 1 && outcome.text == "")
            #expect(outcome.errorLines.count == 1)
            #expect(outcome.errors.hasPrefix("error: brokerError: "), "\(outcome.errors)")
            #expect(outcome.errors.contains("Server cancelled subscription"), "\(outcome.errors)")
        }

        @Test(arguments: [SIGINT, SIGTERM]) func signalsEndIt(signal: CInt) async throws {
            let queue = TestQueue()
            let command = try await self.subscribe(queue)
            #expect(try await self.send(queue, "--body", "one").exitCode == 0)
            #expect(try await command.lines() == ["one"])
            command.signal(signal)
            let outcome = try await command.outcome()
            #expect(outcome.exitCode == 0 && outcome.text == "one\n" && outcome.errors == "", "\(outcome)")
        }

        /// The signal may come at any message.
        @Test(arguments: ["client", "client-individual"]) func messagesPrintedBeforeASignalAreAcknowledged(
            ack: String
        ) async throws {
            let queue = TestQueue()
            let client = try await RabbitMQ.shared.client()
            let texts = (0..<5_000).map { "\($0)" }
            try await client.sendAll(texts, to: queue.destination)
            let command = try await self.subscribe(queue, "--ack", ack)
            _ = try await command.lines(100)
            command.signal(SIGINT)
            let outcome = try await command.outcome()
            #expect(outcome.exitCode == 0 && outcome.errors == "", "\(outcome)")
            let lines = outcome.lines
            #expect(lines == Array(texts.prefix(lines.count)))
            try await RabbitMQ.shared.waitUntil(queue, "all others are left") {
                $0 == Broker.Queue(ready: texts.count - lines.count)
            }
            try await client.disconnect()
        }

        /// Messages that could not be printed are not acknowledged.
        @Test func closedOutputAcknowledgesNothing() async throws {
            let queue = TestQueue()
            let shell = try await ([Command.hhsocket.path] + Self.arguments("subscribe", .stomp, queue)).map {
                "'\($0)'"
            }
            let script = "\(shell.joined(separator: " ")) --ack client-individual | head -n 1; echo ended"
            let command = try Command(["-c", script], of: URL(fileURLWithPath: "/bin/sh"))
            #expect(try await self.send(queue, "--body", "one", "--receipt").exitCode == 0)
            #expect(try await command.lines() == ["one"])
            // The shell continues once both have ended.
            try await RabbitMQ.shared.waitUntil(queue, "the first is acknowledged") { $0 == Broker.Queue(consumers: 1) }
            try await eventually("it ends by a message that it cannot write") {
                _ = try await self.send(queue, "--body", "two", "--receipt")
                return command.output.contains("ended")
            }
            let outcome = try await command.outcome()
            #expect(outcome.text == "one\nended\n")
            try await RabbitMQ.shared.waitUntil(queue, "all others are left") { $0.ready >= 1 && $0.consumers == 0 }
            #expect(try await RabbitMQ.shared.queues()[queue.name]?.unacknowledged == 0)
        }

        /// The command continues with another connection.
        @Test func subscriptionSurvivesARestart() async throws {
            let node = try await RabbitMQ.shared
            let queue = TestQueue()
            let command = try await self.subscribe(
                queue,
                by: .webSocketTLS,
                "--ack",
                "client-individual",
                "--count",
                "2"
            )
            #expect(try await self.send(queue, "--body", "one").exitCode == 0)
            _ = try await command.lines()
            try await node.restart()
            try await node.waitUntil(queue, "a subscription") { $0.consumers == 1 }
            #expect(try await self.send(queue, "--body", "two").exitCode == 0)
            let outcome = try await command.outcome()
            #expect(outcome.exitCode == 0 && outcome.text == "one\ntwo\n", "\(outcome)")
            #expect(outcome.errorLines.count >= 1 && outcome.errors.hasPrefix("error: connectionLost: "), "\(outcome)")
        }
    }
}
