// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketSTOMP
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

extension RabbitMQTests {
    /// A node that stops and restarts, under load and idle.
    @Suite(.tags(.io)) struct RabbitMQRestarts {
        /// Short enough for a test, and long enough for a slow machine.
        private static let heartbeats = STOMPHeartbeats(send: .seconds(2), receive: .seconds(2))

        /// The outcomes of a sender's messages.
        private struct Sent: Sendable {
            var confirmed: Set<String> = []
            var failures: [SocketError] = []
        }

        /// A client of one door under load.
        private struct Load: Sendable {
            let door: Broker.Door
            let queue: TestQueue
            let sender: STOMPClient
            let senderEvents: ClientEvents
            let receiver: STOMPClient
            let receiverEvents: ClientEvents
            let subscription: STOMPSubscription
            let sent = Watched(Sent())
            let received = Watched<Set<String>>([])
            let isOver = NIOLockedValueBox(false)

            init(_ node: Broker, _ door: Broker.Door) throws {
                let heartbeats = RabbitMQRestarts.heartbeats
                self.door = door
                self.queue = TestQueue("load-\(door)")
                (self.sender, self.senderEvents) = try node.clientWithEvents(door) { $0.heartbeats = heartbeats }
                (self.receiver, self.receiverEvents) = try node.clientWithEvents(door) { $0.heartbeats = heartbeats }
                self.subscription = try self.receiver.subscribe(
                    to: self.queue.destination,
                    ack: .clientIndividual,
                    window: 50
                )
            }

            /// The number of connections of its clients.
            var openings: Int {
                self.senderEvents.current.agreements.count + self.receiverEvents.current.agreements.count
            }

            /// Sends messages until the load ends, some at a time, each with a receipt.
            func send() async {
                await withTaskGroup(of: Void.self) { group in
                    for task in 0..<4 {
                        group.addTask {
                            var number = 0
                            while !self.isOver.withLockedValue({ $0 }) {
                                number += 1
                                await self.send("\(task)-\(number)")
                            }
                        }
                    }
                }
            }

            private func send(_ text: String) async {
                do throws(SocketError) {
                    let headers: STOMPHeaders = ["persistent": "true"]
                    try await self.sender.send(text, to: self.queue.destination, headers: headers, receipt: true)
                    self.sent.withLockedValue { _ = $0.confirmed.insert(text) }
                } catch {
                    self.sent.withLockedValue { $0.failures.append(error) }
                }
            }

            func receive() async throws {
                for try await message in self.subscription {
                    self.received.withLockedValue { _ = $0.insert(message.text ?? "") }
                    do throws(SocketError) {
                        try await message.ack()
                    } catch {
                        // The message is redelivered.
                        #expect(error.code == .connectionLost, "\(error)")
                    }
                }
            }
        }

        @Test(arguments: [true, false])
        func nothingThatWasConfirmedIsLostByARestartUnderLoad(killed: Bool) async throws {
            let node = try await RabbitMQ.shared
            let loads = try Broker.Door.allCases.map { try Load(node, $0) }
            let senders = loads.map { load in Task { await load.send() } }
            let receivers = loads.map { load in Task { try await load.receive() } }
            for load in loads {
                try await load.sent.wait("fifty are confirmed by \(load.door)") { $0.confirmed.count >= 50 }
            }
            if killed { try await node.kill() } else { try await node.stop() }
            let before = loads.map { $0.sent.current.confirmed.count }
            try await node.start()
            for (load, count) in zip(loads, before) {
                try await load.sent.wait("progress at \(load.door)") { $0.confirmed.count >= count + 50 }
            }
            for load in loads { load.isOver.withLockedValue { $0 = true } }
            for sender in senders { try await waitForValue(of: sender, "the senders' end") }
            for load in loads {
                let sent = load.sent.current
                for error in sent.failures {
                    // Sent messages are not sent again; all others wait.
                    #expect(error.code == .connectionLost && error.delivery == .sentUnknown, "\(error)")
                }
                #expect(sent.failures.count <= 4)
                try await load.received.wait("all that was confirmed, by \(load.door)") { received in
                    sent.confirmed.isSubset(of: received)
                }
                try await load.subscription.waitUntilConfirmed()
                try await node.waitUntil(load.queue, "all is acknowledged") { $0 == Broker.Queue(consumers: 1) }
                for events in [load.senderEvents, load.receiverEvents] {
                    try await events.waitUntilOpen()
                    #expect(events.current.agreements.count >= 2)
                }
            }
            let consumers = try await node.control("list_consumers", "--silent", "queue_name", "consumer_tag")
            for load in loads {
                let lines = consumers.split(separator: "\n").filter { $0.hasPrefix("\(load.queue.name)\t") }
                #expect(lines == ["\(load.queue.name)\tT_\(load.subscription.id)"])
            }
            // The heart-beats continue. A machine that stops for seconds loses connections too, but not every time.
            var openings: [Int] = []
            for _ in 0..<5 where loads.map(\.openings) != openings {
                openings = loads.map(\.openings)
                try await self.waitUntilASilentClientIsCut(node)
            }
            for (load, count) in zip(loads, openings) {
                #expect(load.openings == count, "\(load.senderEvents.current) \(load.receiverEvents.current)")
                try await load.sender.disconnect()
                try await load.receiver.disconnect()
                try await load.subscription.unsubscribe()
            }
            for receiver in receivers { try await waitForValue(of: receiver, "its end") }
        }

        /// RabbitMQ ends a connection that was silent for three intervals, here of two seconds.
        private func waitUntilASilentClientIsCut(_ node: Broker) async throws {
            let connect =
                "CONNECT\\naccept-version:1.2\\nhost:/\\nlogin:guest\\npasscode:guest\\nheart-beat:2000,0\\n\\n"
            let steps = ["send:\(connect)", "expect:CONNECTED", "expect:nothing more"]
            let outcome = try await Python.rawSTOMP(node.url(), steps)
            #expect(outcome.errors.contains("the broker has closed the connection"), "\(outcome)")
        }

        /// This also holds for a connection that is not read, because too many messages are unacknowledged: the broker
        /// is not considered lost.
        @Test func heartbeatsKeepAnIdleConnection() async throws {
            let node = try await RabbitMQ.shared
            // A machine that stops for seconds loses connections too, but not every time.
            var ends: [SocketError?] = []
            for attempt in 0..<5 where attempt == 0 || !ends.isEmpty {
                ends = try await self.endsOfIdleConnections(node)
            }
            #expect(ends.isEmpty, "\(ends)")
        }

        /// The ends of idle connections in the time after which the broker cuts one that is silent.
        private func endsOfIdleConnections(_ node: Broker) async throws -> [SocketError?] {
            let queue = TestQueue()
            let clients = try Broker.Door.allCases.map { door in
                try node.clientWithEvents(door) { $0.heartbeats = Self.heartbeats }
            }
            let client = clients[0].client
            try await client.sendAll(["1", "2", "3"], to: queue.destination)
            let subscription = try client.subscribe(
                to: queue.destination,
                ack: .client,
                window: 1,
                headers: ["prefetch-count": "0"]
            )
            let messages = try await subscription.next(2)
            for (_, events) in clients { #expect(try await events.opened().heartbeats == Self.heartbeats) }
            try await self.waitUntilASilentClientIsCut(node)
            let ends = clients.flatMap { $0.events.current.ends }
            if ends.isEmpty {
                try await messages[1].ack(receipt: true)
                #expect(try await subscription.next().text == "3")
            }
            for (client, _) in clients { try await client.disconnect() }
            return ends
        }

        /// Its kernel still accepts bytes; only heart-beats show that it stopped.
        @Test func stoppedNodeIsFoundDeadAndComesBack() async throws {
            let node = try await RabbitMQ.shared
            let queue = TestQueue()
            let clients = try Broker.Door.allCases.map { door in
                try node.clientWithEvents(door) {
                    $0.heartbeats = STOMPHeartbeats(send: .seconds(1), receive: .seconds(1))
                    $0.connectTimeout = .seconds(5)
                }
            }
            let subscription = try clients[0].client.subscribe(to: queue.destination)
            try await subscription.waitUntilConfirmed()
            for (_, events) in clients { try await events.opened() }
            let file = URL(fileURLWithPath: node.folder).appendingPathComponent("pid")
            let text = try String(contentsOf: file, encoding: .utf8)
            let pid = try #require(pid_t(text.trimmingCharacters(in: .whitespacesAndNewlines)))
            kill(pid, SIGSTOP)
            do {
                defer { kill(pid, SIGCONT) }
                for (_, events) in clients {
                    let end = try await events.value("the end of the connection") { $0.ends.first ?? nil }
                    #expect(end.code == .connectionLost, "\(end)")
                    // Twice the interval.
                    let silence = try #require(end.message.firstMatch(of: /silent for ([0-9.]+) seconds/), "\(end)")
                    #expect(try #require(Double(silence.1)) >= 2)
                }
                let (client, events) = clients[0]
                client.send(ByteBuffer(string: "waits"), to: queue.destination, completion: nil)
                try await events.wait("an attempt without an answer") { !$0.failures.isEmpty }
                #expect(events.current.failures.first?.code == .handshakeTimeout)
            }
            for (_, events) in clients { try await events.opened(2) }
            #expect(try await subscription.next().text == "waits")
            #expect(try await node.queues()[queue.name]?.consumers == 1)
            for (client, _) in clients { try await client.disconnect() }
        }

        /// Messages sent while there is no broker wait, in order, or fail visibly.
        @Test func messagesWaitForTheNode() async throws {
            let node = try await RabbitMQ.shared
            let queue = TestQueue()
            let (client, events) = try node.clientWithEvents { $0.maximumWaitingMessages = 3 }
            let subscription = try client.subscribe(to: queue.destination)
            try await subscription.waitUntilConfirmed()
            try await node.stop()
            try await events.wait("attempts are refused") { $0.failures.contains { $0.code == .connectionRefused } }
            let sent = (1...3).map { number in
                let result = Watched<Result<Void, SocketError>?>(nil)
                client.send(ByteBuffer(string: "\(number)"), to: queue.destination, receipt: true) { outcome in
                    result.withLockedValue { $0 = outcome }
                }
                return result
            }
            let full = try await socketError { () async throws(SocketError) in
                try await client.send("4", to: queue.destination)
            }
            #expect(full.code == .queueFull && full.delivery == .notSent)
            let transaction = Task { try await client.transaction { try await $0.send("5", to: queue.destination) } }
            let (hasty, _) = try node.clientWithEvents { $0.timeout = .milliseconds(50) }
            let late = try await socketError { () async throws(SocketError) in
                try await hasty.send("6", to: queue.destination)
            }
            #expect(late.code == .timeout && late.delivery == .notSent)
            try await hasty.disconnect()
            try await node.start()
            for result in sent { try await result.value("a receipt") { $0 }.get() }
            try await waitForValue(of: transaction, "the transaction")
            #expect(try await subscription.next(4).compactMap(\.text).sorted() == ["1", "2", "3", "5"])
            #expect(try await node.queues()[queue.name] == Broker.Queue(consumers: 1))
            try await events.waitUntilOpen()
            try await client.disconnect()
        }
    }
}
