// SPDX-License-Identifier: Apache-2.0
import HHSocketSTOMP
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

/// Random histories of clients at one queue: no message is lost, duplicated or delivered to two clients at a time.
@Suite struct BrokerModelTests {
    /// A message that a client holds without having acknowledged it.
    private struct Held {
        var body: String
        var headers: STOMPHeaders
        var subscription: String
    }

    private struct Subscription {
        var mode: String
        var prefetch: Int?
    }

    private struct Client {
        var version: STOMPVersion
        var subscriptions: [String: Subscription] = [:]
        var held: [Held] = []
    }

    private struct Model {
        var machine = BrokerMachine()
        var generator: SeededGenerator
        var clients: [Int: Client] = [:]
        var published = 0
        /// The messages that were delivered before.
        var delivered: Set<String> = []
        var acknowledged: Set<String> = []
        var next = 0

        mutating func number(_ range: Range<Int>) -> Int { Int.random(in: range, using: &self.generator) }

        mutating func say(_ connection: Int, _ command: STOMPCommand, _ headers: STOMPHeaders) {
            self.take(self.machine.receivedFrame(STOMPFrame(command, headers), on: connection))
        }

        /// Applies the broker's actions.
        mutating func take(_ actions: [BrokerMachine.Action]) {
            for action in actions {
                guard case .send(let frame, let connection) = action else { continue }
                #expect(frame.command != .error, "\(frame) \(String(buffer: frame.body))")
                if frame.command == .message { self.deliver(frame, to: connection) }
            }
        }

        private mutating func deliver(_ frame: STOMPFrame, to connection: Int) {
            let body = String(buffer: frame.body)
            let id = frame.headers["subscription"] ?? ""
            #expect(!self.acknowledged.contains(body), "\(body) was acknowledged")
            #expect(!self.clients.values.contains { $0.held.contains { $0.body == body } }, "\(body) is held already")
            #expect(frame.headers.contains(name: "redelivered") == self.delivered.contains(body))
            self.delivered.insert(body)
            guard let subscription = self.clients[connection]?.subscriptions[id] else {
                Issue.record("\(body) came to no subscription")
                return
            }
            guard subscription.mode != "auto" else {
                self.acknowledged.insert(body)
                return
            }
            self.clients[connection]?.held.append(Held(body: body, headers: frame.headers, subscription: id))
            let held = self.clients[connection]?.held.filter { $0.subscription == id }.count ?? 0
            #expect(held <= subscription.prefetch ?? .max)
        }

        // MARK: Steps

        mutating func step() {
            let connections = self.clients.keys.sorted()
            let connection = connections.isEmpty ? nil : connections[self.number(0..<connections.count)]
            switch (self.number(0..<20), connection) {
            case (0...6, _):
                self.published += 1
                self.take(self.machine.publish(ByteBuffer(string: "\(self.published)"), to: "/queue/q") ?? [])
            case (7, _) where connections.count < 4, (_, nil):
                self.connect()
            case (8...9, let connection?):
                self.subscribe(connection)
            case (10, let connection?):
                guard let id = self.clients[connection]?.subscriptions.keys.sorted().first else { return }
                self.clients[connection]?.subscriptions[id] = nil
                self.clients[connection]?.held.removeAll { $0.subscription == id }
                self.say(connection, .unsubscribe, ["id": id])
            case (11, let connection?) where self.number(0..<3) == 0:
                self.clients[connection] = nil
                if self.number(0..<2) == 0 {
                    self.say(connection, .disconnect, [:])
                } else {
                    self.take(self.machine.ended(connection))
                }
            case (12...13, let connection?):
                self.settle(connection, isAck: false)
            case (_, let connection?):
                self.settle(connection, isAck: true)
            }
        }

        private mutating func connect() {
            self.next += 1
            let version = STOMPVersion.allCases[self.number(0..<3)]
            self.machine.opened(self.next)
            self.clients[self.next] = Client(version: version)
            self.say(self.next, .connect, ["accept-version": version.rawValue, "host": "/"])
        }

        private mutating func subscribe(_ connection: Int) {
            guard let client = self.clients[connection], client.subscriptions.count < 3 else { return }
            self.next += 1
            let modes = client.version == .v1_0 ? ["auto", "client"] : ["auto", "client", "client-individual"]
            let mode = modes[self.number(0..<modes.count)]
            let prefetch = self.number(0..<2) == 0 ? nil : self.number(1..<4)
            self.clients[connection]?.subscriptions["\(self.next)"] = Subscription(mode: mode, prefetch: prefetch)
            var headers: STOMPHeaders = ["id": "\(self.next)", "destination": "/queue/q", "ack": mode]
            headers["prefetch-count"] = prefetch.map { "\($0)" }
            self.say(connection, .subscribe, headers)
        }

        /// Acknowledges or rejects a message, perhaps in a transaction that is committed or aborted.
        private mutating func settle(_ connection: Int, isAck: Bool) {
            guard let client = self.clients[connection], !client.held.isEmpty, isAck || client.version != .v1_0
            else { return }
            let index = self.number(0..<client.held.count)
            let chosen = client.held[index]
            var headers: STOMPHeaders = ["message-id": chosen.headers["message-id"] ?? ""]
            if client.version == .v1_1 { headers["subscription"] = chosen.subscription }
            if client.version == .v1_2 { headers = ["id": chosen.headers["ack"] ?? ""] }
            let fate = self.number(0..<4)
            if fate < 2 {
                self.say(connection, .begin, ["transaction": "t"])
                headers["transaction"] = "t"
            }
            let isAborted = fate == 0
            // The released messages are recorded before the broker's answer.
            if !isAborted, fate != 1 { self.release(connection, index, isAck: isAck) }
            self.say(connection, isAck ? .ack : .nack, headers)
            if fate == 1 { self.release(connection, index, isAck: isAck) }
            if fate < 2 { self.say(connection, isAborted ? .abort : .commit, ["transaction": "t"]) }
        }

        private mutating func release(_ connection: Int, _ index: Int, isAck: Bool) {
            guard let held = self.clients[connection]?.held, let mode = self.clients[connection]?.subscriptions
            else { return }
            let chosen = held[index]
            let isCumulative = mode[chosen.subscription]?.mode == "client"
            var kept: [Held] = []
            for (position, message) in held.enumerated() {
                let isSettled =
                    position == index
                    || isCumulative && position < index && message.subscription == chosen.subscription
                if !isSettled { kept.append(message) } else if isAck { self.acknowledged.insert(message.body) }
            }
            self.clients[connection]?.held = kept
        }
    }

    @Test(arguments: 1...20 as ClosedRange<UInt64>) func noMessageIsLostOrDoubled(seed: UInt64) {
        var model = Model(generator: SeededGenerator(seed: seed))
        for _ in 0..<400 { model.step() }
        for connection in model.clients.keys.sorted() {
            model.clients[connection] = nil
            model.take(model.machine.ended(connection))
        }
        let left = model.machine.messages(in: "/queue/q").map { String(buffer: $0.body) }
        #expect(model.published > 50 && model.acknowledged.count > 10)
        #expect(Set(left).count == left.count)
        #expect(Set(left).isDisjoint(with: model.acknowledged))
        #expect(left.count + model.acknowledged.count == model.published)
    }

    @Test func thousandsOfMessagesAreAcknowledgedOneByOne() {
        var broker = BrokerScript()
        broker.connect(0)
        for number in 0..<5_000 { #expect(broker.publish("\(number)", to: "/queue/q") == []) }
        let frame = BrokerScript.frame("SUBSCRIBE id:1 destination:/queue/q ack:client-individual")
        let acks = broker.machine.receivedFrame(frame, on: 0).compactMap { action -> String? in
            if case .send(let frame, _) = action { frame.headers["ack"] } else { nil }
        }
        #expect(acks.count == 5_000)
        for ack in acks { #expect(broker.machine.receivedFrame(STOMPFrame(.ack, ["id": ack]), on: 0).isEmpty) }
        #expect(broker.machine.subscriptions(of: 0).map(\.unacknowledged) == [0])
    }
}
