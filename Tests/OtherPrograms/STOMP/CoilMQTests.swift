// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketSTOMP
import NIOCore
import TestSupport
import Testing

/// `STOMPClient` with PyPI's coilmq, in the part of STOMP that it supports.
///
/// It accepts no line ends between frames, so there are no heart-beats; requires `destination` in UNSUBSCRIBE, and `id`
/// in ACK of 1.0; has no NACK, and no header `ack` in messages of 1.2, which can therefore not be acknowledged; and
/// delivers one message at a time in ack mode `client`.
@Suite(.tags(.io), .serialized, .timeLimit(.minutes(5)), .enabled(if: CoilMQ.isInstalled, CoilMQ.howToGetIt))
struct CoilMQTests {
    private static let server = Task { try await CoilMQ.start() }

    private let queue = TestQueue()

    private func connect(
        _ version: STOMPVersion,
        _ server: Broker
    ) async throws -> (client: STOMPClient, events: ClientEvents) {
        let (client, events) = try server.clientWithEvents(.stomp, version) { $0.heartbeats = .off }
        #expect(try await events.opened().version == version)
        return (client, events)
    }

    @Test(arguments: STOMPVersion.allCases) func bodiesArriveUnharmed(version: STOMPVersion) async throws {
        let (client, events) = try await self.connect(version, Self.server.value)
        let bodies = [
            ByteBuffer(string: "hello"), ByteBuffer(), ByteBuffer(string: "a:b\n\nc\r\n"),
            ByteBuffer(bytes: (0...255).map { UInt8($0) }), ByteBuffer(repeating: 0xFF, count: 3_000),
        ]
        let subscription = try client.subscribe(to: self.queue.destination)
        for body in bodies { try await client.send(body, to: self.queue.destination, receipt: true) }
        #expect(try await subscription.next(bodies.count).map(\.body) == bodies)
        try await client.send("text", to: self.queue.destination, headers: ["unicode-ä": "ß€😀"])
        let message = try await subscription.next()
        #expect(message.text == "text" && message.contentType == "text/plain")
        #expect(message.headers["unicode-ä"] == "ß€😀")
        try await subscription.unsubscribe(headers: ["destination": self.queue.destination])
        try await client.disconnect()
        // Events have a separate stream.
        try await eventually("the end") { events.current.ends.count == 1 }
        #expect(events.current.agreements.count == 1)
    }

    @Test(arguments: STOMPVersion.allCases) func topicsReachEverySubscriber(version: STOMPVersion) async throws {
        let topic = "/topic/\(UUID())"
        let (one, _) = try await self.connect(version, Self.server.value)
        let (other, _) = try await self.connect(version, Self.server.value)
        let subscriptions = [try one.subscribe(to: topic), try other.subscribe(to: topic)]
        for subscription in subscriptions { try await subscription.waitUntilConfirmed() }
        try await one.send("hello", to: topic, receipt: true)
        for subscription in subscriptions { #expect(try await subscription.next().text == "hello") }
        try await one.disconnect()
        try await other.disconnect()
    }

    @Test(arguments: [STOMPVersion.v1_0, .v1_1]) func acknowledgedMessagesDoNotComeAgain(
        version: STOMPVersion
    ) async throws {
        let server = try await Self.server.value
        let texts = ["1", "2", "3"]
        do {
            let (client, _) = try await self.connect(version, server)
            for text in texts { try await client.send(text, to: self.queue.destination, receipt: true) }
            let subscription = try client.subscribe(to: self.queue.destination, ack: .client)
            let first = try await subscription.next()
            #expect(first.text == "1")
            try await first.ack(headers: version == .v1_0 ? ["id": subscription.id] : [:], receipt: true)
            #expect(try await subscription.next().text == "2")
            try await client.disconnect()
        }
        let (client, _) = try await self.connect(version, server)
        let subscription = try client.subscribe(to: self.queue.destination)
        // Redelivered messages come last.
        #expect(try await subscription.next(2).map(\.text) == ["3", "2"])
        try await client.disconnect()
    }

    /// Its messages of 1.2 have no header `ack`.
    @Test func messageWithoutAnIdentifierCannotBeAcknowledged() async throws {
        let (client, events) = try await self.connect(.v1_2, Self.server.value)
        let subscription = try client.subscribe(to: self.queue.destination, ack: .client)
        try await client.send("x", to: self.queue.destination, receipt: true)
        let message = try await subscription.next()
        let error = try await socketError { () async throws(SocketError) in try await message.ack() }
        #expect(error.code == .invalidArgument && error.message.contains("without the header ack"))
        #expect(events.current.ends.isEmpty)
        try await client.disconnect()
    }

    @Test(arguments: STOMPVersion.allCases) func transactionsAreCommittedOrAborted(version: STOMPVersion) async throws {
        let (client, _) = try await self.connect(version, Self.server.value)
        try await client.commitsAndAborts(self.queue)
    }

    @Test func subscriptionsAreThereOnceAfterARestart() async throws {
        let server = try await CoilMQ.start()
        let (client, events) = try await self.connect(.v1_1, server)
        let topic = "/topic/\(UUID())"
        let subscriptions = [try client.subscribe(to: self.queue.destination), try client.subscribe(to: topic)]
        for number in 1...3 {
            try await events.opened(number)
            for subscription in subscriptions { try await subscription.waitUntilConfirmed() }
            for destination in [self.queue.destination, topic] {
                // Each arrives once: the second is not a copy of the first.
                try await client.send("\(number)", to: destination, receipt: true)
                try await client.send("end of \(number)", to: destination, receipt: true)
            }
            for subscription in subscriptions {
                #expect(try await subscription.next(2).map(\.text) == ["\(number)", "end of \(number)"])
            }
            guard number < 3 else { break }
            if number == 1 {
                try await server.restart()
            } else {
                try await server.kill()
                try await server.start()
            }
        }
        try await events.opened(3)
        #expect(events.current.agreements.count == 3)
        try await client.disconnect()
    }

    /// The broker answers with ERROR, and stops reading.
    @Test func errorIsReportedAndTheConnectionIsReplaced() async throws {
        let (client, events) = try await self.connect(.v1_1, Self.server.value)
        let subscription = try client.subscribe(to: self.queue.destination, ack: .client)
        try await client.send("x", to: self.queue.destination, receipt: true)
        try await subscription.next().nack()
        let end = try await events.value("the end") { $0.ends.first ?? nil }
        #expect(end.code == .brokerError && end.brokersWord?.message != nil, "\(end)")
        try await events.opened(2)
        #expect(try await subscription.next().text == "x")
        try await client.disconnect()
    }
}
