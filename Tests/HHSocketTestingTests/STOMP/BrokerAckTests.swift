// SPDX-License-Identifier: Apache-2.0
import HHSocketSTOMP
import HHSocketTesting
import NIOCore
import Testing

/// Acknowledgements, redeliveries, and transactions.
@Suite struct BrokerAckTests {
    /// Connections 0 and up, each with a subscription 1 to `/queue/q`.
    private static func broker(
        _ mode: String,
        versions: [STOMPVersion] = [.v1_2],
        prefetch: Int? = nil,
        closesAfterErrors: Bool = true
    ) -> BrokerScript {
        var broker = BrokerScript { $0.closesAfterErrors = closesAfterErrors }
        for (connection, version) in versions.enumerated() {
            broker.connect(connection, version)
            let window = prefetch.map { " prefetch-count:\($0)" } ?? ""
            _ = broker.say(connection, "SUBSCRIBE id:1 destination:/queue/q ack:\(mode)\(window)")
        }
        return broker
    }

    /// Publishes a message to the queue, and returns the headers of its delivery.
    private static func publish(_ text: String, _ broker: inout BrokerScript) -> STOMPHeaders {
        let actions = broker.machine.publish(ByteBuffer(string: text), to: "/queue/q") ?? []
        guard case .send(let frame, _)? = actions.first else { return [:] }
        return frame.headers
    }

    /// The frame that acknowledges a message in a version.
    private static func settle(_ command: String, _ headers: STOMPHeaders, _ version: STOMPVersion) -> String {
        let id = headers["message-id"] ?? ""
        return switch version {
        case .v1_0: "\(command) message-id:\(id)"
        case .v1_1: "\(command) message-id:\(id) subscription:1"
        case .v1_2: "\(command) id:\(headers["ack"] ?? "")"
        }
    }

    private func unacknowledged(_ broker: BrokerScript, _ connection: Int = 0) -> Int {
        broker.machine.subscriptions(of: connection).map(\.unacknowledged).reduce(0, +)
    }

    @Test(arguments: STOMPVersion.allCases) func ackOfTheModeClientIsCumulative(version: STOMPVersion) {
        var broker = Self.broker("client", versions: [version])
        let messages = ["a", "b", "c"].map { Self.publish($0, &broker) }
        #expect(self.unacknowledged(broker) == 3)
        #expect(broker.say(0, Self.settle("ACK", messages[1], version) + " receipt:r") == ["0 receipt r"])
        #expect(self.unacknowledged(broker) == 1)
        #expect(broker.end(0).isEmpty)
        #expect(broker.queue("q") == ["c"])
    }

    @Test(arguments: [STOMPVersion.v1_1, .v1_2]) func ackOfClientIndividualIsForOneMessage(version: STOMPVersion) {
        var broker = Self.broker("client-individual", versions: [version])
        let messages = ["a", "b", "c"].map { Self.publish($0, &broker) }
        #expect(broker.say(0, Self.settle("ACK", messages[1], version)).isEmpty)
        #expect(broker.end(0).isEmpty)
        #expect(broker.queue("q") == ["a", "c"])
    }

    @Test(arguments: STOMPVersion.allCases) func acknowledgementThatIsRepeatedIsAnError(version: STOMPVersion) {
        var broker = Self.broker("client", versions: [version], closesAfterErrors: false)
        let messages = ["a", "b"].map { Self.publish($0, &broker) }
        let first = Self.settle("ACK", messages[0], version)
        #expect(broker.say(0, first).isEmpty)
        #expect(broker.say(0, first) == ["0 ERROR: message not found"])
        #expect(broker.say(0, Self.settle("ACK", messages[1], version)).isEmpty)
        // In the mode auto nothing is acknowledged.
        var auto = Self.broker("auto", versions: [version], closesAfterErrors: false)
        let message = Self.publish("a", &auto)
        #expect(auto.say(0, Self.settle("ACK", message, version)) == ["0 ERROR: message not found"])
    }

    @Test func acknowledgementIsTakenLiterally() throws {
        var broker = Self.broker("client", closesAfterErrors: false)
        let ack = try #require(Self.publish("a", &broker)["ack"])
        for wrong in [
            ack.replacing("ack-", with: "ack-+"), ack.replacing("ack-", with: "ack-0"), ack + " ", "ack-", "",
        ] {
            #expect(
                broker.machine.receivedFrame(STOMPFrame(.ack, ["id": wrong]), on: 0).map(BrokerScript.show)
                    == ["0 ERROR: message not found"]
            )
        }
        #expect(broker.say(0, "ACK id:\(ack)").isEmpty && self.unacknowledged(broker) == 0)
    }

    @Test func acknowledgementIsBoundToItsConnectionAndSubscription() {
        var broker = Self.broker("client", versions: [.v1_2, .v1_2], closesAfterErrors: false)
        let message = Self.publish("a", &broker)
        #expect(broker.say(1, Self.settle("ACK", message, .v1_2)) == ["1 ERROR: message not found"])
        #expect(broker.say(0, Self.settle("ACK", message, .v1_2)).isEmpty)
        var older = Self.broker("client", versions: [.v1_1], closesAfterErrors: false)
        let id = Self.publish("a", &older)["message-id"] ?? ""
        #expect(older.say(0, "ACK message-id:\(id) subscription:2") == ["0 ERROR: message not found"])
        #expect(older.say(0, "ACK message-id:\(id)") == ["0 ERROR: missing header"])
        #expect(older.say(0, "ACK subscription:1") == ["0 ERROR: missing header"])
    }

    @Test(arguments: [STOMPVersion.v1_1, .v1_2]) func nackReturnsTheMessageToTheFrontOfItsQueue(version: STOMPVersion) {
        var broker = Self.broker("client-individual", versions: [version], prefetch: 1)
        let first = Self.publish("a", &broker)
        #expect(broker.publish("b", to: "/queue/q") == [])
        #expect(broker.say(0, Self.settle("NACK", first, version) + " receipt:r") == ["0 a! s:1", "0 receipt r"])
        #expect(broker.queue("q") == ["b"])
        // The redelivery has the old message-id, and another ack.
        #expect(broker.end(0).isEmpty)
        #expect(broker.machine.messages(in: "/queue/q").map { $0.headers["message-id"] }.first == first["message-id"])
    }

    @Test func nackOfTheModeClientReturnsAllBeforeItInOrder() {
        var broker = Self.broker("client", versions: [.v1_2, .v1_2])
        _ = broker.say(1, "UNSUBSCRIBE id:1")
        let messages = ["a", "b", "c"].map { Self.publish($0, &broker) }
        #expect(broker.say(0, Self.settle("NACK", messages[1], .v1_2)) == ["0 a! s:1", "0 b! s:1"])
        #expect(self.unacknowledged(broker) == 3)
    }

    @Test func nackOfATopicsMessageBringsItAgain() {
        var broker = BrokerScript()
        broker.connect(0)
        _ = broker.say(0, "SUBSCRIBE id:1 destination:/topic/t ack:client")
        guard case .send(let frame, _)? = broker.machine.publish(ByteBuffer(string: "a"), to: "/topic/t")?.first else {
            Issue.record("nothing was delivered")
            return
        }
        #expect(broker.say(0, "NACK id:\(frame.headers["ack"] ?? "")") == ["0 a! s:1"])
        #expect(broker.end(0).isEmpty)
    }

    @Test func noMoreThanPrefetchCountAreDeliveredAtATime() {
        var broker = Self.broker("client", prefetch: 2)
        let messages = ["a", "b"].map { Self.publish($0, &broker) }
        for text in ["c", "d", "e"] { #expect(broker.publish(text, to: "/queue/q") == []) }
        #expect(broker.queue("q") == ["c", "d", "e"])
        #expect(broker.say(0, Self.settle("ACK", messages[0], .v1_2)) == ["0 c s:1"])
        #expect(broker.say(0, Self.settle("ACK", messages[1], .v1_2)) == ["0 d s:1"])
        #expect(broker.queue("q") == ["e"])
        // If one consumer has no room, the other one gets all.
        broker.connect(1)
        #expect(broker.say(1, "SUBSCRIBE id:9 destination:/queue/q") == ["1 e s:9"])
        #expect(broker.publish("f", to: "/queue/q") == ["1 f s:9"])
    }

    @Test func prefetchCountHoldsForATopicAndNotForAuto() {
        var broker = BrokerScript()
        broker.connect(0)
        _ = broker.say(0, "SUBSCRIBE id:1 destination:/topic/t ack:client prefetch-count:1")
        _ = broker.say(0, "SUBSCRIBE id:2 destination:/topic/t ack:auto prefetch-count:1")
        #expect(broker.publish("a", to: "/topic/t") == ["0 a s:1", "0 a s:2"])
        #expect(broker.publish("b", to: "/topic/t") == ["0 b s:2"])
        #expect(broker.say(0, "UNSUBSCRIBE id:1").isEmpty)
    }

    @Test func unacknowledgedMessagesGoToOthersWhenTheConnectionEnds() {
        for end in ["DISCONNECT", "ACK id:wrong", "end"] {
            var broker = Self.broker("client", versions: [.v1_2, .v1_2])
            let first = Self.publish("a", &broker)
            _ = Self.publish("b", &broker)
            _ = Self.publish("c", &broker)
            #expect(broker.say(0, Self.settle("ACK", first, .v1_2)).isEmpty)
            let actions = end == "end" ? broker.end(0) : broker.say(0, end)
            #expect(actions.last == "1 c! s:1")
            #expect(broker.end(0).isEmpty)
            #expect(self.unacknowledged(broker, 1) == 2)
            #expect(broker.end(1).isEmpty && broker.queue("q") == ["b", "c"])
            #expect(broker.machine.messages(in: "/queue/q").map { $0.headers["redelivered"] } == ["true", "true"])
        }
    }

    @Test func unsubscribingReturnsWhatWasNotAcknowledged() {
        var broker = Self.broker("client", versions: [.v1_2, .v1_2], closesAfterErrors: false)
        let first = Self.publish("a", &broker)
        #expect(broker.say(0, "UNSUBSCRIBE id:1 receipt:r") == ["1 a! s:1", "0 receipt r"])
        #expect(broker.say(0, Self.settle("ACK", first, .v1_2)) == ["0 ERROR: message not found"])
        #expect(broker.say(0, "SUBSCRIBE id:1 destination:/queue/q").isEmpty)
    }

    // MARK: Transactions

    @Test func committedTransactionSendsAndAcknowledges() {
        var broker = Self.broker("client-individual")
        let message = Self.publish("a", &broker)
        #expect(broker.say(0, "BEGIN transaction:t").isEmpty && broker.machine.transactions(of: 0) == ["t"])
        #expect(broker.say(0, "SEND destination:/queue/other transaction:t receipt:r|x") == ["0 receipt r"])
        #expect(broker.say(0, Self.settle("ACK", message, .v1_2) + " transaction:t").isEmpty)
        #expect(broker.queue("other").isEmpty && self.unacknowledged(broker) == 1)
        #expect(broker.say(0, "SEND destination:/queue/other|y").isEmpty)
        #expect(broker.say(0, "COMMIT transaction:t receipt:c") == ["0 receipt c"])
        #expect(broker.queue("other") == ["y", "x"] && self.unacknowledged(broker) == 0)
        #expect(broker.machine.transactions(of: 0).isEmpty)
        #expect(!broker.machine.messages(in: "/queue/other")[1].headers.contains(name: "transaction"))
    }

    @Test func abortedTransactionDoesNothing() {
        var broker = Self.broker("client-individual", closesAfterErrors: false)
        let message = Self.publish("a", &broker)
        let ack = Self.settle("ACK", message, .v1_2)
        #expect(broker.say(0, "BEGIN transaction:t").isEmpty)
        #expect(broker.say(0, "BEGIN transaction:t") == ["0 ERROR: duplicate transaction"])
        #expect(broker.say(0, "BEGIN transaction:u").isEmpty && broker.machine.transactions(of: 0) == ["t", "u"])
        #expect(broker.say(0, "SEND destination:/queue/other transaction:t|x").isEmpty)
        #expect(broker.say(0, ack + " transaction:t").isEmpty)
        // A message that was acknowledged in a transaction cannot be acknowledged again.
        #expect(broker.say(0, ack) == ["0 ERROR: message not found"])
        #expect(broker.say(0, "ABORT transaction:t").isEmpty)
        #expect(broker.queue("other").isEmpty && self.unacknowledged(broker) == 1)
        #expect(broker.say(0, "ABORT transaction:t") == ["0 ERROR: transaction not found"])
        #expect(broker.say(0, ack).isEmpty && self.unacknowledged(broker) == 0)
    }

    @Test func nackInATransactionReturnsTheMessageWhenItIsCommitted() {
        var broker = Self.broker("client", prefetch: 2)
        let messages = ["a", "b"].map { Self.publish($0, &broker) }
        #expect(broker.say(0, "BEGIN transaction:t").isEmpty)
        #expect(broker.say(0, Self.settle("NACK", messages[1], .v1_2) + " transaction:t").isEmpty)
        #expect(broker.say(0, "COMMIT transaction:t") == ["0 a! s:1", "0 b! s:1"])
    }

    @Test func endOfTheConnectionAbortsItsTransactions() {
        var broker = Self.broker("client")
        let message = Self.publish("a", &broker)
        #expect(broker.say(0, "BEGIN transaction:t").isEmpty)
        #expect(broker.say(0, "SEND destination:/queue/other transaction:t|x").isEmpty)
        #expect(broker.say(0, Self.settle("ACK", message, .v1_2) + " transaction:t").isEmpty)
        #expect(broker.end(0).isEmpty)
        #expect(broker.queue("other").isEmpty && broker.queue("q") == ["a"])
        broker.connect(1)
        #expect(broker.say(1, "BEGIN transaction:t").isEmpty)
    }

    @Test func acknowledgementInATransactionWhoseSubscriptionIsGoneDoesNothing() {
        var broker = Self.broker("client")
        let message = Self.publish("a", &broker)
        #expect(broker.say(0, "BEGIN transaction:t").isEmpty)
        #expect(broker.say(0, Self.settle("ACK", message, .v1_2) + " transaction:t").isEmpty)
        #expect(broker.say(0, "UNSUBSCRIBE id:1").isEmpty && broker.queue("q") == ["a"])
        #expect(broker.say(0, "COMMIT transaction:t receipt:r") == ["0 receipt r"])
        #expect(broker.queue("q") == ["a"])
    }
}
