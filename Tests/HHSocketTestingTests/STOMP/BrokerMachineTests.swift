// SPDX-License-Identifier: Apache-2.0
import HHSocketSTOMP
import HHSocketTesting
import NIOCore
import Testing

/// The rules of a broker, frame by frame.
@Suite struct BrokerMachineTests {
    // MARK: Connecting

    @Test func highestCommonVersionIsAgreedOn() {
        for (accepted, version) in [("1.0,1.1,1.2", "1.2"), ("1.1,1.0", "1.1"), ("1.0", "1.0"), ("1.1,2.0", "1.1")] {
            var broker = BrokerScript()
            broker.machine.opened(0)
            #expect(
                broker.say(0, "CONNECT accept-version:\(accepted) host:/") == [
                    "0 CONNECTED version:\(version) heart-beat:1,1 server:MockBroker session:session-0",
                    "0 speaks \(version)",
                ]
            )
            #expect(broker.machine.isConnected(0))
        }
    }

    @Test func clientOf10HasNoVersionAndNoHost() {
        var broker = BrokerScript()
        broker.machine.opened(3)
        #expect(
            broker.say(3, "CONNECT") == [
                "3 CONNECTED heart-beat:1,1 server:MockBroker session:session-3", "3 speaks 1.0",
            ]
        )
    }

    @Test func withoutACommonVersionTheErrorNamesThoseThatThereAre() {
        var broker = BrokerScript { $0.versions = [.v1_1, .v1_2] }
        broker.machine.opened(0)
        let actions = broker.machine.receivedFrame(BrokerScript.frame("CONNECT accept-version:1.0,2.0 host:/"), on: 0)
        guard case .send(let error, 0)? = actions.first else {
            Issue.record("no ERROR")
            return
        }
        #expect(error.headers["version"] == "1.1,1.2" && error.headers["content-type"] == "text/plain")
        #expect(String(buffer: error.body) == "The supported versions are 1.1,1.2.")
        #expect(actions.dropFirst() == [.close(0)])
        #expect(broker.say(0, "CONNECT accept-version:1.2 host:/").isEmpty)
    }

    struct Refused: Sendable, CustomStringConvertible {
        var frame: String
        var message: String

        var description: String { self.frame }
    }

    @Test(arguments: [
        Refused(frame: "SEND destination:/queue/a", message: "not connected"),
        Refused(frame: "CONNECT accept-version:1.1", message: "missing header"),
        Refused(frame: "STOMP accept-version:1.2 host:other login:me passcode:right", message: "no such host"),
        Refused(frame: "CONNECT accept-version:1.2 host:/", message: "access refused"),
        Refused(frame: "CONNECT accept-version:1.2 host:/ login:me passcode:wrong", message: "access refused"),
        Refused(frame: "CONNECT accept-version:1.2 host:/ login:you passcode:right", message: "access refused"),
        Refused(frame: "CONNECT login:me", message: "access refused"),
        Refused(
            frame: "CONNECT accept-version:1.2 host:/ login:me passcode:right heart-beat:1",
            message: "malformed heart-beat"
        ),
    ])
    func connectionIsRefused(refused: Refused) {
        for closes in [true, false] {
            var broker = BrokerScript {
                $0.virtualHosts = ["/"]
                $0.logins = ["me": "right"]
                $0.closesAfterErrors = closes
            }
            broker.machine.opened(0)
            #expect(broker.say(0, refused.frame) == ["0 ERROR: \(refused.message)", "0 closes"])
            #expect(!broker.machine.isConnected(0))
        }
    }

    @Test func loginAndHostAreAccepted() {
        var broker = BrokerScript {
            $0.virtualHosts = ["/"]
            $0.logins = ["me": "right"]
        }
        broker.machine.opened(0)
        #expect(broker.say(0, "STOMP accept-version:1.2 host:/ login:me passcode:right").last == "0 speaks 1.2")
    }

    @Test func heartBeatsAreThoseOfTheFormula() {
        for (theirs, ours, expected) in [
            ("10000,5000", (1, 1), "0 beats 5000, 10000"), ("10000,0", (1, 1), "0 beats never, 10000"),
            ("0,5000", (7_000, 1), "0 beats 7000, never"), ("0,0", (1, 1), nil), ("10,10", (0, 0), nil),
            ("10,20", (0, 30), "0 beats never, 30"),
        ] as [(String, (Int, Int), String?)] {
            var broker = BrokerScript {
                $0.heartBeatInterval = .milliseconds(ours.0)
                $0.expectedHeartBeatInterval = .milliseconds(ours.1)
            }
            broker.machine.opened(0)
            let actions = broker.say(0, "CONNECT accept-version:1.2 host:/ heart-beat:\(theirs)")
            #expect(actions.first?.contains("heart-beat:\(ours.0),\(ours.1) ") == true)
            #expect(actions.dropFirst(2).first == expected)
        }
    }

    // MARK: Faults

    @Test(arguments: [
        Refused(frame: "CONNECT accept-version:1.2 host:/", message: "already connected"),
        Refused(frame: "MESSAGE destination:/queue/a", message: "unknown command"),
        Refused(frame: "HELLO", message: "unknown command"),
        Refused(frame: "SEND|x", message: "missing header"),
        Refused(frame: "SEND destination:elsewhere", message: "unknown destination"),
        Refused(frame: "SEND destination:/queue/", message: "unknown destination"),
        Refused(frame: "SEND destination:/queue/a transaction:t", message: "transaction not found"),
        Refused(frame: "SUBSCRIBE destination:/queue/a", message: "missing header"),
        Refused(frame: "SUBSCRIBE id:2", message: "missing header"),
        Refused(frame: "SUBSCRIBE id:2 destination:a", message: "unknown destination"),
        Refused(frame: "SUBSCRIBE id:1 destination:/queue/other", message: "duplicate subscription"),
        Refused(frame: "SUBSCRIBE id:2 destination:/queue/a ack:none", message: "unknown ack mode"),
        Refused(frame: "SUBSCRIBE id:2 destination:/queue/a prefetch-count:0", message: "malformed prefetch-count"),
        Refused(frame: "SUBSCRIBE id:2 destination:/queue/a prefetch-count:x", message: "malformed prefetch-count"),
        Refused(frame: "UNSUBSCRIBE destination:/queue/a", message: "missing header"),
        Refused(frame: "UNSUBSCRIBE id:2", message: "subscription not found"),
        Refused(frame: "ACK message-id:message-1", message: "missing header"),
        Refused(frame: "ACK id:message-1", message: "message not found"),
        Refused(frame: "NACK id:ack-0", message: "message not found"),
        Refused(frame: "BEGIN", message: "missing header"),
        Refused(frame: "COMMIT", message: "missing header"),
        Refused(frame: "COMMIT transaction:t", message: "transaction not found"),
        Refused(frame: "ABORT transaction:t", message: "transaction not found"),
    ])
    func faultIsAnsweredWithErrorAndTheEnd(refused: Refused) {
        var broker = BrokerScript()
        broker.connect(0)
        #expect(broker.say(0, "SUBSCRIBE id:1 destination:/queue/a").isEmpty)
        #expect(broker.say(0, "\(refused.frame)").first == "0 ERROR: \(refused.message)")
        #expect(!broker.machine.isConnected(0) && broker.machine.subscriptions(of: 0).isEmpty)
        #expect(broker.say(0, "SEND destination:/queue/a|x").isEmpty)
    }

    @Test func errorHasTheReceiptThatWasAskedForAndMayKeepTheConnectionOpen() {
        var broker = BrokerScript { $0.closesAfterErrors = false }
        broker.connect(0)
        #expect(broker.say(0, "SEND destination:a receipt:7|x") == ["0 ERROR: unknown destination, receipt 7"])
        #expect(broker.say(0, "SEND destination:/queue/a receipt:8|x") == ["0 receipt 8"])
        var strict = BrokerScript()
        strict.connect(0)
        #expect(strict.say(0, "ABORT transaction:t receipt:7").last == "0 closes")
    }

    @Test func malformedFrameEndsTheConnection() throws {
        var decoder = STOMPDecoder()
        decoder.append(ByteBuffer(string: "SEND\n:x\n\n\0"))
        var violation: STOMPViolation?
        do throws(STOMPViolation) { _ = try decoder.next() } catch { violation = error }
        var broker = BrokerScript { $0.closesAfterErrors = false }
        broker.connect(0)
        let actions = broker.machine.receivedViolation(try #require(violation), on: 0).map(BrokerScript.show)
        #expect(actions == ["0 ERROR: malformed frame", "0 closes"])
        #expect(broker.machine.receivedViolation(try #require(violation), on: 0).isEmpty)
    }

    @Test func receiptsAreSentOnceTheFrameIsHandled() {
        var broker = BrokerScript()
        broker.connect(0)
        #expect(broker.say(0, "SUBSCRIBE id:1 destination:/queue/a receipt:r1") == ["0 receipt r1"])
        #expect(broker.say(0, "SEND destination:/queue/a receipt:r_2|x") == ["0 x s:1", "0 receipt r 2"])
        #expect(broker.say(0, "BEGIN transaction:t receipt:r3") == ["0 receipt r3"])
        #expect(broker.say(0, "SEND destination:/queue/a receipt:r4|y", confirms: false) == ["0 y s:1"])
        #expect(broker.say(0, "DISCONNECT receipt:r5") == ["0 receipt r5", "0 closes"])
        #expect(broker.say(0, "SEND destination:/queue/a|z").isEmpty)
        var other = BrokerScript()
        other.connect(0)
        #expect(other.say(0, "DISCONNECT") == ["0 closes"])
        other.machine.opened(1)
        #expect(other.say(1, "CONNECT accept-version:1.2 host:/ receipt:r").last == "1 speaks 1.2")
    }

    // MARK: Messages

    @Test func messageHasTheHeadersOfItsSenderAndThoseOfTheBroker() {
        var broker = BrokerScript()
        for (connection, version) in STOMPVersion.allCases.enumerated() {
            broker.connect(connection, version)
            let ack = version == .v1_0 ? "client" : "client-individual"
            #expect(broker.say(connection, "SUBSCRIBE id:s destination:/topic/t ack:\(ack)").isEmpty)
        }
        let sent = BrokerScript.frame(
            "SEND destination:/topic/t content-type:text/plain content-length:1 receipt:r foo:1 foo:2 "
                + "message-id:mine subscription:mine ack:mine|x"
        )
        let frames = broker.machine.receivedFrame(sent, on: 0).compactMap { action -> STOMPFrame? in
            if case .send(let frame, _) = action, frame.command == .message { frame } else { nil }
        }
        #expect(frames.count == 3 && frames.allSatisfy { String(buffer: $0.body) == "x" })
        for (frame, version) in zip(frames, STOMPVersion.allCases) {
            let names = ["destination", "message-id", "content-type", "foo", "foo", "subscription"]
            #expect(frame.headers.map(\.name) == names + (version == .v1_2 ? ["ack"] : []))
            #expect(frame.headers["destination"] == "/topic/t" && frame.headers["subscription"] == "s")
            #expect(frame.headers.values(of: "foo") == ["1", "2"])
            #expect(frame.headers["message-id"] == frames[0].headers["message-id"])
            #expect(STOMPEncoder.refusal(of: frame, version: version) == nil)
        }
        var auto = BrokerScript()
        auto.connect(0)
        #expect(auto.say(0, "SUBSCRIBE id:1 destination:/queue/a ack:auto").isEmpty)
        guard case .send(let frame, _)? = auto.machine.publish(ByteBuffer(), to: "/queue/a")?.first else {
            Issue.record("nothing was delivered")
            return
        }
        #expect(!frame.headers.contains(name: "ack"))
    }

    @Test func queueKeepsMessagesForEachConsumerAlternately() {
        var broker = BrokerScript()
        broker.connect(0)
        broker.connect(1, .v1_1)
        #expect(broker.publish("a", to: "/queue/q") == [])
        #expect(broker.say(0, "SEND destination:/queue/q|b").isEmpty)
        #expect(broker.queue("q") == ["a", "b"] && broker.queue("other").isEmpty)
        #expect(broker.say(0, "SUBSCRIBE id:1 destination:/queue/q") == ["0 a s:1", "0 b s:1"])
        #expect(broker.queue("q").isEmpty)
        #expect(broker.say(1, "SUBSCRIBE id:2 destination:/queue/q").isEmpty)
        #expect(broker.publish("c", to: "/queue/q") == ["0 c s:1"])
        #expect(broker.publish("d", to: "/queue/q") == ["1 d s:2"])
        #expect(broker.publish("e", to: "/queue/q") == ["0 e s:1"])
        #expect(broker.say(0, "UNSUBSCRIBE id:1").isEmpty)
        #expect(broker.publish("f", to: "/queue/q") == ["1 f s:2"])
        #expect(broker.publish("g", to: "/queue/q") == ["1 g s:2"])
        #expect(broker.end(1).isEmpty)
        #expect(broker.publish("h", to: "/queue/q") == [])
        #expect(broker.queue("q") == ["h"])
        #expect(broker.publish("x", to: "elsewhere") == nil)
    }

    @Test func topicIsForAllThatSubscribeAtTheTime() {
        var broker = BrokerScript()
        for connection in 0...1 { broker.connect(connection) }
        #expect(broker.publish("a", to: "/topic/t") == [])
        #expect(broker.say(0, "SUBSCRIBE id:1 destination:/topic/t").isEmpty)
        #expect(broker.say(0, "SUBSCRIBE id:2 destination:/topic/t").isEmpty)
        #expect(broker.say(1, "SUBSCRIBE id:1 destination:/topic/t").isEmpty)
        #expect(broker.say(1, "SUBSCRIBE id:2 destination:/topic/u").isEmpty)
        #expect(broker.say(1, "SEND destination:/topic/t|b") == ["0 b s:1", "0 b s:2", "1 b s:1"])
        #expect(broker.say(0, "UNSUBSCRIBE id:1").isEmpty)
        #expect(broker.end(1).isEmpty)
        #expect(broker.publish("c", to: "/topic/t") == ["0 c s:2"])
    }

    @Test func subscriptionsAreListed() {
        var broker = BrokerScript()
        broker.connect(0)
        #expect(broker.publish("a", to: "/queue/q") == [])
        #expect(broker.say(0, "SUBSCRIBE id:1 destination:/queue/q ack:client prefetch-count:2") == ["0 a s:1"])
        #expect(broker.say(0, "SUBSCRIBE id:2 destination:/topic/t").isEmpty)
        let subscriptions = broker.machine.subscriptions(of: 0)
        #expect(subscriptions.map(\.id) == ["1", "2"] && subscriptions.map(\.destination) == ["/queue/q", "/topic/t"])
        #expect(subscriptions.map(\.ack) == ["client", "auto"])
        #expect(subscriptions.map(\.prefetchCount) == [2, nil] && subscriptions.map(\.unacknowledged) == [1, 0])
        #expect(broker.machine.subscriptions(of: 1).isEmpty)
    }

    @Test func subscriptionsOf10MayHaveNoID() {
        var broker = BrokerScript { $0.closesAfterErrors = false }
        broker.connect(0, .v1_0)
        #expect(broker.say(0, "SUBSCRIBE destination:/topic/t").isEmpty)
        #expect(broker.say(0, "SUBSCRIBE destination:/topic/t") == ["0 ERROR: duplicate subscription"])
        #expect(broker.say(0, "SUBSCRIBE destination:/topic/t id:1").isEmpty)
        #expect(broker.publish("a", to: "/topic/t") == ["0 a", "0 a s:1"])
        #expect(broker.say(0, "UNSUBSCRIBE destination:/topic/t").isEmpty)
        #expect(broker.say(0, "UNSUBSCRIBE destination:/topic/t") == ["0 ERROR: subscription not found"])
        #expect(broker.say(0, "UNSUBSCRIBE") == ["0 ERROR: missing header"])
        #expect(broker.publish("b", to: "/topic/t") == ["0 b s:1"])
        #expect(
            broker.say(0, "SUBSCRIBE destination:/topic/u ack:client-individual") == ["0 ERROR: unknown ack mode"]
        )
        #expect(broker.say(0, "NACK message-id:x") == ["0 ERROR: unknown command"])
    }
}
