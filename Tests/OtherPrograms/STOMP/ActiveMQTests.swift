// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketSTOMP
import NIOCore
import TestSupport
import Testing

/// `STOMPClient` with ActiveMQ: with the one that `make test-activemq` starts around the tests, and with one that
/// restarts.
@Suite(.tags(.io), .serialized, .timeLimit(.minutes(5)), .enabled(if: ActiveMQ.isRunning, ActiveMQ.howToGetIt))
struct ActiveMQTests {
    private static let versionsWithNACK = [STOMPVersion.v1_1, .v1_2]

    private let queue = TestQueue()

    private func connect(
        _ version: STOMPVersion = .v1_2,
        isEncrypted: Bool = false,
        _ change: (inout STOMPClient.Configuration) -> Void = { _ in }
    ) throws -> (client: STOMPClient, events: ClientEvents) {
        let url = isEncrypted ? ActiveMQ.urlWithTLS : ActiveMQ.url
        var configuration = try STOMPClient.Configuration(url: try #require(url))
        configuration.versions = [version]
        configuration.timeout = patience
        configuration.connectTimeout = patience
        configuration.socket.backoff = Backoff(base: .milliseconds(20), cap: .milliseconds(200))
        if isEncrypted {
            var tls = ClientTLS()
            tls.trust = try TestAuthority().trust
            configuration.socket.tls = tls
        }
        change(&configuration)
        let client = STOMPClient(configuration: configuration)
        let events = ClientEvents(client)
        client.connect()
        return (client, events)
    }

    @Test func itDelivers() async throws {
        for url in [ActiveMQ.url, ActiveMQ.urlWithTLS] {
            try await RealBrokerSupportTests.sendToOurselves(try #require(url))
        }
    }

    @Test(arguments: STOMPVersion.allCases, [false, true])
    func messagesArriveUnharmed(version: STOMPVersion, isEncrypted: Bool) async throws {
        let (client, events) = try self.connect(version, isEncrypted: isEncrypted)
        let bodies = [
            ByteBuffer(string: "hello"), ByteBuffer(), ByteBuffer(string: "a:b\n\nc\r\n"),
            ByteBuffer(bytes: (0...255).map { UInt8($0) }), ByteBuffer(repeating: 0xFF, count: 1_500_000),
        ]
        let subscription = try client.subscribe(to: self.queue.destination)
        var headers: STOMPHeaders = ["unicode-ä": "ß€😀"]
        if version > .v1_0 { headers.add(name: "url", value: "http://a:1/\\n\n") }
        for body in bodies { try await client.send(body, to: self.queue.destination, headers: headers, receipt: true) }
        let messages = try await subscription.next(bodies.count)
        #expect(messages.map(\.body) == bodies)
        for message in messages {
            for (name, value) in headers { #expect(message.headers[name] == value) }
        }
        #expect(try await events.opened().version == version)
        try await client.disconnect()
    }

    /// With `content-length` the messages would be binary for a JMS client, and be delivered with that header.
    @Test(arguments: STOMPVersion.allCases, [false, true])
    func textsMayBeTextMessages(version: STOMPVersion, omitsContentLength: Bool) async throws {
        let (client, _) = try self.connect(version) { $0.omitsContentLengthOfText = omitsContentLength }
        let subscription = try client.subscribe(to: self.queue.destination)
        try await client.send("text ä", to: self.queue.destination, receipt: true)
        let message = try await subscription.next()
        #expect(message.text == "text ä")
        #expect(message.headers.contains(name: "content-length") == !omitsContentLength)
        if omitsContentLength {
            let error = try await socketError { () async throws(SocketError) in
                try await client.send("a\0b", to: self.queue.destination)
            }
            #expect(error.code == .invalidArgument)
        }
        try await client.disconnect()
    }

    private static let modes: [(STOMPVersion, STOMPAckMode)] = [
        (.v1_0, .client), (.v1_1, .client), (.v1_2, .client), (.v1_1, .clientIndividual), (.v1_2, .clientIndividual),
    ]

    @Test(arguments: Self.modes) func unacknowledgedMessagesAreRedelivered(
        version: STOMPVersion,
        mode: STOMPAckMode
    ) async throws {
        let texts = ["1", "2", "3", "4", "5"]
        let (client, events) = try self.connect(version)
        try await client.sendAll(texts, to: self.queue.destination)
        let subscription = try client.subscribe(to: self.queue.destination, ack: mode)
        let messages = try await subscription.next(5)
        try await messages[2].ack(receipt: true)
        // The message is covered by the first ACK, or acknowledged separately.
        try await messages[1].ack(receipt: true)
        try await subscription.unsubscribe()
        let left = mode == .client ? ["4", "5"] : ["1", "4", "5"]
        let again = try client.subscribe(to: self.queue.destination)
        #expect(try await again.next(left.count).map(\.text) == left)
        #expect(events.current.ends.isEmpty)
        try await client.disconnect()
    }

    /// ActiveMQ moves a rejected message to its queue of dead letters.
    @Test(arguments: Self.versionsWithNACK) func rejectedMessagesAreDeadLetters(version: STOMPVersion) async throws {
        let (client, _) = try self.connect(version)
        let dead = try client.subscribe(to: "/queue/ActiveMQ.DLQ", headers: ["selector": "mark = '\(self.queue.name)'"])
        try await dead.waitUntilConfirmed()
        let headers: STOMPHeaders = ["persistent": "true", "mark": self.queue.name]
        try await client.sendAll(["1", "2"], to: self.queue.destination, headers: headers)
        let subscription = try client.subscribe(to: self.queue.destination, ack: .clientIndividual)
        let messages = try await subscription.next(2)
        try await messages[0].nack(receipt: true)
        try await messages[1].ack(receipt: true)
        #expect(try await dead.next().text == "1")
        try await client.disconnect()
    }

    @Test func windowIsKept() async throws {
        let (client, _) = try self.connect()
        let texts = (0..<50).map { "\($0)" }
        try await client.sendAll(texts, to: self.queue.destination)
        let one = try client.subscribe(to: self.queue.destination, ack: .clientIndividual, window: 2)
        let held = try await one.next(2)
        let other = try client.subscribe(to: self.queue.destination, ack: .clientIndividual, window: 100)
        // All other messages are delivered there.
        let rest = try await other.next(48)
        #expect(held.map(\.text) + rest.map(\.text) == texts)
        for message in held + rest { try await message.ack() }
        try await one.unsubscribe()
        try await other.unsubscribe()
        try await client.disconnect()
    }

    @Test(arguments: STOMPVersion.allCases) func transactionsAreCommittedOrAborted(version: STOMPVersion) async throws {
        let (client, _) = try self.connect(version)
        try await client.commitsAndAborts(self.queue)
    }

    @Test func acksOfACommittedTransactionTakeEffect() async throws {
        struct Regret: Error {}
        let (client, _) = try self.connect()
        try await client.sendAll(["1", "2", "3"], to: self.queue.destination)
        let subscription = try client.subscribe(to: self.queue.destination, ack: .clientIndividual)
        let messages = try await subscription.next(3)
        try await client.transaction { try await $0.ack(messages[0]) }
        await #expect(throws: Regret.self) {
            try await client.transaction { transaction in
                try await transaction.ack(messages[1])
                throw Regret()
            }
        }
        try await subscription.unsubscribe()
        try await client.disconnect()
        let (other, _) = try self.connect()
        #expect(try await other.subscribe(to: self.queue.destination).next(2).map(\.text) == ["2", "3"])
        try await other.disconnect()
    }

    @Test func disconnectWaitsForReceipts() async throws {
        let (client, events) = try self.connect()
        // Without a connection there would be nothing to wait for.
        try await events.opened()
        let confirmed = Watched(0)
        for number in 0..<100 {
            client.send(ByteBuffer(string: "\(number)"), to: self.queue.destination, receipt: true) { result in
                if case .success = result { confirmed.withLockedValue { $0 += 1 } }
            }
        }
        try await client.disconnect()
        try await confirmed.wait("all receipts") { $0 == 100 }
        #expect(events.current.agreements.count == 1)
    }

    @Test func errorIsReported() async throws {
        let (client, events) = try self.connect()
        let subscription = try client.subscribe(to: self.queue.destination, headers: ["selector": "(("])
        let error = try await subscription.failure()
        #expect(error.code == .brokerError && error.brokersWord?.message != nil, "\(error)")
        try await client.send("x", to: self.queue.destination, receipt: true)
        #expect(events.current.agreements.count <= 2)
        try await client.disconnect()
    }

    @Test func heartbeatsAreAgreedOn() async throws {
        let second = STOMPHeartbeats(send: .seconds(1), receive: .seconds(1))
        let (client, events) = try self.connect { $0.heartbeats = second }
        #expect(try await events.opened().heartbeats == second)
        try await client.disconnect()
    }

    @Test func confirmedMessagesAndSubscriptionsSurviveARestart() async throws {
        let node = try await ActiveMQ.start()
        let (client, events) = try node.clientWithEvents()
        let subscription = try client.subscribe(to: self.queue.destination, ack: .clientIndividual)
        try await subscription.waitUntilConfirmed()
        for number in 1...2 {
            try await client.send(
                "\(number)",
                to: self.queue.destination,
                headers: ["persistent": "true"],
                receipt: true
            )
            #expect(try await subscription.next().text == "1")
            if number == 1 {
                try await node.restart()
            } else {
                try await node.kill()
                try await node.start()
            }
            try await events.opened(number + 1)
        }
        let again = try await subscription.next(2)
        #expect(again.map(\.text) == ["1", "2"])
        for message in again { try await message.ack(receipt: true) }
        try await client.send("end", to: self.queue.destination, receipt: true)
        #expect(try await subscription.next().text == "end")
        try await client.disconnect()
    }
}
