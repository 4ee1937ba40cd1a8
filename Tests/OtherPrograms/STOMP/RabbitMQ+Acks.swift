// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketSTOMP
import NIOCore
import TestSupport
import Testing

extension RabbitMQTests {
    /// The redelivery of messages.
    @Suite(.tags(.io)) struct RabbitMQAcks {
        private let texts = ["1", "2", "3", "4", "5"]

        /// Five messages of a queue, delivered to a new client.
        private func five(
            _ way: Way,
            _ ack: STOMPAckMode
        ) async throws -> (queue: TestQueue, client: STOMPClient, subscription: STOMPSubscription, [STOMPMessage]) {
            let queue = TestQueue()
            let client = try await RabbitMQ.shared.client(way.door, way.version)
            try await client.sendAll(self.texts, to: queue.destination)
            let subscription = try client.subscribe(to: queue.destination, ack: ack)
            let messages = try await subscription.next(self.texts.count)
            #expect(messages.map(\.text) == self.texts)
            return (queue, client, subscription, messages)
        }

        /// Expects that exactly these messages are redelivered.
        private func expect(
            again: [String],
            _ queue: TestQueue,
            _ way: Way,
            sourceLocation: SourceLocation = #_sourceLocation
        ) async throws {
            let node = try await RabbitMQ.shared
            try await node.waitUntil(queue, "what is not acknowledged is there again") { $0.unacknowledged == 0 }
            let left = try await node.queues()[queue.name]?.ready
            #expect(left == again.count, sourceLocation: sourceLocation)
            guard left == again.count else { return }
            let client = try node.client(way.door, way.version)
            let messages = try await client.subscribe(to: queue.destination).next(again.count)
            #expect(messages.map(\.text) == again, sourceLocation: sourceLocation)
            #expect(messages.allSatisfy { $0.headers["redelivered"] == "true" }, sourceLocation: sourceLocation)
            try await client.disconnect()
        }

        @Test(arguments: Way.withNACK) func individualAcksCoverOneMessageEach(way: Way) async throws {
            let (queue, client, subscription, messages) = try await self.five(way, .clientIndividual)
            try await messages[3].ack()
            try await messages[1].ack(receipt: true)
            // The client ignores the second call, since RabbitMQ would end the connection.
            try await messages[1].ack(receipt: true)
            try await subscription.unsubscribe()
            let error = try await socketError { () async throws(SocketError) in try await messages[0].ack() }
            #expect(error.code == .invalidArgument)
            // RabbitMQ requeues unacknowledged messages when the connection ends.
            try await client.disconnect()
            try await self.expect(again: ["1", "3", "5"], queue, way)
        }

        @Test(arguments: Way.all) func acksCoverAllBefore(way: Way) async throws {
            let (queue, client, subscription, messages) = try await self.five(way, .client)
            try await messages[3].ack()
            // This also acknowledges the earlier ones.
            try await messages[1].ack(receipt: true)
            try await subscription.unsubscribe()
            try await client.disconnect()
            try await self.expect(again: ["5"], queue, way)
        }

        @Test(arguments: Broker.Door.allCases) func firstVersionHasOneAckMode(door: Broker.Door) async throws {
            let way = Way(door: door, version: .v1_0)
            let (queue, client, subscription, messages) = try await self.five(way, .client)
            for message in messages.prefix(4) { try await message.ack() }
            let refusal = try await socketError { () async throws(SocketError) in try await messages[4].nack() }
            #expect(refusal.code == .invalidArgument)
            let individual = try client.subscribe(to: queue.destination, ack: .clientIndividual)
            #expect(try await individual.failure().code == .invalidArgument)
            try await subscription.unsubscribe()
            try await client.disconnect()
            try await self.expect(again: ["5"], queue, way)
        }

        @Test(arguments: Way.withNACK) func rejectedMessagesComeAgainOrNot(way: Way) async throws {
            let (queue, client, subscription, messages) = try await self.five(way, .clientIndividual)
            try await messages[1].nack(receipt: true)
            let again = try await subscription.next()
            #expect(again.text == "2" && again.headers["redelivered"] == "true")
            try await again.ack(receipt: true)
            try await messages[2].nack(headers: ["requeue": "false"], receipt: true)
            let error = try await socketError { () async throws(SocketError) in try await messages[2].nack() }
            #expect(error.code == .invalidArgument)
            try await subscription.unsubscribe()
            try await client.disconnect()
            try await self.expect(again: ["1", "4", "5"], queue, way)
        }

        @Test(arguments: Broker.Door.allCases) func autoNeedsNoAck(door: Broker.Door) async throws {
            let (queue, client, subscription, messages) = try await self.five(Way(door: door, version: .v1_2), .auto)
            let error = try await socketError { () async throws(SocketError) in try await messages[0].ack() }
            #expect(error.code == .invalidArgument)
            try await subscription.unsubscribe()
            try await client.disconnect()
            #expect(try await RabbitMQ.shared.queues()[queue.name] == Broker.Queue())
        }

        /// As if its process had died: no UNSUBSCRIBE and no DISCONNECT is sent.
        @Test(arguments: Broker.Door.allCases) func unacknowledgedMessagesOfAReleasedClientAreRedelivered(
            door: Broker.Door
        ) async throws {
            let way = Way(door: door, version: .v1_2)
            let queue: TestQueue
            do {
                let (itsQueue, client, subscription, messages) = try await self.five(way, .clientIndividual)
                try await messages[2].ack(receipt: true)
                queue = itsQueue
                withExtendedLifetime((client, subscription)) {}
            }
            try await self.expect(again: ["1", "2", "4", "5"], queue, way)
        }

        /// An old acknowledgement would apply to another message.
        @Test func acksOfAnOldConnectionAreRefused() async throws {
            let (queue, client, subscription, messages) = try await self.five(
                Way(door: .stomp, version: .v1_2),
                .clientIndividual
            )
            try await client.disconnect()
            client.connect()
            let again = try await subscription.next(5)
            #expect(again.map(\.text) == self.texts)
            #expect(again.allSatisfy { $0.headers["redelivered"] == "true" })
            let acked = try await socketError { () async throws(SocketError) in try await messages[0].ack() }
            let rejected = try await socketError { () async throws(SocketError) in try await messages[0].nack() }
            #expect(acked.code == .connectionLost && rejected.code == .connectionLost)
            for message in again { try await message.ack() }
            try await subscription.unsubscribe()
            try await client.disconnect()
            #expect(try await RabbitMQ.shared.queues()[queue.name] == Broker.Queue())
        }

        /// There are never more messages in transit.
        @Test(arguments: [Broker.Door.stomp, .webSocketTLS]) func windowIsKept(door: Broker.Door) async throws {
            let queue = TestQueue()
            let node = try await RabbitMQ.shared
            let client = try node.client(door)
            let texts = (0..<20).map { "\($0)" }
            try await client.sendAll(texts, to: queue.destination)
            let subscription = try client.subscribe(to: queue.destination, ack: .clientIndividual, window: 3)
            var held = try await subscription.next(3)
            for taken in 3..<20 {
                let state = try await node.queues()[queue.name]
                #expect(state == Broker.Queue(ready: 20 - taken, unacknowledged: 3, consumers: 1))
                try await held.removeFirst().ack()
                held.append(try await subscription.next())
                #expect(held.last?.text == "\(taken)")
            }
            for message in held { try await message.ack() }
            try await subscription.unsubscribe()
            try await client.disconnect()
            #expect(try await node.queues()[queue.name] == Broker.Queue())
        }

        /// Messages held by the reader of one subscription do not block the others.
        @Test(arguments: [Broker.Door.stomp, .webSocket]) func fullWindowHoldsUpNothingElse(
            door: Broker.Door
        ) async throws {
            let node = try await RabbitMQ.shared
            let (slow, fast) = (TestQueue("slow"), TestQueue("fast"))
            let client = try node.client(door)
            try await client.sendAll(["1", "2"], to: slow.destination)
            let held = try client.subscribe(to: slow.destination, ack: .clientIndividual, window: 1)
            let message = try await held.next()
            let other = try client.subscribe(to: fast.destination)
            let sender = try node.client(door)
            for number in 0..<3 {
                try await sender.send("\(number)", to: fast.destination, receipt: true)
                #expect(try await other.next().text == "\(number)")
            }
            try await message.ack()
            #expect(try await held.next().text == "2")
            try await sender.disconnect()
            try await client.disconnect()
        }

        /// With a broker that ignores windows, the client suspends reading before there are more.
        @Test func windowOfABrokerThatKnowsNoneSuspendsReading() async throws {
            let queue = TestQueue()
            let node = try await RabbitMQ.shared
            let client = try node.client()
            let body = ByteBuffer(repeating: 0x20, count: 10_000)
            for _ in 0..<1_000 { client.send(body, to: queue.destination, completion: nil) }
            try await client.send(body, to: queue.destination, receipt: true)
            let subscription = try client.subscribe(
                to: queue.destination,
                ack: .client,
                window: 5,
                headers: ["prefetch-count": "0", "activemq.prefetchSize": "0"]
            )
            try await withDeadline("all are read") {
                var count = 0
                for try await message in subscription {
                    count += 1
                    try await message.ack(receipt: count.isMultiple(of: 100))
                    if count == 1_001 { break }
                }
            }
            try await subscription.unsubscribe()
            #expect(try await node.queues()[queue.name] == Broker.Queue())
            try await client.disconnect()
        }
    }
}
