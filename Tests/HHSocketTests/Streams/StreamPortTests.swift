// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// What the application's side of a stream shares with its connection, in random histories: each accepted item is sent
/// once and in order unless it was withdrawn, no visit is missed, each sender is resumed once, and every charge ends.
@Suite(.timeLimit(.minutes(5))) struct StreamPortTests {
    @Test func randomHistoriesKeepEveryPromise() {
        for seed in 0..<UInt64(historyCount) {
            guard let broken = PortWorld.run(seed: seed, nil) else { continue }
            Issue.record("seed \(seed): \(broken)")
            return
        }
    }

    @Test(arguments: PortFlaw.allCases)
    func flawsAreFound(_ flaw: PortFlaw) {
        let found = (0..<UInt64(2_000)).contains { PortWorld.run(seed: $0, flaw) != nil }
        #expect(found, "\(flaw) is not found")
    }

    @Test func anItemIsSentOrCompressedByThePolicyOfTheConnection() {
        let port = StreamPort(inbox: Inbox(.items(detaching: .behind), account: nil), account: nil, largestRoom: 1_000)
        let (short, long) = (ByteBuffer(repeating: 1, count: 10), ByteBuffer(repeating: 1, count: 100))
        // Before the opening nothing is known of the connection.
        #expect(port.put(long, isCompressed: nil) {} == .wait(ticket: 1))
        port.open(compression: CompressionPolicy(minimumLength: 50, level: 3), allowance: 1_000)
        #expect(port.put(short, isCompressed: nil) {} == .proceed)
        #expect(port.put(long, isCompressed: nil) {} == .compress(level: 3))
        #expect(port.put(long, isCompressed: true) {} == .proceed)
        port.finish {}
        #expect(port.put(short, isCompressed: nil) {} == .finished)
        port.end { _ in }
        #expect(port.put(short, isCompressed: nil) {} == .over)
    }
}

/// A mistake of the connection, or of the account.
enum PortFlaw: CaseIterable {
    case aVisitIsLost
    case unblockingIsForgotten
    case theLastItemIsLost
    case aReleaseIsLost
    case endForgetsSenders
}

/// A port, and a connection that accepts items as it likes.
private struct PortWorld {
    /// Accepts items until it has no place.
    private struct Machine: ItemMachine {
        var room = 0
        var allowance: UInt64 = 0
        var sent: [Int] = []
        var taken = ItemReceipt()

        mutating func send(_ id: StreamID, _ payload: ByteBuffer, isCompressed: Bool) -> SendResult {
            self.sent.append(payload.getInteger(at: payload.readerIndex) ?? -1)
            self.room -= 1
            return self.room > 0 ? .proceed : .wait
        }

        mutating func took(_ id: StreamID, _ receipt: ItemReceipt, now: NIODeadline) { self.taken += receipt }
        func allowance(_ id: StreamID) -> UInt64 { self.allowance }
    }

    private final class Account: LinkAccount {
        let bytes = NIOLockedValueBox(0)
        let isFlawed: Bool

        init(isFlawed: Bool) { self.isFlawed = isFlawed }

        func held(_ change: Int) {
            if !self.isFlawed || change > -100 { self.bytes.withLockedValue { $0 += change } }
        }

        func counts(_ change: Int, of resource: Resource) {}
        func hasRoom(forLast bytes: Int) -> Bool { true }
        func condemn() {}
        var pauseInLongUnits: TimeAmount? { nil }
    }

    private let id: StreamID
    private let flaw: PortFlaw?
    private let account: Account
    private let port: StreamPort
    private var random: SeededGenerator
    private var machine = Machine()
    private var isVisitDue = false
    private var isBlocked = false
    private var last = 0
    /// The accepted items that were not withdrawn.
    private var accepted: [Int] = []
    /// The senders that wait, by their tickets, with their items.
    private var waiting: [UInt64: Int] = [:]
    private let resumed = NIOLockedValueBox<[UInt64]>([])

    private init(seed: UInt64, _ flaw: PortFlaw?) {
        var streams = ClientStreams()
        self.id = streams.open(type: 1, serial: 50, kind: .bidirectional, now: .uptimeNanoseconds(0))
        self.flaw = flaw
        self.random = SeededGenerator(seed: seed)
        self.account = Account(isFlawed: flaw == .aReleaseIsLost)
        self.port = StreamPort(
            inbox: Inbox(.items(detaching: .all), account: nil),
            account: self.account,
            freeItem: 50,
            largestRoom: 1_000
        )
        self.machine.room = 3
        self.machine.allowance = 500
        self.port.open(compression: nil, allowance: 500)
    }

    static func run(seed: UInt64, _ flaw: PortFlaw?) -> String? {
        var world = PortWorld(seed: seed, flaw)
        for step in 0..<Int.random(in: 1...80, using: &world.random) {
            if let broken = world.step() { return "step \(step): \(broken)" }
        }
        return world.end()
    }

    private mutating func step() -> String? {
        switch Int.random(in: 0..<10, using: &self.random) {
        case 0..<4: return self.put()
        case 4: self.withdraw()
        case 5: self.take()
        case 6, 7: self.visit()
        case 8: self.accept()
        default: self.machine.allowance = [0, 60, 500, 5_000][Int.random(in: 0..<4, using: &self.random)]
        }
        return self.difference
    }

    private mutating func put() -> String? {
        self.last += 1
        var payload = ByteBuffer(integer: self.last)
        payload.writeRepeatingByte(0, count: [0, 100, 400][Int.random(in: 0..<3, using: &self.random)])
        let mayWait = Bool.random(using: &self.random)
        switch self.port.put(payload, isCompressed: false, mayWait: mayWait, visit: { self.isVisitDue = true }) {
        case .proceed: self.accepted.append(self.last)
        case .wait(let ticket):
            guard mayWait else { return "an item waits that must not" }
            self.accepted.append(self.last)
            let waits = self.port.awaitRoom(
                .handler { [resumed] _ in resumed.withLockedValue { $0.append(ticket) } },
                ticket: ticket
            )
            if waits { self.waiting[ticket] = self.last }
        case .full: if mayWait { return "an item was not accepted" }
        case .compress, .finished, .over: return "an item was refused"
        }
        return self.difference
    }

    private mutating func withdraw() {
        let tickets = self.waiting.keys.sorted()
        guard let ticket = tickets.randomElement(using: &self.random), let item = self.waiting[ticket] else { return }
        if case .handler(let handler)? = self.port.withdraw(ticket) { handler(nil) }
        if !self.machine.sent.contains(item) { self.accepted.removeAll { $0 == item } }
    }

    private mutating func take() {
        let receipt = ItemReceipt(cost: 16, lastCost: 16, ByteBuffer())
        let charge = Int.random(in: 0...300, using: &self.random)
        self.port.took(receipt, holding: charge) { self.isVisitDue = true }
    }

    private mutating func visit() {
        guard self.isVisitDue else { return }
        self.isVisitDue = false
        if self.flaw == .aVisitIsLost, self.last % 4 == 0 { return }
        self.settle()
    }

    private mutating func settle() {
        let settled = self.port.settle(self.id, &self.machine, now: .uptimeNanoseconds(0)) { sender in
            if case .handler(let handler) = sender { handler(nil) }
        }
        if self.flaw == .theLastItemIsLost, settled.count > 1 { self.machine.sent.removeLast() }
        if self.machine.room <= 0 { self.isBlocked = true }
    }

    /// The connection accepts items again.
    private mutating func accept() {
        guard self.isBlocked else { return }
        self.isBlocked = false
        self.machine.room = Int.random(in: 1...4, using: &self.random)
        if self.flaw == .unblockingIsForgotten, self.last % 4 == 0 { return }
        self.port.unblock()
        self.settle()
    }

    private var difference: String? {
        guard self.accepted.starts(with: self.machine.sent) else {
            return "sent: \(self.machine.sent), and should be a part of \(self.accepted)"
        }
        let resumed = self.resumed.withLockedValue { $0 }
        guard Set(resumed).count == resumed.count else { return "a sender was resumed twice: \(resumed)" }
        return nil
    }

    /// The stream ends, mostly after the connection has accepted everything.
    private mutating func end() -> String? {
        if Int.random(in: 0..<4, using: &self.random) > 0, let broken = self.drain() { return broken }
        self.port.holdNothing(isForGood: true)
        let flaw = self.flaw
        self.port.end { sender in
            if flaw != .endForgetsSenders, case .handler(let handler) = sender { handler(nil) }
        }
        let charge = self.account.bytes.withLockedValue { $0 }
        guard charge == 0 else { return "\(charge) bytes are charged at the end" }
        let resumed = self.resumed.withLockedValue { Set($0) }
        guard resumed == Set(self.waiting.keys) else { return "resumed: \(resumed), and waited: \(self.waiting.keys)" }
        return self.difference
    }

    private mutating func drain() -> String? {
        for _ in 0...self.last {
            self.visit()
            self.accept()
        }
        guard self.machine.sent == self.accepted else {
            return "sent: \(self.machine.sent), and should be \(self.accepted)"
        }
        return self.port.hasWaitingSender && !self.isBlocked ? "a sender waits, and there is room" : nil
    }
}
