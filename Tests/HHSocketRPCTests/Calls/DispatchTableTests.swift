// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

@Suite struct DispatchTableTests {
    typealias Table = DispatchTable<Int, Never>

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

    @Test func callsWaitingForAConnectionAreSentByPriorityAndThenInOrder() {
        var table = DispatchTable<String, Never>(maximumInFlight: 100, maximumWaiting: 100, maximumTombstones: 0)
        table.linkIsConnecting()
        for (name, priority) in [("a", 0.5), ("b", 0.25), ("c", 0.75), ("d", 0.5), ("e", 1)] as [(String, Float)] {
            _ = table.submit(name, FramePriority(rawValue: priority), deadline: .distantFuture)
        }
        table.linkIsReady(ConnectionID(number: 1))
        var order = ""
        while let next = table.nextWaiting() { order += next.call }
        #expect(order == "ecadb")
    }

    @Test func callsThatNoLongerWaitLeaveOnlyAFewStubs() {
        var table = DispatchTable<Int, Never>(maximumInFlight: 100, maximumWaiting: 100, maximumTombstones: 0)
        table.linkIsConnecting()
        for number in 0..<10_000 {
            guard case .wait(let key) = table.submit(number, deadline: .distantFuture) else { return }
            #expect(table.remove(key)?.call == number)
            #expect(table.lineLength <= 70)
        }
        #expect(table.waitingCount == 0)
    }

    @Test func callThatWasNeverInFlightAndMayNotWaitIsRefusedOffline() throws {
        var table = self.readyTable()
        guard case .send(let key, _) = table.submit(1, deadline: self.at(8)) else { return #expect(Bool(false)) }
        table.queued(key)
        _ = table.endAttempt(key)
        _ = table.linkWasLost(ConnectionID(number: 1))
        guard case .refuse(.offline) = table.attemptAgain(key, isPatient: false, isReturning: false) else {
            return #expect(Bool(false))
        }
        guard case .wait = table.attemptAgain(key, isPatient: true, isReturning: false) else {
            return #expect(Bool(false))
        }
    }

    /// Otherwise each loss of a connection would visit as many entries as there ever were calls at once.
    @Test func entriesOfABurstAreReleasedAndTheirKeysNameNothing() throws {
        var table = self.readyTable(maximumInFlight: 100_000)
        var keys: [DispatchKey] = []
        for number in 0..<10_000 {
            guard case .send(let key, _) = table.submit(number, deadline: self.at(8)) else { continue }
            keys.append(key)
        }
        #expect(keys.count == 10_000)
        #expect(table.linkWasLost(ConnectionID(number: 1)).count == 10_000)
        for key in keys { table.remove(key) }
        #expect(table.linkWasLost(ConnectionID(number: 1)).isEmpty)
        #expect(table.entryCount == 0)
        #expect(table.alarmCount == 0)
        table.linkIsReady(ConnectionID(number: 2))
        for number in 0..<100 { _ = table.submit(number, deadline: self.at(8)) }
        #expect(table.count == 100)
        for key in keys {
            #expect(table.call(for: key) == nil)
            #expect(table.remove(key) == nil)
        }
        #expect(table.count == 100)
        #expect(table.nextAlarm(now: self.at(7)) == nil)
    }

    /// A call in its light form.
    private final class Kept {
        let number: Int
        private let deinitialized: (Int) -> Void

        init(_ number: Int, _ deinitialized: @escaping (Int) -> Void) {
            self.number = number
            self.deinitialized = deinitialized
        }

        deinit { self.deinitialized(self.number) }
    }

    /// Their memory grows while some have been answered, and some have become calls.
    @Test func lightCallsAreReleasedWhenTheyAreAnsweredWhenTheyBecomeCallsAndWithTheTable() {
        var released: Set<Int> = []
        do {
            var table = DispatchTable<Int, Kept>(maximumInFlight: 100, maximumWaiting: 0, maximumTombstones: 10)
            table.promote = { kept, _, _ in kept.number }
            table.linkIsReady(ConnectionID(number: 1))
            for number in 0..<60 {
                let serial = table.nextSerialToSend()
                table.enterSent(serial: serial, deadline: self.at(8))
                    .initialize(to: Kept(number) { released.insert($0) })
                #expect(serial == UInt32(50 + number))
                guard number % 3 == 0 else { continue }
                guard let place = table.takeAnsweredLight(serial: serial, on: ConnectionID(number: 1)) else {
                    return #expect(Bool(false))
                }
                #expect(place.move().number == number)
                #expect(released.contains(number))
            }
            for number in stride(from: 1, to: 60, by: 3) {
                let serial = UInt32(50 + number)
                let call = table.call(withSerial: serial)
                #expect(call == number)
                #expect(released.contains(number))
                let isLight = table.takeAnsweredLight(serial: serial, on: ConnectionID(number: 1)) != nil
                #expect(!isLight)
            }
            #expect(table.count == 40)
            #expect(released.count == 40)
            let key = table.key { $0.number == 59 }
            let expired = table.nextAlarm(now: self.at(8))
            #expect(key != nil)
            #expect(expired.map { if case .expired = $0 { true } else { false } } == true)
        }
        #expect(released.count == 60)
    }

    @Test func serialsCountFrom50() {
        var table = self.readyTable()
        let serials = (0..<5).compactMap { table.submit($0, deadline: self.at(8)).serial }
        #expect(serials == [50, 51, 52, 53, 54])
    }

    /// Serials of calls that have timed out, and whose late answers may still arrive, do not use up a small range.
    @Test func tombstonesLeaveSerialsForCalls() {
        var table = self.readyTable(serials: 1...10, maximumTombstones: 4_096)
        for number in 0..<100 {
            guard case .send(let key, _) = table.submit(number, deadline: .distantFuture) else {
                Issue.record("call \(number) has no serial")
                return
            }
            #expect(table.remove(key)?.call == number)
        }
    }

    @Test func answerFindsItsCallOnceAndASecondIsADuplicate() {
        var table = self.readyTable()
        _ = table.submit(7, deadline: self.at(8))
        #expect(table.answer(serial: 50).text == "answer 7")
        #expect(table.answer(serial: 50).text == "duplicate")
        #expect(table.answer(serial: 51).text == "unknown")
        #expect(table.answer(serial: 3).text == "unknown")
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
        #expect(table.answer(serial: 50).text == "late")
        #expect(table.answer(serial: 50).text == "duplicate")
    }

    @Test func serialsWrapTo50AndSkipThoseInFlightAndTombstones() {
        var table = self.readyTable(serials: 50...54)
        let keys = (0..<4).compactMap { table.submit($0, deadline: .distantFuture).key }
        #expect(table.answer(serial: 51).text == "answer 1")
        #expect(table.remove(keys[2])?.serial == 52)  // a tombstone
        #expect(table.submit(4, deadline: .distantFuture).serial == 54)
        #expect(table.submit(5, deadline: .distantFuture).serial == 51)
        #expect(table.submit(6, deadline: .distantFuture).refusal == .tooManyInFlight)
        #expect(table.answer(serial: 52).text == "late")
        #expect(table.submit(7, deadline: .distantFuture).serial == 52)
    }

    @Test func moreThanMaximumInFlightAreRefusedAndNotInTheTable() {
        var table = self.readyTable(maximumInFlight: 2)
        _ = table.submit(0, deadline: self.at(8))
        _ = table.submit(1, deadline: self.at(8))
        #expect(table.submit(2, deadline: self.at(8)).refusal == .tooManyInFlight)
        #expect(table.count == 2)
        _ = table.answer(serial: 50)
        #expect(table.submit(3, deadline: self.at(8)).serial == 52)
    }

    @Test func callsThatBackOffTakeRoomFromNewOnes() throws {
        var table = self.readyTable(maximumInFlight: 1, maximumWaiting: 2)
        for number in 0..<3 {
            #expect(table.canSend == true)
            let sent = table.enterSent(number, deadline: self.at(8))
            #expect(table.endAttempt(sent.key) != nil)
            table.backOff(sent.key, until: self.at(4))
        }
        #expect(!table.canSend && !table.hasRoom)
        let key = try #require(table.keys.first)
        #expect(table.remove(key) != nil)
        #expect(table.canSend && table.hasRoom)
    }

    @Test func tombstonesAreBounded() {
        var table = self.readyTable(maximumTombstones: 3)
        for call in 0..<10 {
            if let key = table.submit(call, deadline: self.at(8)).key { _ = table.remove(key) }
        }
        #expect(table.answer(serial: 59).text == "late")
        #expect(table.answer(serial: 57).text == "late")
        #expect(table.answer(serial: 56).text == "duplicate")
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
        #expect(table.nextWaiting()?.call == 1)
        #expect(table.nextWaiting()?.call == 3)
        #expect(table.nextWaiting() == nil)
        #expect(table.inFlightCount == 2)
        #expect(table.waitingCount == 0)
    }

    @Test func callsThatWaitedGoOnWaitingWhileNoMoreMayBeInFlight() {
        var table = Table(maximumInFlight: 2, maximumWaiting: 10, maximumTombstones: 10)
        table.linkIsConnecting()
        for number in 1...4 { _ = table.submit(number, deadline: self.at(8)) }
        table.linkIsReady(ConnectionID(number: 1))
        #expect(table.nextWaiting()?.call == 1)
        #expect(table.nextWaiting()?.call == 2)
        #expect(table.nextWaiting() == nil)
        #expect(table.waitingCount == 2)
        // A new call is not sent before them.
        #expect(table.answer(serial: 50).text == "answer 1")
        #expect(table.canSend == false)
        #expect(table.submit(5, deadline: self.at(8)).refusal == .tooManyInFlight)
        #expect(table.nextWaiting()?.call == 3)
        #expect(table.answer(serial: 51).text == "answer 2")
        #expect(table.answer(serial: 52).text == "answer 3")
        #expect(table.nextWaiting()?.call == 4)
        #expect(table.submit(6, deadline: self.at(8)).serial == 54)
    }

    @Test func lossFailsWhatIsInFlightAndSaysHowFarItGot() {
        var table = self.readyTable()
        _ = table.submit(0, deadline: self.at(8))
        if let key = table.submit(1, deadline: self.at(8)).key { table.queued(key) }
        let lost = table.linkWasLost(ConnectionID(number: 1))
        #expect(Set(lost.map(\.call)) == [0, 1])
        #expect(lost.first { $0.call == 0 }?.phase == .sent)
        #expect(lost.first { $0.call == 1 }?.phase == .queued)
        for attempt in lost { table.remove(attempt.key) }
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
        let leaves = table.willSend(serial: 50, on: ConnectionID(number: 1))
        #expect(!leaves)
        #expect(table.answer(serial: 50).text == "duplicate")
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
            _ = table.answer(serial: serial)
        }
        #expect(table.alarmCount < 200)
        #expect(table.earliestAlarm == self.at(5))
        #expect(table.expire(now: self.at(8))?.call == -1)
        #expect(table.expire(now: self.at(8)) == nil)
    }

    @Test func attemptThatEndsLeavesItsCallWhichIsSentAgainUnderAnotherSerial() {
        var table = self.readyTable()
        guard let key = table.submit(7, deadline: self.at(8)).key else { return }
        #expect(table.receive(serial: 50).text == "answer 7")
        #expect(table.count == 1)
        #expect(table.inFlightCount == 0)
        #expect(table.receive(serial: 50).text == "duplicate")
        table.backOff(key, until: self.at(2))
        #expect(table.nextAlarm(now: self.at(1)).text == nil)
        #expect(table.earliestAlarm == self.at(2))
        #expect(table.nextAlarm(now: self.at(2)).text == "retry 7")
        #expect(table.attempt(key).serial == 51)
        guard case .answer(let attempt) = table.receive(serial: 51) else { return #expect(Bool(false)) }
        #expect(attempt.count == 2)
        #expect(table.remove(key)?.call == 7)
        #expect(table.count == 0)
        #expect(table.nextAlarm(now: self.at(9)).text == nil)
    }

    /// An older connection may still answer a call under a serial that is in use again.
    @Test func answerOfAnotherConnectionCompletesNoCall() {
        var table = self.readyTable()
        guard table.submit(7, deadline: self.at(8)).serial == 50 else { return #expect(Bool(false)) }
        let other = ConnectionID(number: 2)
        #expect(table.receive(serial: 50, on: other).text == "unknown")
        let taken = table.takeAnswered(serial: 50, on: other, keeping: false)
        #expect(taken == nil)
        #expect(table.count == 1 && table.inFlightCount == 1)
        let answered = table.takeAnswered(serial: 50, on: ConnectionID(number: 1), keeping: false)
        #expect(answered == 7)
        #expect(table.count == 0 && table.inFlightCount == 0)
    }

    @Test func deadlineEndsABackOff() {
        var table = self.readyTable()
        guard let key = table.submit(7, deadline: self.at(8)).key, table.endAttempt(key)?.phase == .sent else { return }
        table.backOff(key, until: self.at(20))
        #expect(table.nextAlarm(now: self.at(8)).text == "expired 7")
        #expect(table.nextAlarm(now: self.at(20)).text == nil)
        #expect(table.receive(serial: 50).text == "late")
    }

    @Test func answerThatDoesNotBeginInTimeEndsItsAttempt() {
        var table = self.readyTable()
        for call in 0..<3 { _ = table.submit(call, deadline: self.at(8)) }
        for serial in UInt32(50)...52 { table.expectFirstResponse(serial: serial, by: self.at(1)) }
        let began = table.responseBegins(serial: 51)
        #expect(began == 1)
        #expect(table.receive(serial: 52).text == "answer 2")
        #expect(table.nextAlarm(now: self.at(1)).text == "no first response 0")
        #expect(table.nextAlarm(now: self.at(7)).text == nil)
        #expect(table.receive(serial: 50).text == "late")
        #expect(table.receive(serial: 51).text == "answer 1")
    }

    @Test func callThatWaitsAgainHasOnePlaceInLine() {
        var table = DispatchTable<String, Never>(maximumInFlight: 100, maximumWaiting: 100, maximumTombstones: 0)
        table.linkIsConnecting()
        guard case .wait(let first) = table.submit("a", deadline: .distantFuture),
            case .wait = table.submit("b", deadline: .distantFuture)
        else { return }
        #expect(table.endAttempt(first)?.phase == .waiting)
        #expect(table.waitingCount == 1)
        _ = table.attempt(first)
        table.setPriority(.high, first)
        table.setPriority(.low, first)
        #expect(table.waitingCount == 2)
        table.linkIsReady(ConnectionID(number: 1))
        #expect(table.nextWaiting()?.call == "b")
        #expect(table.nextWaiting()?.call == "a")
        #expect(table.nextWaiting()?.call == nil)
        #expect(table.inFlightCount == 2)
    }

    @Test func alarmsOfACallThatIsSentAgainAndAgainAreSwept() {
        var table = self.readyTable()
        guard let key = table.submit(7, deadline: self.at(8)).key else { return }
        for number in 1...10_000 {
            _ = table.endAttempt(key)
            table.backOff(key, until: self.start + .microseconds(Int64(number)))
            guard case .retry = table.nextAlarm(now: self.start + .microseconds(Int64(number))),
                let serial = table.attempt(key).serial
            else { return #expect(Bool(false)) }
            table.expectFirstResponse(serial: serial, by: self.at(5))
        }
        #expect(table.alarmCount < 200)
        #expect(table.nextAlarm(now: self.at(5)).text == "no first response 7")
    }

    // MARK: A connection whose server is about to end

    @Test func sentCallsAreAnsweredAndNoOthersAreSentAfterAGoAway() {
        var table = self.readyTable()
        _ = table.submit(0, deadline: self.at(8))
        guard let unsent = table.submit(1, deadline: self.at(8)).key else { return }
        table.queued(unsent)
        let left = table.linkGoesAway()
        #expect(left.map(\.call) == [1] && left.map(\.phase) == [.queued])
        #expect(table.phase(of: unsent) == .idle)
        #expect(table.canSend == false)
        #expect(table.willSend(serial: 51, on: ConnectionID(number: 1)) == false)
        guard case .wait = table.attemptAgain(unsent, isReturning: false) else { return #expect(Bool(false)) }
        #expect(table.submit(2, deadline: self.at(8)).serial == nil)
        #expect(table.nextWaiting() == nil)
        #expect(table.answer(serial: 50).text == "answer 0")
        #expect(table.linkGoesAway().isEmpty, "once")
        table.linkIsReady(ConnectionID(number: 2))
        #expect(table.nextWaiting()?.call == 1)
        #expect(table.nextWaiting()?.call == 2)
    }

    @Test func callsThatAreSentAgainLeaveBeforeNewOnesOfTheirPriorityAndInTheirOrder() {
        var table = self.readyTable()
        let keys = (0..<3).compactMap { table.submit($0, deadline: self.at(8)).key }
        _ = table.linkGoesAway()
        _ = table.submit(3, deadline: self.at(8))
        _ = table.submit(4, .high, deadline: self.at(8))
        for (index, key) in keys.enumerated() {
            _ = table.receive(serial: UInt32(50 + index))
            _ = table.attemptAgain(key, isReturning: true)
        }
        table.linkIsReady(ConnectionID(number: 2))
        var order: [Int] = []
        while let next = table.nextWaiting() {
            order.append(next.call)
            #expect(next.count == 1, "it counts as the attempt before")
        }
        #expect(order == [4, 0, 1, 2, 3])
    }

    @Test func callsThatAreSentAgainWaitHoweverManyDoAndWhereNoAttemptIsInProgress() {
        var table = self.readyTable(maximumWaiting: 1)
        let keys = (0..<3).compactMap { table.submit($0, deadline: self.at(8)).key }
        _ = table.linkGoesAway()
        for (index, key) in keys.enumerated() {
            _ = table.receive(serial: UInt32(50 + index))
            guard case .wait = table.attemptAgain(key, isReturning: true) else { return #expect(Bool(false)) }
        }
        #expect(table.waitingCount == 3)
        #expect(table.submit(3, deadline: self.at(8)).refusal == .queueFull)
        #expect(table.linkWasLost(ConnectionID(number: 1)).isEmpty)
        #expect(table.linkIsOffline().isEmpty)
        #expect(Set(table.linkIsOffline(isForGood: true).map(\.call)) == [0, 1, 2])
        #expect(table.waitingCount == 0)
    }

    @Test func queuedCallsComeBackInTheirOrderWhenSerialsHaveWrapped() {
        var table = self.readyTable(serials: 50...57)
        for call in 0..<6 {
            _ = table.submit(call, deadline: self.at(8))
            _ = table.answer(serial: UInt32(50 + call))
        }
        for call in 10..<15 {
            if let key = table.submit(call, deadline: self.at(8)).key { table.queued(key) }
        }
        #expect(table.linkGoesAway().map(\.call) == [10, 11, 12, 13, 14])
        #expect(table.inFlightCount == 0)
    }

    @Test func lateAnswersOfAConnectionThatIsLeftAreKnownWhenItHasASuccessor() {
        var table = self.readyTable()
        guard let key = table.submit(0, deadline: self.at(8)).key else { return }
        table.remove(key)
        _ = table.linkGoesAway()
        table.linkIsReady(ConnectionID(number: 2))
        #expect(table.answer(serial: 50).text == "late")
    }

    @Test func finalEndEndsWaitingCallsAndThoseInABackOff() {
        var table = Table(maximumInFlight: 10, maximumWaiting: 10, maximumTombstones: 10)
        _ = table.submit(0, isPatient: true, deadline: self.at(8))
        let idle = table.enter(1, deadline: self.at(8))
        let backingOff = table.enter(2, deadline: self.at(8))
        table.backOff(backingOff, until: self.at(1))
        #expect(table.linkIsOffline().isEmpty)
        #expect(Set(table.linkIsOffline(isForGood: true).map(\.call)) == [0, 2])
        #expect(table.phase(of: idle) == .idle)
        #expect(table.nextAlarm(now: self.at(1)).text == nil)
    }
}

extension DispatchTable<Int, Never>.Submission {
    fileprivate var key: DispatchKey? {
        switch self {
        case .send(let key, _), .wait(let key): key
        case .refuse: nil
        }
    }

    fileprivate var serial: UInt32? {
        if case .send(_, let serial) = self { serial } else { nil }
    }

    fileprivate var refusal: DispatchTable<Int, Never>.Refusal? {
        if case .refuse(let refusal) = self { refusal } else { nil }
    }
}

extension DispatchTable<Int, Never>.Reception {
    fileprivate var text: String {
        switch self {
        case .answer(let attempt): "answer \(attempt.call)"
        case .late: "late"
        case .duplicate: "duplicate"
        case .unknown: "unknown"
        }
    }
}

extension DispatchTable<Int, Never> {
    /// Acts as ``receive(serial:on:isFinal:)``, with an answer on the first connection.
    fileprivate mutating func receive(serial: UInt32) -> Reception {
        self.receive(serial: serial, on: ConnectionID(number: 1))
    }

    /// Acts as ``receive(serial:)``, with an answer that completes the call.
    fileprivate mutating func answer(serial: UInt32) -> Reception {
        let reception = self.receive(serial: serial)
        if case .answer(let attempt) = reception { self.remove(attempt.key) }
        return reception
    }

    fileprivate mutating func expire(now: NIODeadline) -> Attempt? {
        guard case .expired(let attempt) = self.nextAlarm(now: now) else { return nil }
        return attempt
    }
}

extension DispatchTable<Int, Never>.Alarm? {
    fileprivate var text: String? {
        switch self {
        case .expired(let attempt): "expired \(attempt.call)"
        case .noFirstResponse(let attempt): "no first response \(attempt.call)"
        case .retry(_, let call): "retry \(call)"
        case nil: nil
        }
    }
}

extension DispatchTable {
    /// Adds a new call with its first attempt; a rejected one is not in the table.
    fileprivate mutating func submit(
        _ call: Call,
        _ priority: FramePriority = .default,
        bytes: Int = 0,
        isPatient: Bool = false,
        deadline: NIODeadline
    ) -> Submission {
        let key = self.enter(call, deadline: deadline)
        let submission = self.attempt(key, priority, bytes: bytes, isPatient: isPatient)
        if case .refuse = submission { self.remove(key) }
        return submission
    }
}
