// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Testing

@testable import HHSocketSTOMP

/// The decisions of a client on connections, versions, heart-beats, subscriptions and errors.
@Suite struct STOMPMachineTests {
    static let endpoint = Endpoint(host: "broker.example", port: 61_613)
    static let credentials = STOMPCredentials(login: "ann", passcode: "secret")

    /// A machine whose broker has accepted it.
    static func connected(
        _ version: STOMPVersion = .v1_2,
        _ configure: (inout STOMPMachine.Settings) -> Void = { _ in }
    ) throws -> STOMPMachine {
        var settings = STOMPMachine.Settings()
        configure(&settings)
        var machine = STOMPMachine(settings)
        try Self.connect(&machine, version)
        return machine
    }

    static func connect(_ machine: inout STOMPMachine, _ version: STOMPVersion = .v1_2) throws {
        _ = machine.begin(Self.endpoint, nil)
        _ = try machine.received(STOMPFrame(.connected, ["version": version.rawValue]))
    }

    private func failure(of machine: STOMPMachine, _ frame: STOMPFrame) -> STOMPMachine.Failure? {
        var machine = machine
        do throws(STOMPMachine.Failure) {
            _ = try machine.received(frame)
            return nil
        } catch {
            return error
        }
    }

    private func violation(_ machine: STOMPMachine, _ frame: STOMPFrame) -> String? {
        if case .violation(let text)? = self.failure(of: machine, frame) { text } else { nil }
    }

    // MARK: CONNECT

    @Test func connectNamesVersionsHostHeartbeatsAndTheUser() {
        var settings = STOMPMachine.Settings()
        settings.headers = ["client-id": "7"]
        var machine = STOMPMachine(settings)
        let frame = machine.begin(Self.endpoint, Self.credentials)
        #expect(frame.command == .connect)
        #expect(
            frame.headers == [
                "accept-version": "1.0,1.1,1.2", "heart-beat": "10000,10000", "host": "broker.example", "login": "ann",
                "passcode": "secret", "client-id": "7",
            ]
        )
    }

    /// The virtual host of RabbitMQ is not the host of the address.
    @Test func hostIsTheOneThatIsGiven() {
        var settings = STOMPMachine.Settings()
        settings.host = "/"
        var machine = STOMPMachine(settings)
        #expect(machine.begin(Self.endpoint, nil).headers["host"] == "/")
    }

    @Test func clientOfTheFirstVersionNamesNoVersion() {
        var settings = STOMPMachine.Settings()
        settings.versions = [.v1_0]
        var machine = STOMPMachine(settings)
        #expect(machine.begin(Self.endpoint, nil).headers == ["host": "broker.example"])
    }

    @Test(arguments: STOMPVersion.allCases)
    func versionIsTheBrokers(version: STOMPVersion) throws {
        #expect(try Self.connected(version).agreement?.version == version)
    }

    @Test func brokerWithoutAVersionSpeaksTheFirst() throws {
        var machine = STOMPMachine()
        _ = machine.begin(Self.endpoint, nil)
        guard case .connected(let agreement) = try machine.received(STOMPFrame(.connected, ["session": "s"])) else {
            Issue.record("not connected")
            return
        }
        #expect(agreement.version == .v1_0)
        #expect(agreement.session == "s")
        #expect(agreement.heartbeats == .off)
    }

    @Test func versionThatWasNotOfferedIsAViolation() {
        var settings = STOMPMachine.Settings()
        settings.versions = [.v1_1, .v1_2]
        var machine = STOMPMachine(settings)
        _ = machine.begin(Self.endpoint, nil)
        #expect(
            self.violation(machine, STOMPFrame(.connected))
                == "the broker speaks version 1.0, which was not offered (1.1, 1.2)"
        )
    }

    @Test func errorInAnswerToConnectIsReported() {
        var machine = STOMPMachine()
        _ = machine.begin(Self.endpoint, nil)
        var frame = STOMPFrame(.error, ["message": "Bad CONNECT"])
        frame.body = ByteBuffer(string: "Access refused\nfor user 'ann'")
        guard case .error(let error, isAnswerToConnect: true)? = self.failure(of: machine, frame) else {
            Issue.record("no error")
            return
        }
        #expect(error.description == "Bad CONNECT: Access refused for user 'ann'")
    }

    @Test(arguments: [STOMPCommand.message, .receipt, .send])
    func anythingElseInAnswerToConnectIsAViolation(command: STOMPCommand) {
        var machine = STOMPMachine()
        _ = machine.begin(Self.endpoint, nil)
        let expected = "\(command) in answer to CONNECT, where CONNECTED or ERROR is expected"
        #expect(self.violation(machine, STOMPFrame(command)) == expected)
    }

    @Test func framesThatNoBrokerSendsAreViolations() throws {
        let machine = try Self.connected()
        #expect(self.violation(machine, STOMPFrame(.connected)) == "CONNECTED, which no broker sends")
        #expect(self.violation(machine, STOMPFrame(.receipt)) == "RECEIPT without the header receipt-id")
        #expect(self.violation(STOMPMachine(), STOMPFrame(.message)) != nil)
    }

    // MARK: Heart-beats

    struct Agreement: CustomStringConvertible, Sendable {
        var ours: STOMPHeartbeats
        var theirs: String?
        var send: Duration
        var receive: Duration

        var description: String { "\(self.ours) and \(self.theirs ?? "none")" }
    }

    /// The formula of the specifications 1.1 and 1.2.
    @Test(
        arguments: [
            Agreement(ours: .init(), theirs: "10000,10000", send: .seconds(10), receive: .seconds(10)),
            // The broker wants beats less often than we can send them, and can send them more often than we want.
            Agreement(ours: .init(), theirs: "1000,20000", send: .seconds(20), receive: .seconds(10)),
            Agreement(ours: .init(), theirs: "20000,1000", send: .seconds(10), receive: .seconds(20)),
            Agreement(ours: .init(), theirs: "0,0", send: .zero, receive: .zero),
            Agreement(ours: .init(), theirs: "0,5000", send: .seconds(10), receive: .zero),
            Agreement(ours: .init(), theirs: "5000,0", send: .zero, receive: .seconds(10)),
            Agreement(ours: .init(), theirs: nil, send: .zero, receive: .zero),
            Agreement(ours: .off, theirs: "10,10", send: .zero, receive: .zero),
            Agreement(
                ours: .init(send: .milliseconds(250), receive: .zero),
                theirs: "1,100",
                send: .milliseconds(250),
                receive: .zero
            ),
        ]
    )
    func heartbeatsAreAgreedOnByTheFormula(agreement: Agreement) throws {
        var settings = STOMPMachine.Settings()
        settings.heartbeats = agreement.ours
        for version in [STOMPVersion.v1_1, .v1_2] {
            var machine = STOMPMachine(settings)
            _ = machine.begin(Self.endpoint, nil)
            var headers: STOMPHeaders = ["version": version.rawValue]
            headers["heart-beat"] = agreement.theirs
            _ = try machine.received(STOMPFrame(.connected, headers))
            #expect(machine.agreement?.heartbeats.send == agreement.send)
            #expect(machine.agreement?.heartbeats.receive == agreement.receive)
        }
    }

    @Test func firstVersionHasNoHeartbeats() throws {
        var machine = STOMPMachine()
        _ = machine.begin(Self.endpoint, nil)
        _ = try machine.received(STOMPFrame(.connected, ["version": "1.0", "heart-beat": "10,10"]))
        #expect(machine.agreement?.heartbeats == .off)
    }

    @Test(arguments: ["10", "10,", "a,b", "1,2,3", "-1,5", " 1,1"])
    func heartbeatsThatAreNoNumbersAreAViolation(header: String) {
        var machine = STOMPMachine()
        _ = machine.begin(Self.endpoint, nil)
        let frame = STOMPFrame(.connected, ["version": "1.2", "heart-beat": header])
        #expect(self.violation(machine, frame)?.contains("heart-beat") == true)
    }

    @Test func offersAreWholeMilliseconds() {
        #expect(STOMPHeartbeats(send: .microseconds(1), receive: .seconds(1)).offer.description == "1,1000")
        #expect(STOMPHeartbeats(send: .seconds(-1), receive: .seconds(1 << 40)).offer.sends == 0)
        #expect(STOMPHeartbeats(send: .zero, receive: .seconds(1 << 40)).offer.receives == Int(Int32.max))
    }

    // MARK: Subscriptions

    private func subscribe(
        _ machine: inout STOMPMachine,
        _ id: String,
        _ destination: String = "/queue/a",
        _ mode: STOMPAckMode = .auto,
        headers: STOMPHeaders = [:],
        window: Int = 100
    ) -> Bool {
        machine.subscribe(id, to: destination, ackMode: mode, headers: headers, window: window)
    }

    @Test func subscriptionsAreMadeAgainInOrderWithTheirIds() throws {
        var machine = try Self.connected()
        for id in ["b", "a", "c"] { #expect(self.subscribe(&machine, id)) }
        #expect(!self.subscribe(&machine, "a", "/queue/other"))
        #expect(machine.unsubscribe("a", headers: ["x": "y"]) == STOMPFrame(.unsubscribe, ["id": "a", "x": "y"]))
        machine.end()
        #expect(machine.subscribing("b", receipt: "r1") == nil)
        try Self.connect(&machine)
        #expect(machine.subscriptionIDs == ["b", "c"])
        #expect(
            machine.subscribing("b", receipt: "r1")
                == STOMPFrame(.subscribe, ["id": "b", "destination": "/queue/a", "ack": "auto", "receipt": "r1"])
        )
    }

    @Test func headersOfASubscriptionFollowOurs() throws {
        var machine = try Self.connected()
        #expect(self.subscribe(&machine, "a", "/topic/t", .clientIndividual, headers: ["selector": "x > 1"]))
        #expect(
            machine.subscribing("a", receipt: "r")
                == STOMPFrame(
                    .subscribe,
                    [
                        "id": "a", "destination": "/topic/t", "ack": "client-individual", "receipt": "r",
                        "selector": "x > 1",
                    ]
                )
        )
    }

    @Test func subscriptionWithoutAConnectionNeedsNoFrameToEnd() {
        var machine = STOMPMachine()
        #expect(self.subscribe(&machine, "a"))
        #expect(machine.unsubscribe("a", headers: [:]) == nil)
        #expect(machine.unsubscribe("a", headers: [:]) == nil)
        #expect(machine.subscriptionIDs.isEmpty)
    }

    @Test func messageBelongsToItsSubscriptionOrToNone() throws {
        var machine = try Self.connected()
        #expect(self.subscribe(&machine, "a"))
        let headers: STOMPHeaders = ["subscription": "a", "destination": "/queue/a", "message-id": "1"]
        guard case .message(let delivery) = try machine.received(STOMPFrame(.message, headers)) else {
            Issue.record("no message")
            return
        }
        #expect(delivery.subscription == "a")
        guard case .unclaimed = try machine.received(STOMPFrame(.message, ["subscription": "z"])),
            case .unclaimed = try machine.received(STOMPFrame(.message, ["destination": "/queue/a"]))
        else {
            Issue.record("a message of no subscription is claimed")
            return
        }
    }

    /// In 1.0 a message need not name its subscription.
    @Test func firstVersionFindsTheSubscriptionByItsDestination() throws {
        var machine = try Self.connected(.v1_0)
        #expect(self.subscribe(&machine, "a"))
        #expect(self.subscribe(&machine, "b", "/queue/b"))
        guard case .message(let delivery) = try machine.received(STOMPFrame(.message, ["destination": "/queue/b"]))
        else {
            Issue.record("no message")
            return
        }
        #expect(delivery.subscription == "b")
    }

    @Test func receiptsAreNeverRepeated() {
        var machine = STOMPMachine()
        let receipts = (0..<100).map { _ in machine.makeReceipt() }
        #expect(Set(receipts).count == 100)
    }
}
