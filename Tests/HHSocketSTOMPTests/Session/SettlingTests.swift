// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import Testing

@testable import HHSocketSTOMP

/// The decisions of a client on acknowledgements and transactions.
@Suite struct SettlingTests {
    private func machine(
        _ version: STOMPVersion = .v1_2,
        _ mode: STOMPAckMode = .clientIndividual,
        window: Int = 100
    ) throws -> STOMPMachine {
        var machine = try STOMPMachineTests.connected(version)
        let isNew = machine.subscribe("s", to: "/queue/a", ackMode: mode, headers: [:], window: window)
        #expect(isNew)
        return machine
    }

    /// Has a message delivered.
    private func deliver(_ machine: inout STOMPMachine, _ number: Int) throws -> STOMPDelivery {
        let headers: STOMPHeaders = ["subscription": "s", "message-id": "m\(number)", "ack": "a\(number)"]
        guard case .message(let delivery) = try machine.received(STOMPFrame(.message, headers)) else {
            throw SocketError(.unknown, message: "no message")
        }
        return delivery
    }

    private func begin(_ machine: inout STOMPMachine) throws -> (id: String, frame: STOMPFrame) {
        let begun = machine.beginTransaction()
        return try #require(begun)
    }

    private func deliver(_ machine: inout STOMPMachine, count: Int) throws -> [STOMPDelivery] {
        try (1...count).map { try self.deliver(&machine, $0) }
    }

    private func code(_ body: () throws(SocketError) -> Void) -> SocketError.Code? {
        do throws(SocketError) {
            try body()
            return nil
        } catch {
            return error.code
        }
    }

    // MARK: Frames

    /// The headers of ACK and NACK differ in every version.
    @Test(
        arguments: [
            (.v1_0, ["message-id": "m1", "subscription": "s"]), (.v1_1, ["message-id": "m1", "subscription": "s"]),
            (.v1_2, ["id": "a1"]),
        ] as [(STOMPVersion, STOMPHeaders)]
    )
    func acknowledgementIsRightForItsVersion(version: STOMPVersion, headers: STOMPHeaders) throws {
        var machine = try self.machine(version, .client)
        let delivery = try self.deliver(&machine, 1)
        let ack = try machine.settle(delivery, isAcknowledged: true, in: nil)?.frame
        #expect(ack == STOMPFrame(.ack, headers))
        let second = try self.deliver(&machine, 1)
        guard version > .v1_0 else {
            let code = self.code { () throws(SocketError) in
                _ = try machine.settle(second, isAcknowledged: false, in: nil)
            }
            #expect(code == .invalidArgument)
            return
        }
        #expect(try machine.settle(second, isAcknowledged: false, in: nil)?.frame == STOMPFrame(.nack, headers))
    }

    @Test func furtherHeadersFollow() throws {
        var machine = try self.machine()
        let delivery = try self.deliver(&machine, 1)
        let frame = try machine.settle(delivery, isAcknowledged: false, in: nil, headers: ["requeue": "false"])?.frame
        #expect(frame == STOMPFrame(.nack, ["id": "a1", "requeue": "false"]))
    }

    @Test func messageWithoutAnIdentifierCannotBeSettled() throws {
        var machine = try self.machine()
        guard case .message(let delivery) = try machine.received(STOMPFrame(.message, ["subscription": "s"])) else {
            Issue.record("no message")
            return
        }
        let code = self.code { () throws(SocketError) in
            _ = try machine.settle(delivery, isAcknowledged: true, in: nil)
        }
        #expect(code == .invalidArgument)
    }

    // MARK: Once

    @Test func acknowledgingTwiceDoesNothing() throws {
        var machine = try self.machine()
        let delivery = try self.deliver(&machine, 1)
        #expect(try machine.settle(delivery, isAcknowledged: true, in: nil) != nil)
        #expect(try machine.settle(delivery, isAcknowledged: true, in: nil) == nil)
        let code = self.code { () throws(SocketError) in
            _ = try machine.settle(delivery, isAcknowledged: false, in: nil)
        }
        #expect(code == .invalidArgument)
    }

    /// The same holds in 1.0, where RabbitMQ would consider another one an error.
    @Test(arguments: STOMPVersion.allCases)
    func cumulativeAcknowledgementCoversThoseBefore(version: STOMPVersion) throws {
        var machine = try self.machine(version, .client)
        let deliveries = try self.deliver(&machine, count: 5)
        #expect(try machine.settle(deliveries[3], isAcknowledged: true, in: nil) != nil)
        for covered in deliveries[..<3] { #expect(try machine.settle(covered, isAcknowledged: true, in: nil) == nil) }
        #expect(try machine.settle(deliveries[4], isAcknowledged: true, in: nil) != nil)
    }

    @Test func individualAcknowledgementsComeInAnyOrder() throws {
        var machine = try self.machine()
        let deliveries = try self.deliver(&machine, count: 3)
        for delivery in deliveries.reversed() {
            #expect(try machine.settle(delivery, isAcknowledged: true, in: nil) != nil)
        }
    }

    @Test func modeAutoHasNothingToSettle() throws {
        var machine = try self.machine(.v1_2, .auto)
        let delivery = try self.deliver(&machine, 1)
        let code = self.code { () throws(SocketError) in
            _ = try machine.settle(delivery, isAcknowledged: true, in: nil)
        }
        #expect(code == .invalidArgument)
    }

    // MARK: Connections

    /// A message that an old connection delivered is never acknowledged on a new one.
    @Test func acknowledgementBelongsToItsConnection() throws {
        var machine = try self.machine()
        let delivery = try self.deliver(&machine, 1)
        func code() -> SocketError.Code? {
            self.code { () throws(SocketError) in _ = try machine.settle(delivery, isAcknowledged: true, in: nil) }
        }
        machine.end()
        #expect(code() == .connectionLost)
        try STOMPMachineTests.connect(&machine)
        #expect(code() == .connectionLost)
        let again = try self.deliver(&machine, 1)
        #expect(try machine.settle(again, isAcknowledged: true, in: nil) != nil)
    }

    @Test func messageOfASubscriptionThatHasEndedIsTakenBack() throws {
        var machine = try self.machine()
        let delivery = try self.deliver(&machine, 1)
        let frame = machine.unsubscribe("s", headers: [:])
        #expect(frame != nil)
        let code = self.code { () throws(SocketError) in
            _ = try machine.settle(delivery, isAcknowledged: true, in: nil)
        }
        #expect(code == .invalidArgument)
    }

    // MARK: The window

    /// A broker that respects the window never overdraws it.
    @Test func windowIsOverdrawnByOneMoreUntilOneIsSettled() throws {
        var machine = try self.machine(window: 2)
        let deliveries = try self.deliver(&machine, count: 2)
        #expect(!machine.isOverdrawn)
        let third = try self.deliver(&machine, 3)
        #expect(machine.isOverdrawn)
        _ = try machine.settle(deliveries[1], isAcknowledged: true, in: nil)
        #expect(!machine.isOverdrawn)
        _ = try self.deliver(&machine, 4)
        #expect(machine.isOverdrawn)
        _ = try machine.settle(third, isAcknowledged: false, in: nil)
        #expect(!machine.isOverdrawn)
        _ = try self.deliver(&machine, 5)
        #expect(machine.isOverdrawn)
        machine.end()
        #expect(!machine.isOverdrawn)
    }

    @Test func windowForgetsWhatIsSettled() throws {
        var machine = try self.machine(window: 10)
        for number in 1...10_000 {
            let delivery = try self.deliver(&machine, number)
            _ = try machine.settle(delivery, isAcknowledged: true, in: nil)
        }
        #expect(machine.subscriptions["s"]?.acks.length == 0)
    }

    // MARK: Transactions

    @Test func abortOpensAgainWhatItHadSettled() throws {
        var machine = try self.machine(.v1_2, .client, window: 2)
        let deliveries = try self.deliver(&machine, count: 3)
        let (id, begin) = try self.begin(&machine)
        #expect(begin == STOMPFrame(.begin, ["transaction": id]))
        #expect(
            try machine.settle(deliveries[2], isAcknowledged: true, in: id)?.frame
                == STOMPFrame(.ack, ["id": "a3", "transaction": id])
        )
        #expect(!machine.isOverdrawn)
        #expect(try machine.endTransaction(id, isCommitted: false).frame == STOMPFrame(.abort, ["transaction": id]))
        #expect(machine.isOverdrawn)
        for delivery in deliveries { #expect(try machine.settle(delivery, isAcknowledged: true, in: nil) != nil) }
    }

    @Test func commitSettlesPermanently() throws {
        var machine = try self.machine()
        let deliveries = try self.deliver(&machine, count: 2)
        let (id, _) = try self.begin(&machine)
        _ = try machine.settle(deliveries[0], isAcknowledged: true, in: id)
        _ = try machine.settle(deliveries[1], isAcknowledged: false, in: id)
        #expect(try machine.endTransaction(id, isCommitted: true).frame == STOMPFrame(.commit, ["transaction": id]))
        #expect(try machine.settle(deliveries[0], isAcknowledged: true, in: nil) == nil)
        #expect(machine.subscriptions["s"]?.acks.length == 0)
    }

    @Test func transactionEndsWithItsConnection() throws {
        var machine = try self.machine()
        let (id, _) = try self.begin(&machine)
        machine.end()
        try STOMPMachineTests.connect(&machine)
        let code = self.code { () throws(SocketError) in _ = try machine.endTransaction(id, isCommitted: true) }
        #expect(code == .connectionLost)
        let (next, _) = try self.begin(&machine)
        #expect(next != id)
    }

    @Test func transactionNeedsAConnection() {
        var machine = STOMPMachine()
        let begun = machine.beginTransaction()
        #expect(begun == nil)
    }

    /// Random acknowledgements, compared with a model that keeps a set.
    @Test func windowIsASetOfOpenMessages() throws {
        for seed in 1...50 as ClosedRange<UInt64> {
            var random = SplitMix(seed: seed)
            var window = AckWindow()
            var open: Set<UInt64> = []
            var count: UInt64 = 0
            var transaction: [UInt64] = []
            for _ in 0..<400 {
                switch Int.random(in: 0..<10, using: &random) {
                case 0..<5:
                    let number = window.deliver()
                    #expect(number == count)
                    open.insert(count)
                    count += 1
                case 5..<8 where count > 0:
                    let number = UInt64.random(in: 0..<count, using: &random)
                    let isCumulative = Bool.random(using: &random)
                    let covered = open.filter { isCumulative ? $0 <= number : $0 == number }
                    let expected: Set<UInt64> = open.contains(number) ? covered : []
                    let settled = window.settle(number, isCumulative: isCumulative)
                    #expect(Set(settled) == expected && settled.count == expected.count)
                    open.subtract(expected)
                    if Bool.random(using: &random) { transaction += settled }
                case 8:
                    window.reopen(transaction)
                    open.formUnion(transaction)
                    transaction = []
                default:
                    window.trim(before: transaction.min())
                }
                #expect(window.openCount == open.count)
            }
        }
    }

    // MARK: Frames that were not sent

    private func settle(
        _ machine: inout STOMPMachine,
        _ delivery: STOMPDelivery,
        isAcknowledged: Bool = true,
        in transaction: String? = nil
    ) throws -> STOMPMachine.Settlement {
        let settled = try machine.settle(delivery, isAcknowledged: isAcknowledged, in: transaction)
        return try #require(settled).settlement
    }

    @Test(arguments: [STOMPAckMode.client, .clientIndividual], [true, false])
    func messageWhoseFrameWasNotSentIsSettledByAnother(mode: STOMPAckMode, isAcknowledged: Bool) throws {
        var machine = try self.machine(.v1_2, mode, window: 2)
        let deliveries = try self.deliver(&machine, count: 3)
        #expect(machine.isOverdrawn)
        let settlement = try self.settle(&machine, deliveries[2], isAcknowledged: isAcknowledged)
        #expect(!machine.isOverdrawn)
        machine.undo(settlement)
        // They count as unsettled again.
        #expect(machine.isOverdrawn)
        let frame = try machine.settle(deliveries[2], isAcknowledged: isAcknowledged, in: nil)?.frame
        #expect(frame == STOMPFrame(isAcknowledged ? .ack : .nack, ["id": "a3"]))
    }

    @Test func laterMessagesMayHaveBeenSettledMeanwhile() throws {
        var machine = try self.machine()
        let deliveries = try self.deliver(&machine, count: 5)
        let settlement = try self.settle(&machine, deliveries[0])
        for delivery in deliveries[1..<4] { _ = try self.settle(&machine, delivery) }
        machine.undo(settlement)
        #expect(try machine.settle(deliveries[1], isAcknowledged: true, in: nil) == nil)
        #expect(try machine.settle(deliveries[0], isAcknowledged: true, in: nil) != nil)
        #expect(try machine.settle(deliveries[4], isAcknowledged: true, in: nil) != nil)
        #expect(machine.subscriptions["s"]?.acks.openCount == 0)
        #expect(machine.subscriptions["s"]?.acks.length == 0)
    }

    @Test func laterCumulativeAcknowledgementCoversWhatWasNotSent() throws {
        var machine = try self.machine(.v1_2, .client)
        let deliveries = try self.deliver(&machine, count: 3)
        let settlement = try self.settle(&machine, deliveries[0])
        _ = try self.settle(&machine, deliveries[2])
        machine.undo(settlement)
        #expect(try machine.settle(deliveries[0], isAcknowledged: true, in: nil) == nil)
        #expect(machine.subscriptions["s"]?.acks.openCount == 0)
    }

    @Test func nothingIsUndoneOnAnotherConnection() throws {
        var machine = try self.machine()
        let delivery = try self.deliver(&machine, 1)
        let settlement = try self.settle(&machine, delivery)
        machine.end()
        _ = machine.begin(Endpoint(host: "a", port: 1), nil)
        machine.undo(settlement)
        #expect(machine.subscriptions["s"]?.acks.openCount == 0)
    }

    @Test func messageWhoseFrameInATransactionWasNotSentIsNoPartOfIt() throws {
        var machine = try self.machine()
        let deliveries = try self.deliver(&machine, count: 2)
        let id = try self.begin(&machine).id
        let settlement = try self.settle(&machine, deliveries[0], in: id)
        _ = try self.settle(&machine, deliveries[1], in: id)
        machine.undo(settlement)
        _ = try machine.endTransaction(id, isCommitted: true)
        #expect(machine.subscriptions["s"]?.acks.openCount == 1)
        #expect(try machine.settle(deliveries[0], isAcknowledged: true, in: nil) != nil)
    }

    @Test func transactionWhoseCommitWasNotSentCanBeAborted() throws {
        var machine = try self.machine()
        let delivery = try self.deliver(&machine, 1)
        let id = try self.begin(&machine).id
        _ = try self.settle(&machine, delivery, in: id)
        let ending = try machine.endTransaction(id, isCommitted: true).ending
        #expect(!machine.hasTransaction(id))
        machine.undo(ending)
        #expect(machine.hasTransaction(id))
        #expect(try machine.endTransaction(id, isCommitted: false).frame == STOMPFrame(.abort, ["transaction": id]))
        #expect(try machine.settle(delivery, isAcknowledged: true, in: nil) != nil)
    }

    @Test func transactionWhoseBeginningWasNotSentDoesNotExist() throws {
        var machine = try self.machine()
        let id = try self.begin(&machine).id
        machine.undoBeginning(of: id)
        #expect(!machine.hasTransaction(id))
    }
}
