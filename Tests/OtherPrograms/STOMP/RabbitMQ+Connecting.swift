// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketSTOMP
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

extension RabbitMQTests {
    /// The beginning and end of connections, and rejections by RabbitMQ.
    @Suite(.tags(.io)) struct RabbitMQConnecting {
        @Test(arguments: Way.all) func versionIsAgreedOn(way: Way) async throws {
            let (client, events) = try await RabbitMQ.shared.clientWithEvents(way.door) { configuration in
                configuration.versions = Set(STOMPVersion.allCases.filter { $0 <= way.version })
            }
            let agreement = try await events.opened()
            #expect(agreement.version == way.version)
            #expect(agreement.server?.hasPrefix("RabbitMQ/") == true && agreement.session != nil)
            try await client.disconnect()
        }

        // MARK: Refusals of CONNECT

        /// Expects that attempts stop, and that waiting work fails with the broker's ERROR.
        private func expectRefusal(
            _ door: Broker.Door,
            saying text: String,
            _ change: (inout STOMPClient.Configuration) -> Void
        ) async throws {
            let (client, events) = try await RabbitMQ.shared.clientWithEvents(door, nil, change)
            let subscription = try client.subscribe(to: TestQueue().destination)
            let failures = [
                try await socketError { () async throws(SocketError) in
                    try await client.send("x", to: "/queue/x", receipt: true)
                }, try await subscription.failure(),
                try await events.value("the end of attempts") { $0.gaveUp },
            ]
            for error in failures {
                #expect(error.code == .handshakeRefused)
                let word = try #require(error.brokersWord)
                #expect(word.message == "Bad CONNECT")
                #expect(String(buffer: word.body).contains(text) && error.message.contains(text))
                #expect(!"\(error) \(word) \(word.headers)".contains("SECRET"))
            }
            #expect(failures[0].delivery == .notSent)
            #expect(events.current.attempts == 1 && events.current.agreements.isEmpty)
            try await client.disconnect()
        }

        @Test(arguments: Broker.Door.allCases) func wrongPasscodeStopsAttempts(door: Broker.Door) async throws {
            try await self.expectRefusal(door, saying: "Access refused for user 'guest'") { configuration in
                configuration.credentials = { STOMPCredentials(login: "guest", passcode: "SECRET") }
            }
        }

        @Test(arguments: Broker.Door.allCases) func unknownVirtualHostStopsAttempts(door: Broker.Door) async throws {
            try await self.expectRefusal(door, saying: "Virtual host 'nowhere' access denied") { configuration in
                configuration.host = "nowhere"
            }
        }

        @Test(arguments: [Broker.Door.webSocket, .webSocketTLS])
        func pathWithoutSTOMPIsRefused(door: Broker.Door) async throws {
            let (client, events) = try await RabbitMQ.shared.clientWithEvents(door) { configuration in
                configuration.socket.servers = configuration.socket.servers.compactMap {
                    try? Endpoint(url: "\($0)".replacingOccurrences(of: "/ws", with: "/elsewhere"))
                }
            }
            try await events.wait("a refusal") { !$0.failures.isEmpty || $0.gaveUp != nil }
            #expect(events.current.agreements.isEmpty)
            try await client.disconnect()
        }

        @Test(arguments: [Broker.Door.stompTLS, .webSocketTLS])
        func certificateOfAnUnknownAuthorityIsNotAccepted(door: Broker.Door) async throws {
            let (client, events) = try await RabbitMQ.shared.clientWithEvents(door) { $0.socket.tls = ClientTLS() }
            let error = try await events.value("a failed attempt") { $0.failures.first }
            #expect(error.code == .tlsFailed, "\(error)")
            #expect(events.current.agreements.isEmpty)
            try await client.disconnect()
        }

        @Test func credentialsAreAskedForEachConnection() async throws {
            let user = "user-\(UUID())"
            let node = try await RabbitMQ.shared
            try await node.control("add_user", user, "first")
            try await node.control("set_permissions", user, ".*", ".*", ".*")
            let asked = NIOLockedValueBox(0)
            let passcode = NIOLockedValueBox("first")
            let (client, events) = try node.clientWithEvents { configuration in
                configuration.credentials = {
                    let number = asked.withLockedValue { number in
                        number += 1
                        return number
                    }
                    // The attempt fails; the next follows.
                    guard number != 1 else { throw Unexpected(description: "no token yet") }
                    return STOMPCredentials(login: user, passcode: passcode.withLockedValue { $0 })
                }
            }
            let queue = TestQueue()
            let subscription = try client.subscribe(to: queue.destination)
            try await subscription.waitUntilConfirmed()
            try await events.opened()
            #expect(events.current.failures.map(\.code) == [.handshakeRefused])
            #expect(asked.withLockedValue { $0 } == 2)

            try await node.control("change_password", user, "second")
            passcode.withLockedValue { $0 = "second" }
            try await node.control("close_all_connections", "for a test")
            try await events.opened(2)
            try await client.send("again", to: queue.destination, receipt: true)
            #expect(try await subscription.next().text == "again")
            let end = try #require(events.current.ends.first ?? nil)
            #expect(end.code == .brokerError && end.brokersWord != nil, "\(end)")
            #expect(try await node.consumers(of: queue).count == 1)
            try await client.disconnect()
        }

        // MARK: Refusals of what follows

        /// Only the rejected subscription fails, regardless of the number of others and of its time, and the connection
        /// stays. On a WebSocket RabbitMQ gives no reason.
        @Test func forbiddenOperationFailsAlone() async throws {
            let node = try await RabbitMQ.shared
            let user = "restricted-\(UUID())"
            try await node.control("add_user", user, "restricted")
            try await node.control("set_permissions", user, ".*", "^(allowed|amq.default)", "^allowed")
            for door in Broker.Door.allCases {
                let isReported = door == .stomp || door == .stompTLS
                let (client, events) = try node.clientWithEvents(door) { configuration in
                    configuration.credentials = { STOMPCredentials(login: user, passcode: "restricted") }
                }
                let queues = [TestQueue("allowed"), TestQueue("allowed")]
                let first = try client.subscribe(to: queues[0].destination)
                let forbidden = try client.subscribe(to: TestQueue("forbidden").destination)
                let second = try client.subscribe(to: queues[1].destination)
                let error = try await forbidden.failure()
                #expect(error.code == .brokerError, "\(error)")
                #expect(error.brokersWord?.message == (isReported ? "access_refused" : nil), "\(error)")
                let late = try await socketError { () async throws(SocketError) in
                    try await forbidden.waitUntilConfirmed()
                }
                #expect(late.code == .brokerError)

                // A subscription that is made on an open connection.
                try await first.waitUntilConfirmed()
                let another = try client.subscribe(to: TestQueue("forbidden").destination)
                #expect(try await another.failure().code == .brokerError)

                for (subscription, queue) in [(first, queues[0]), (second, queues[1])] {
                    try await subscription.waitUntilConfirmed()
                    try await client.send("hello", to: queue.destination, receipt: true)
                    #expect(try await subscription.next().text == "hello")
                }

                // A forbidden message: RabbitMQ does not say which one it was.
                let refused = try await socketError { () async throws(SocketError) in
                    try await client.send("x", to: "/topic/forbidden", receipt: true)
                }
                #expect(refused.code == .connectionLost && refused.delivery == .sentUnknown, "\(refused)")
                #expect(refused.brokersWord?.message == (isReported ? "access_refused" : nil), "\(refused)")
                #expect(refused.message.contains("access to exchange 'amq.topic'") == isReported, "\(refused)")
                for (subscription, queue) in [(first, queues[0]), (second, queues[1])] {
                    try await client.send("hello again", to: queue.destination, receipt: true)
                    #expect(try await subscription.next().text == "hello again")
                }
                try await events.waitUntilOpen()
                #expect(events.current.agreements.count <= (isReported ? 5 : 9))
                for queue in queues { #expect(try await node.queues()[queue.name]?.consumers == 1) }
                try await client.disconnect()
            }
        }

        @Test(arguments: [Broker.Door.stomp, .webSocket]) func deletedQueueEndsItsSubscriptionAlone(
            door: Broker.Door
        ) async throws {
            let node = try await RabbitMQ.shared
            let (deleted, other) = (TestQueue("deleted"), TestQueue("other"))
            let (client, events) = try node.clientWithEvents(door)
            let lost = try client.subscribe(to: deleted.destination)
            let kept = try client.subscribe(to: other.destination)
            try await lost.waitUntilConfirmed()
            try await kept.waitUntilConfirmed()
            try await node.control("delete_queue", deleted.name)
            let error = try await lost.failure()
            #expect(error.code == .brokerError)
            #expect(error.brokersWord?.message == "Server cancelled subscription", "\(error)")
            try await client.send("hello", to: other.destination, receipt: true)
            #expect(try await kept.next().text == "hello")
            #expect(try await node.queues()[other.name]?.consumers == 1)
            #expect(try await node.queues()[deleted.name] == nil)
            #expect(events.current.agreements.count <= 2)
            try await client.disconnect()
        }

        @Test func errorEndsTheClientThatWantsSo() async throws {
            let node = try await RabbitMQ.shared
            let said = NIOLockedValueBox<[String?]>([])
            let (client, events) = try node.clientWithEvents { configuration in
                configuration.reconnects = { error in
                    said.withLockedValue { $0.append(error.message) }
                    return false
                }
            }
            let subscription = try client.subscribe(to: TestQueue().destination)
            try await subscription.waitUntilConfirmed()
            let refused = try client.subscribe(to: "/nonsense/x")
            let error = try await subscription.failure()
            #expect(error.code == .brokerError && error.brokersWord != nil, "\(error)")
            #expect(try await refused.failure().code == .brokerError)
            try await events.wait("the end of attempts") { $0.gaveUp != nil }
            #expect(events.current.attempts == 1)
            #expect(said.withLockedValue { $0.count } >= 1)
            try await client.disconnect()
        }

        // MARK: Ends

        @Test(arguments: Way.all) func disconnectWaitsForReceipts(way: Way) async throws {
            let queue = TestQueue()
            let node = try await RabbitMQ.shared
            let (client, events) = try node.clientWithEvents(way.door, way.version)
            let confirmed = Watched(0)
            let body = ByteBuffer(repeating: 0x20, count: 20_000)
            for _ in 0..<100 {
                client.send(body, to: queue.destination, headers: ["persistent": "true"], receipt: true) { result in
                    if case .success = result { confirmed.withLockedValue { $0 += 1 } }
                }
            }
            // Messages without a receipt follow them.
            try await client.send("last", to: queue.destination)
            try await client.disconnect()
            try await confirmed.wait("all receipts") { $0 == 100 }
            try await node.waitUntil(queue, "all messages") { $0.ready == 101 }
            try await events.wait("the end") { $0.ends.count == 1 }
            #expect(try #require(events.current.ends.first) == nil)
            let error = try await socketError { () async throws(SocketError) in
                try await client.send("x", to: queue.destination)
            }
            #expect(error.code == .notConnected && error.delivery == .notSent)
        }

        @Test(arguments: Broker.Door.allCases) func subscriptionsAreThereAfterAnotherConnect(
            door: Broker.Door
        ) async throws {
            let queues = [TestQueue(), TestQueue()]
            let node = try await RabbitMQ.shared
            let (client, events) = try node.clientWithEvents(door)
            let kept = try client.subscribe(to: queues[0].destination)
            let ended = try client.subscribe(to: queues[1].destination)
            for number in 1...3 {
                try await events.opened(number)
                try await kept.waitUntilConfirmed()
                try await client.send("\(number)", to: queues[0].destination, receipt: true)
                #expect(try await kept.next().text == "\(number)")
                #expect(try await node.queues()[queues[0].name]?.consumers == 1)
                #expect(try await node.queues()[queues[1].name]?.consumers == (number == 1 ? 1 : 0))
                if number == 1 { try await ended.unsubscribe() }
                try await client.disconnect()
                try await node.waitUntil(queues[0], "no subscription") { $0.consumers == 0 }
                if number < 3 { client.connect() }
            }
        }
    }
}
