import HHSocket
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

@Suite struct DispatchTableTests {
    typealias Table = DispatchTable<Int>

    let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)
    private func at(_ seconds: Int64) -> NIODeadline { self.start + .seconds(seconds) }

    private func readyTable(
        serials: ClosedRange<UInt32> = 50...UInt32.max,
        maximumInFlight: Int = 1_000,
        maximumWaiting: Int = 1_000,
        maximumTombstones: Int = 100
    ) -> Table {
        var table = Table(
            serialRange: serials,
            maximumInFlight: maximumInFlight,
            maximumWaiting: maximumWaiting,
            maximumTombstones: maximumTombstones
        )
        table.linkIsConnecting()
        table.linkIsReady(ConnectionID(number: 1))
        return table
    }

    @Test func whoWaitsForAConnectionLeavesByPriorityAndThenInOrder() {
        var table = DispatchTable<String>(maximumInFlight: 100, maximumWaiting: 100, maximumTombstones: 0)
        table.linkIsConnecting()
        for (name, priority) in [("a", 0.5), ("b", 0.25), ("c", 0.75), ("d", 0.5), ("e", 1)] as [(String, Float)] {
            _ = table.submit(name, FramePriority(rawValue: priority), deadline: .distantFuture)
        }
        table.linkIsReady(ConnectionID(number: 1))
        var order = ""
        while let next = table.nextWaiting() { order += next.removedOrSent.call }
        #expect(order == "ecadb")
    }

    @Test func whoNoLongerWaitsLeavesNoMoreThanAFewStubs() {
        var table = DispatchTable<Int>(maximumInFlight: 100, maximumWaiting: 100, maximumTombstones: 0)
        table.linkIsConnecting()
        for number in 0..<10_000 {
            guard case .wait(let key) = table.submit(number, deadline: .distantFuture) else { return }
            #expect(table.remove(key)?.call == number)
            #expect(table.lineLength <= 70)
        }
        #expect(table.waitingCount == 0)
    }

    @Test func serialsCountFrom50() {
        var table = self.readyTable()
        let serials = (0..<5).compactMap { table.submit($0, deadline: self.at(8)).serial }
        #expect(serials == [50, 51, 52, 53, 54])
    }

    @Test func answerFindsItsCallOnceAndASecondIsADuplicate() {
        var table = self.readyTable()
        _ = table.submit(7, deadline: self.at(8))
        #expect(table.receive(serial: 50).text == "answer 7")
        #expect(table.receive(serial: 50).text == "duplicate")
        #expect(table.receive(serial: 51).text == "unknown")
        #expect(table.receive(serial: 3).text == "unknown")
        #expect(table.count == 0)
    }

    @Test func lateResponseAfterTimeoutIsKnownAsLateOnce() {
        var table = self.readyTable()
        _ = table.submit(7, deadline: self.at(8))
        #expect(table.expire(now: self.at(7)) == nil)
        let expired = table.expire(now: self.at(8))
        #expect(expired?.call == 7)
        #expect(expired?.serial == 50)
        #expect(expired?.phase == .sent)
        #expect(table.expire(now: self.at(9)) == nil)
        #expect(table.receive(serial: 50).text == "late")
        #expect(table.receive(serial: 50).text == "duplicate")
    }

    @Test func serialsWrapTo50AndSkipThoseInFlightAndTombstones() {
        var table = self.readyTable(serials: 50...54)
        let keys = (0..<4).compactMap { table.submit($0, deadline: .distantFuture).key }
        #expect(table.receive(serial: 51).text == "answer 1")
        #expect(table.remove(keys[2])?.serial == 52)  // a tombstone
        #expect(table.submit(4, deadline: .distantFuture).serial == 54)
        #expect(table.submit(5, deadline: .distantFuture).serial == 51)
        #expect(table.submit(6, deadline: .distantFuture).refusal == .tooManyInFlight)
        #expect(table.receive(serial: 52).text == "late")
        #expect(table.submit(7, deadline: .distantFuture).serial == 52)
    }

    @Test func moreThanMaximumInFlightAreRefusedAndNotInTheTable() {
        var table = self.readyTable(maximumInFlight: 2)
        _ = table.submit(0, deadline: self.at(8))
        _ = table.submit(1, deadline: self.at(8))
        #expect(table.submit(2, deadline: self.at(8)).refusal == .tooManyInFlight)
        #expect(table.count == 2)
        _ = table.receive(serial: 50)
        #expect(table.submit(3, deadline: self.at(8)).serial == 52)
    }

    @Test func tombstonesAreBounded() {
        var table = self.readyTable(maximumTombstones: 3)
        for call in 0..<10 {
            if let key = table.submit(call, deadline: self.at(8)).key { _ = table.remove(key) }
        }
        #expect(table.receive(serial: 59).text == "late")
        #expect(table.receive(serial: 57).text == "late")
        #expect(table.receive(serial: 56).text == "duplicate")
    }

    @Test func callsWaitForAnAttemptInProgressAndLeaveInOrder() {
        var table = Table(maximumInFlight: 10, maximumWaiting: 3, maximumTombstones: 10)
        #expect(table.submit(0, deadline: self.at(8)).refusal == .offline)
        table.linkIsConnecting()
        let keys = (1...3).compactMap { table.submit($0, deadline: self.at(8)).key }
        #expect(keys.count == 3)
        #expect(table.submit(4, deadline: self.at(8)).refusal == .queueFull)
        #expect(table.nextWaiting() == nil)
        #expect(table.remove(keys[1])?.phase == .waiting)
        table.linkIsReady(ConnectionID(number: 1))
        #expect(table.nextWaiting()?.removedOrSent.call == 1)
        #expect(table.nextWaiting()?.removedOrSent.call == 3)
        #expect(table.nextWaiting() == nil)
        #expect(table.inFlightCount == 2)
        #expect(table.waitingCount == 0)
    }

    @Test func lossFailsWhatIsInFlightAndSaysHowFarItGot() {
        var table = self.readyTable()
        _ = table.submit(0, deadline: self.at(8))
        if let key = table.submit(1, deadline: self.at(8)).key { table.queued(key) }
        let lost = table.linkWasLost(ConnectionID(number: 1))
        #expect(Set(lost.map(\.call)) == [0, 1])
        #expect(lost.first { $0.call == 0 }?.phase == .sent)
        #expect(lost.first { $0.call == 1 }?.phase == .queued)
        #expect(table.count == 0)
        table.linkIsConnecting()
        table.linkIsReady(ConnectionID(number: 1))
        #expect(table.submit(2, deadline: self.at(8)).serial == 52)
    }

    @Test func queuedFrameOfAGoneCallDoesNotLeaveAndBuriesNoSerial() {
        var table = self.readyTable()
        guard let key = table.submit(0, deadline: self.at(8)).key else { return }
        table.queued(key)
        #expect(table.remove(key)?.phase == .queued)
        let leaves = table.willLeave(serial: 50)
        #expect(!leaves)
        #expect(table.receive(serial: 50).text == "duplicate")
    }

    @Test func keyOfAGoneCallNamesNothingAfterItsPlaceIsTakenAgain() {
        var table = self.readyTable()
        guard let old = table.submit(0, deadline: self.at(8)).key else { return }
        #expect(table.remove(old)?.call == 0)
        _ = table.submit(1, deadline: self.at(8))
        #expect(table.remove(old) == nil)
        #expect(table.call(for: old) == nil)
    }

    @Test func deadlinesOfAMillionQuickCallsAreSweptAndTheEarliestIsKept() {
        var table = self.readyTable()
        guard table.submit(-1, deadline: self.at(5)).serial == 50 else { return }
        for call in 0..<100_000 {
            guard let serial = table.submit(call, deadline: self.at(8)).serial else { return }
            _ = table.receive(serial: serial)
        }
        #expect(table.deadlineCount < 200)
        #expect(table.earliestDeadline == self.at(5))
        #expect(table.expire(now: self.at(8))?.call == -1)
        #expect(table.expire(now: self.at(8)) == nil)
    }

    /// Every call completes exactly once, whatever happens to it, in whatever order.
    @Test(arguments: 0..<200)
    func everyCallCompletesExactlyOnceInRandomHistories(seed: Int) {
        var generator = SeededGenerator(seed: UInt64(seed))
        var table = Table(serialRange: 50...90, maximumInFlight: 20, maximumWaiting: 5, maximumTombstones: 10)
        var now = self.start
        var completions: [Int: Int] = [:]
        var keys: [Int: DispatchKey] = [:]
        var sentSerials: [UInt32] = []
        var nextCall = 0

        var open = 0
        func complete(_ call: Int) {
            completions[call, default: 0] += 1
            open -= 1
            #expect(completions[call] == 1, "call \(call)")
        }

        for _ in 0..<1_000 {
            now = now + .milliseconds(Int64.random(in: 0...200, using: &generator))
            switch Int.random(in: 0..<14, using: &generator) {
            case 0...4:  // resume
                let call = nextCall
                nextCall += 1
                completions[call] = 0
                open += 1
                let timeout = TimeAmount.milliseconds(Int64.random(in: 0...3_000, using: &generator))
                switch table.submit(call, deadline: now + timeout) {
                case .send(let key, let serial):
                    keys[call] = key
                    sentSerials.append(serial)
                    if Int.random(in: 0..<5, using: &generator) == 0 { table.queued(key) }
                case .wait(let key): keys[call] = key
                case .refuse: complete(call)
                }
            case 5...7:  // a response, perhaps a duplicate or a late one
                let serial = sentSerials.randomElement(using: &generator) ?? 60
                let isFinal = Int.random(in: 0..<8, using: &generator) > 0
                if case .answer(let call) = table.receive(serial: serial, isFinal: isFinal) { complete(call) }
            case 8, 9:  // cancel, perhaps twice, perhaps too late
                guard let (call, key) = keys.randomElement(using: &generator) else { continue }
                if let removed = table.remove(key) {
                    #expect(removed.call == call)
                    complete(call)
                }
            case 10:  // time passes
                while let expired = table.expire(now: now) { complete(expired.call) }
            case 11:
                _ = table.willLeave(serial: sentSerials.randomElement(using: &generator) ?? 60)
            case 12:  // disconnect
                for lost in table.linkWasLost(ConnectionID(number: 1)) { complete(lost.call) }
                if Bool.random(using: &generator) {
                    for waiting in table.linkIsOffline() { complete(waiting.call) }
                }
            default:
                table.linkIsConnecting()
                if Int.random(in: 0..<3, using: &generator) > 0 {
                    table.linkIsReady(ConnectionID(number: 1))
                    while let (next, _) = table.nextWaiting() {
                        if let serial = next.serial { sentSerials.append(serial) } else { complete(next.call) }
                    }
                }
            }
            #expect(open == table.count)
            #expect(table.inFlightCount <= 20 && table.waitingCount <= 5)
        }
        for key in table.keys { if let removed = table.remove(key) { complete(removed.call) } }
        #expect(completions.values.allSatisfy { $0 == 1 })
        #expect(table.count == 0)
    }
}

extension DispatchTable<Int>.Submission {
    fileprivate var key: DispatchKey? {
        switch self {
        case .send(let key, _), .wait(let key): key
        case .refuse: nil
        }
    }

    fileprivate var serial: UInt32? {
        if case .send(_, let serial) = self { serial } else { nil }
    }

    fileprivate var refusal: DispatchTable<Int>.Refusal? {
        if case .refuse(let refusal) = self { refusal } else { nil }
    }
}

extension DispatchTable<Int>.Reception {
    fileprivate var text: String {
        switch self {
        case .answer(let call): "answer \(call)"
        case .late: "late"
        case .duplicate: "duplicate"
        case .unknown: "unknown"
        }
    }
}
