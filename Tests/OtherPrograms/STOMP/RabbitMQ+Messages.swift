// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketSTOMP
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

extension RabbitMQTests {
    /// Messages arrive as they were sent.
    @Suite(.tags(.io)) struct RabbitMQMessages {
        private static let bodies: [ByteBuffer] = [
            ByteBuffer(string: "hello"),
            ByteBuffer(),
            ByteBuffer(string: "line\nline\r\n\r\n\nlast\n"),
            ByteBuffer(string: "a:b\\c: \\n"),
            ByteBuffer(string: "ä€😀"),
            ByteBuffer(string: "MESSAGE\nsubscription:sub-1\n\nno frame\0"),
            // It could be taken for base64.
            ByteBuffer(string: "aGVsbG8="),
            ByteBuffer(bytes: [0]),
            ByteBuffer(bytes: (0...255).map { UInt8($0) }),
            ByteBuffer(bytes: [0xFF, 0xFE, 0xC0, 0x80, 0xED, 0xA0, 0x80, 0]),
            ByteBuffer(repeating: 0x0A, count: 70_000),
            ByteBuffer(repeating: 0xFF, count: 1_500_000),
        ]

        @Test(arguments: Way.all) func bodiesArriveUnharmed(way: Way) async throws {
            let queue = TestQueue()
            let (client, events) = try await RabbitMQ.shared.clientWithEvents(way.door, way.version)
            let subscription = try client.subscribe(to: queue.destination)
            for body in Self.bodies { client.send(body, to: queue.destination, completion: nil) }
            let messages = try await subscription.next(Self.bodies.count)
            for (message, body) in zip(messages, Self.bodies) {
                #expect(message.body == body)
                #expect(message.destination == queue.destination)
                #expect(message.subscriptionID == subscription.id)
                #expect(message.contentType == nil)
            }
            #expect(messages[4].text == "ä€😀")
            #expect(messages[9].text == nil)
            #expect(try await events.opened().version == way.version)
            try await client.disconnect()
        }

        @Test(arguments: Way.all) func headersArriveAsTheyWereSent(way: Way) async throws {
            let queue = TestQueue()
            let client = try await RabbitMQ.shared.client(way.door, way.version)
            let subscription = try client.subscribe(to: queue.destination)
            var headers: STOMPHeaders = ["unicode-ä": "ß€😀", "empty": "", "trailing": "two  "]
            if way.version > .v1_0 {
                headers.add(name: "url", value: "http://[::1]:80/?a:b")
                headers.add(name: "with:colon", value: "\\c")
                headers.add(name: "leading", value: "  two")
                headers.add(name: "lines", value: "one\n\ntwo\\n")
            }
            if way.version > .v1_1 { headers.add(name: "carriage", value: "one\r\ntwo\\r") }
            try await client.send("x", to: queue.destination, headers: headers)
            let message = try await subscription.next()
            for (name, value) in headers { #expect(message.headers[name] == value, "\(name)") }
            #expect(message.contentType == "text/plain")
            try await client.disconnect()
        }

        @Test func firstOfRepeatedHeadersCounts() async throws {
            let queue = TestQueue()
            let client = try await RabbitMQ.shared.client()
            let subscription = try client.subscribe(to: queue.destination)
            var headers = STOMPHeaders()
            for value in ["first", "second"] { headers.add(name: "twice", value: value) }
            try await client.send("x", to: queue.destination, headers: headers)
            #expect(try await subscription.next().headers.values(of: "twice") == ["first"])
            try await client.disconnect()
        }

        /// STOMP 1.0 cannot express these headers, so the frames are rejected before they are sent.
        @Test func framesThatAVersionCannotExpressAreRefusedWithoutHarm() async throws {
            let queue = TestQueue()
            let (client, events) = try await RabbitMQ.shared.clientWithEvents(.stomp, .v1_0)
            try await events.opened()
            for headers in [["a": "line\n"], ["a:b": "c"]] as [STOMPHeaders] {
                let error = try await socketError { () async throws(SocketError) in
                    try await client.send("x", to: queue.destination, headers: headers, receipt: true)
                }
                #expect(error.code == .invalidArgument && error.delivery == .notSent)
            }
            try await client.send("x", to: queue.destination, receipt: true)
            #expect(events.current.ends.isEmpty)
            try await client.disconnect()
        }

        @Test(arguments: [Broker.Door.stomp, .webSocket]) func messageBeyondTheLimitEndsTheConnection(
            door: Broker.Door
        ) async throws {
            let queue = TestQueue()
            let node = try await RabbitMQ.shared
            let sender = try node.client()
            let (client, events) = try node.clientWithEvents(door) { $0.limits.maximumBodyLength = 1_000 }
            let subscription = try client.subscribe(to: queue.destination)
            try await subscription.waitUntilConfirmed()
            try await sender.send(ByteBuffer(repeating: 0x20, count: 1_001), to: queue.destination, receipt: true)
            let end = try await events.value("the end") { $0.ends.first ?? nil }
            #expect(end.code == .protocolViolation && end.message.contains("1000"), "\(end)")
            try await events.opened(2)
            try await sender.send(ByteBuffer(repeating: 0x20, count: 1_000), to: queue.destination, receipt: true)
            #expect(try await subscription.next().body.readableBytes == 1_000)
            try await client.disconnect()
            try await sender.disconnect()
        }

        /// Subscriptions and messages from before the connection, in order.
        @Test(arguments: Broker.Door.allCases) func thousandsArriveInOrder(door: Broker.Door) async throws {
            let queue = TestQueue()
            let node = try await RabbitMQ.shared
            let sender = try node.client(door)
            let receiver = try node.client(door)
            let subscription = try receiver.subscribe(to: queue.destination)
            let texts = (0..<3_000).map { "message \($0)" }
            try await sender.sendAll(texts, to: queue.destination)
            #expect(try await subscription.next(texts.count).map(\.text) == texts)
            try await sender.disconnect()
            try await receiver.disconnect()
        }

        @Test func topicsReachEverySubscriber() async throws {
            let topic = UUID().uuidString
            let node = try await RabbitMQ.shared
            let clients = try Broker.Door.allCases.map { try node.client($0) }
            let subscriptions = try clients.enumerated().map { number, client in
                try client.subscribe(to: "/topic/\(topic).\(number.isMultiple(of: 2) ? "one" : "*")")
            }
            for subscription in subscriptions { try await subscription.waitUntilConfirmed() }
            try await clients[0].send("all", to: "/topic/\(topic).one")
            try await clients[0].send("some", to: "/topic/\(topic).two")
            try await clients[0].send("all again", to: "/topic/\(topic).one")
            for (number, subscription) in subscriptions.enumerated() {
                let texts = try await subscription.next(number.isMultiple(of: 2) ? 2 : 3).map(\.text)
                #expect(texts == (number.isMultiple(of: 2) ? ["all", "all again"] : ["all", "some", "all again"]))
            }
            for client in clients { try await client.disconnect() }
        }

        /// RabbitMQ makes the subscription of a temporary queue by itself.
        @Test func answersToATemporaryQueueAreUnclaimed() async throws {
            let queue = TestQueue()
            let node = try await RabbitMQ.shared
            let server = try node.client()
            let requests = try server.subscribe(to: queue.destination)
            let (client, events) = try node.clientWithEvents(.webSocket)
            try await client.send("question", to: queue.destination, headers: ["reply-to": "/temp-queue/answers"])
            let request = try await requests.next()
            try await server.send("answer", to: try #require(request.headers["reply-to"]))
            let answer = try await events.value("the answer") { $0.unclaimed.first }
            #expect(answer.text == "answer" && answer.subscriptionID == "/temp-queue/answers")
            let error = try await socketError { () async throws(SocketError) in try await answer.ack() }
            #expect(error.code == .invalidArgument)
            try await client.disconnect()
            try await server.disconnect()
        }

        @Test func handlersGetMessagesAndMayAnswerAtOnce() async throws {
            let (questions, answers) = (TestQueue("questions"), TestQueue("answers"))
            let client = try await RabbitMQ.shared.client(.stompTLS)
            let subscription = try client.subscribe(to: questions.destination, ack: .clientIndividual, window: 10) {
                [weak client] message in
                client?.send(message.body, to: answers.destination, completion: nil)
                message.ack(completion: nil)
            }
            let received = try client.subscribe(to: answers.destination)
            let texts = (0..<500).map { "\($0)" }
            try await client.sendAll(texts, to: questions.destination)
            #expect(try await received.next(texts.count).map(\.text) == texts)
            try await subscription.unsubscribe()
            try await RabbitMQ.shared.waitUntil(questions, "all are acknowledged") { $0 == Broker.Queue() }
            try await client.disconnect()
        }

        @Test func subscriptionsOfOneIDAreNeverTwo() async throws {
            let queue = TestQueue()
            let node = try await RabbitMQ.shared
            let (client, events) = try node.clientWithEvents()
            let first = try client.subscribe(to: queue.destination, headers: ["id": "mine"])
            let second = try client.subscribe(to: queue.destination, headers: ["id": "mine"])
            #expect(try await second.failure().code == .invalidArgument)
            try await first.waitUntilConfirmed()
            try await client.send("once", to: queue.destination, receipt: true)
            #expect(try await first.next().text == "once")
            #expect(try await node.queues()[queue.name] == Broker.Queue(consumers: 1))
            #expect(events.current.ends.isEmpty)
            try await client.disconnect()
        }

        /// A receipt may follow unread messages, which then wait at the client.
        @Test(arguments: [Broker.Door.stomp, .webSocket])
        func messagesMayBeSentOnWithReceiptsWhileThousandsWait(door: Broker.Door) async throws {
            let (source, target) = (TestQueue("source"), TestQueue("target"))
            let node = try await RabbitMQ.shared
            let client = try node.client(door)
            try await client.sendAll((0..<5_000).map { "\($0)" }, to: source.destination)
            let subscription = try client.subscribe(to: source.destination)
            let count = 1_500
            try await withDeadline("messages are sent on") {
                var left = count
                for try await message in subscription {
                    try await client.send(message.body, to: target.destination, receipt: true)
                    left -= 1
                    if left == 0 { break }
                }
            }
            #expect(try await node.queues()[target.name]?.ready == count)
            try await client.disconnect()
        }

        @Test func fiftyClientsAtOnce() async throws {
            let node = try await RabbitMQ.shared
            let hub = TestQueue("hub")
            try await withDeadline("fifty clients") {
                try await withThrowingTaskGroup(of: Void.self) { group in
                    for number in 0..<50 {
                        group.addTask {
                            let queue = TestQueue()
                            let door = Broker.Door.allCases[number % Broker.Door.allCases.count]
                            let client = try node.client(door)
                            let subscription = try client.subscribe(to: queue.destination, ack: .client)
                            for text in 0..<10 {
                                try await client.send("\(number) \(text)", to: queue.destination, receipt: true)
                                let message = try await subscription.next()
                                #expect(message.text == "\(number) \(text)")
                                try await message.ack()
                            }
                            try await client.send("\(number)", to: hub.destination, receipt: true)
                            try await client.disconnect()
                        }
                    }
                    try await group.waitForAll()
                }
            }
            #expect(try await node.queues()[hub.name]?.ready == 50)
        }
    }
}
