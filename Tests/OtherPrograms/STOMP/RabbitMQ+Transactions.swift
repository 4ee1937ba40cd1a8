// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketSTOMP
import NIOCore
import TestSupport
import Testing

extension RabbitMQTests {
    @Suite(.tags(.io)) struct RabbitMQTransactions {
        private struct Regret: Error {}

        @Test(arguments: Way.all) func committedMessagesArriveTogether(way: Way) async throws {
            let queue = TestQueue()
            let node = try await RabbitMQ.shared
            let client = try node.client(way.door, way.version)
            let texts = ["1", "2", "3"]
            let result = try await client.transaction { transaction in
                for text in texts { try await transaction.send(text, to: queue.destination) }
                // Its receipt follows them: they have been read.
                try await client.send("outside", to: queue.destination, receipt: true)
                let state = try await node.queues()[queue.name]
                #expect(state == Broker.Queue(ready: 1))
                return 7
            }
            #expect(result == 7)
            let subscription = try client.subscribe(to: queue.destination)
            #expect(try await subscription.next(4).map(\.text) == ["outside"] + texts)
            try await client.disconnect()
        }

        @Test(arguments: Way.all) func throwingAborts(way: Way) async throws {
            let queue = TestQueue()
            let node = try await RabbitMQ.shared
            let (client, events) = try node.clientWithEvents(way.door, way.version)
            await #expect(throws: Regret.self) {
                try await client.transaction { transaction in
                    try await transaction.send("never", to: queue.destination)
                    throw Regret()
                }
            }
            try await client.send("after", to: queue.destination, receipt: true)
            #expect(try await node.queues()[queue.name] == Broker.Queue(ready: 1))
            #expect(try await client.subscribe(to: queue.destination).next().text == "after")
            #expect(events.current.ends.isEmpty)
            try await client.disconnect()
        }

        @Test(arguments: Way.all) func acksOfAnAbortedTransactionAreUndone(way: Way) async throws {
            let queue = TestQueue()
            let node = try await RabbitMQ.shared
            let (client, events) = try node.clientWithEvents(way.door, way.version)
            try await client.sendAll(["1", "2", "3"], to: queue.destination)
            let mode: STOMPAckMode = way.version > .v1_0 ? .clientIndividual : .client
            let subscription = try client.subscribe(to: queue.destination, ack: mode)
            let messages = try await subscription.next(3)
            await #expect(throws: Regret.self) {
                try await client.transaction { transaction in
                    for message in messages { try await transaction.ack(message) }
                    throw Regret()
                }
            }
            try await client.send("x", to: TestQueue().destination, receipt: true)
            #expect(try await node.queues()[queue.name]?.unacknowledged == 3)
            try await client.transaction { try await $0.ack(messages[0]) }
            #expect(try await node.queues()[queue.name]?.unacknowledged == 2)
            try await messages[1].ack(receipt: true)
            try await subscription.unsubscribe()
            try await client.disconnect()
            try await node.waitUntil(queue, "the third alone is left") { $0 == Broker.Queue(ready: 1) }
            try await events.wait("the end") { $0.ends.count == 1 }
        }

        /// Consume, work, produce.
        @Test func acksAndSendsTakeEffectTogether() async throws {
            let (source, target) = (TestQueue("source"), TestQueue("target"))
            let node = try await RabbitMQ.shared
            let client = try node.client(.webSocket)
            try await client.sendAll((0..<20).map { "\($0)" }, to: source.destination)
            let subscription = try client.subscribe(to: source.destination, ack: .clientIndividual, window: 1)
            var (failed, last) = (0, "")
            // Every third fails at first.
            while last != "19" {
                let message = try await subscription.next()
                last = try #require(message.text)
                do {
                    try await client.transaction { transaction in
                        try await transaction.send("done \(last)", to: target.destination)
                        try await transaction.ack(message)
                        guard !(try #require(Int(last)).isMultiple(of: 3)) || failed > 0 else { throw Regret() }
                    }
                    failed = 0
                } catch is Regret {
                    failed += 1
                    try await message.nack()
                    last = ""
                }
            }
            #expect(try await node.queues()[source.name] == Broker.Queue(consumers: 1))
            try await subscription.unsubscribe()
            let results = try await client.subscribe(to: target.destination).next(20)
            #expect(results.map(\.text) == (0..<20).map { "done \($0)" })
            try await client.disconnect()
        }

        @Test func transactionsDoNotMix() async throws {
            let queue = TestQueue()
            let client = try await RabbitMQ.shared.client()
            try await client.transaction { outer in
                try await outer.send("outer 1", to: queue.destination)
                await #expect(throws: Regret.self) {
                    try await client.transaction { inner in
                        try await inner.send("inner", to: queue.destination)
                        throw Regret()
                    }
                }
                try await client.transaction { try await $0.send("other", to: queue.destination) }
                try await outer.send("outer 2", to: queue.destination)
            }
            try await client.send("end", to: queue.destination, receipt: true)
            let messages = try await client.subscribe(to: queue.destination).next(4)
            #expect(messages.map(\.text) == ["other", "outer 1", "outer 2", "end"])
            try await client.disconnect()
        }

        @Test func transactionEndsWithItsConnection() async throws {
            let queue = TestQueue()
            let node = try await RabbitMQ.shared
            let (client, events) = try node.clientWithEvents()
            let error = await #expect(throws: SocketError.self) {
                try await client.transaction { transaction in
                    try await transaction.send("never", to: queue.destination)
                    try await client.disconnect()
                    client.connect()
                    try await events.opened(2)
                    let error = try await socketError { () async throws(SocketError) in
                        try await transaction.send("neither", to: queue.destination)
                    }
                    #expect(error.code == .connectionLost && error.delivery == .notSent)
                }
            }
            #expect(error?.code == .connectionLost && error?.delivery == .notSent)
            try await client.send("after", to: queue.destination, receipt: true)
            #expect(try await node.queues()[queue.name] == Broker.Queue(ready: 1))
            try await client.disconnect()
        }
    }
}
