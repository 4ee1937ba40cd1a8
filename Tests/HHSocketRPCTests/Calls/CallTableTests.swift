// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

/// A call that is its own flight, and keeps nothing.
private struct Named<Name>: TableCall {
    let name: Name

    init(_ name: Name) {
        self.name = name
    }

    var keeps: Bool { false }
    var existingFlight: Name? { self.name }

    func makeFlight(_: CallFacts, kept: UnsafeMutablePointer<Never>, key: DispatchKey, deadline: NIODeadline) -> Name {
        self.name
    }
}

@Suite struct CallTableTests {
    private typealias Table = CallTable<Named<Int>>

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
        var table = CallTable<Named<String>>(maximumInFlight: 100, maximumWaiting: 100, maximumTombstones: 0)
        table.linkIsConnecting()
        for (name, priority) in [("a", 0.5), ("b", 0.25), ("c", 0.75), ("d", 0.5), ("e", 1)] as [(String, Float)] {
            _ = table.submit(name, FramePriority(rawValue: priority), deadline: .distantFuture)
        }
        table.linkIsReady(ConnectionID(number: 1))
        var order = ""
        while let next = table.nextWaiting() { order += next.flight }
        #expect(order == "ecadb")
    }

    @Test func callsThatNoLongerWaitBecomeOnlyAFewStubs() {
        var table = Table(maximumInFlight: 100, maximumWaiting: 100, maximumTombstones: 0)
        table.linkIsConnecting()
        for number in 0..<10_000 {
            guard case .wait(let key) = table.submit(number, deadline: .distantFuture) else { return }
            #expect(table.remove(key)?.flight == number)
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
            #expect(table.flight(for: key) == nil)
            #expect(table.remove(key) == nil)
        }
        #expect(table.count == 100)
        #expect(table.nextAlarm(now: self.at(7)) == nil)
    }

    // MARK: Calls without a flight

    /// An object that a call keeps beside it in the table.
    private final class Kept {
        let number: Int
        private let deinitialized: (Int) -> Void

        init(_ number: Int, _ deinitialized: @escaping (Int) -> Void) {
            self.number = number
            self.deinitialized = deinitialized
        }

        deinit { self.deinitialized(self.number) }
    }

    /// The flight of a call.
    private struct Flight {
        var number: Int
        var facts: CallFacts
        var key: DispatchKey
        var deadline: NIODeadline
    }

    /// A call that keeps its object until it has a flight, if it keeps one at all.
    private enum Form: ~Copyable, TableCall {
        case keeping
        case bare(Int)
        case flying(Flight)

        var keeps: Bool {
            switch self {
            case .keeping: true
            case .bare: false
            case .flying: false
            }
        }

        var existingFlight: Flight? {
            switch self {
            case .flying(let flight): flight
            case .keeping: nil
            case .bare: nil
            }
        }

        var bareNumber: Int? {
            switch self {
            case .bare(let number): number
            case .keeping: nil
            case .flying: nil
            }
        }

        mutating func makeFlight(
            _ facts: CallFacts,
            kept: UnsafeMutablePointer<Kept>,
            key: DispatchKey,
            deadline: NIODeadline
        ) -> Flight {
            let number = self.bareNumber ?? kept.move().number
            let flight = Flight(number: number, facts: facts, key: key, deadline: deadline)
            self = .flying(flight)
            return flight
        }
    }

    private func readyForms() -> CallTable<Form> {
        var table = CallTable<Form>(maximumInFlight: 1_000, maximumWaiting: 0, maximumTombstones: 10)
        table.linkIsReady(ConnectionID(number: 1))
        return table
    }

    /// The memory beside the entries grows while some calls have been answered, and some have a flight.
    @Test func keptObjectsAreReleasedByAnswersByFlightsAndWithTheTable() throws {
        var released: Set<Int> = []
        do {
            var table = self.readyForms()
            for number in 0..<60 {
                let serial = table.nextSerialToSend()
                #expect(serial == UInt32(50 + number))
                let facts = CallFacts(identifier: 1_000 + number, queued: self.at(1), sent: self.at(2))
                let key = table.enterSent(.keeping, facts, serial: serial, deadline: self.at(8))
                table.slot(of: key).initialize(to: Kept(number) { released.insert($0) })
                let kept = table.kept(serial: serial, on: ConnectionID(number: 1))?.pointee.number
                #expect(kept == number)
                guard number % 3 == 0 else { continue }
                guard let answered = table.takeAnswered(serial: serial, on: ConnectionID(number: 1)) else {
                    return #expect(Bool(false))
                }
                let found = answered.facts
                #expect(found.identifier == 1_000 + number && found.queued == self.at(1) && found.sent == self.at(2))
                #expect(released.contains(number))
            }
            for number in stride(from: 1, to: 60, by: 3) {
                let serial = UInt32(50 + number)
                let key = table.key(withIdentifier: 1_000 + number)
                let made = table.flight(for: try #require(key))
                let flight = try #require(made)
                #expect(flight.number == number && flight.facts.identifier == 1_000 + number)
                #expect(released.contains(number))
                let isThere = table.contains(flight.key)
                let isKept = table.kept(serial: serial, on: ConnectionID(number: 1)) != nil
                #expect(flight.deadline == self.at(8) && isThere && !isKept)
            }
            #expect(table.count == 40)
            #expect(released.count == 40)
            let (found, answered) = (table.key(withIdentifier: 1_059), table.key(withIdentifier: 1_000))
            #expect(answered == nil)
            let removed = table.remove(try #require(found))
            #expect(removed?.flight.number == 59 && removed?.phase == .sent)
            #expect(released.count == 41)
        }
        #expect(released.count == 60)
    }

    /// Everything that happens to most calls is recorded in their facts.
    @Test func flightIsMadeOnceAndOnlyWhenItIsNeeded() throws {
        var table = self.readyForms()
        var serials: [UInt32] = []
        for number in 0..<4 {
            serials.append(table.nextSerialToSend())
            let deadline = self.at(8 + Int64(number))
            _ = table.enterSent(.bare(number), CallFacts(), serial: serials[number], deadline: deadline)
        }
        for serial in serials {
            let sent = table.withCall(serial: serial, on: ConnectionID(number: 1)) { call, facts in
                facts.sent = self.at(3)
                return call.bareNumber
            }
            let began = table.responseBegins(serial: serial, on: ConnectionID(number: 1)) { call, facts in
                facts.firstByte = self.at(4)
                return call.bareNumber
            }
            #expect(sent == .some(Int(serial) - 50) && began == .some(Int(serial) - 50))
        }
        let other = ConnectionID(number: 2)
        let isOthers = table.takeAnswered(serial: 50, on: other) != nil
        let flight = table.endAnswered(serial: 50, on: other)
        #expect(!isOthers && flight == nil)
        // Answered, without a flight.
        guard let answered = table.takeAnswered(serial: 50, on: ConnectionID(number: 1)) else {
            return #expect(Bool(false))
        }
        let facts = answered.facts
        #expect(facts.sent == self.at(3) && facts.firstByte == self.at(4))
        let number = answered.take().bareNumber
        #expect(number == 0)
        // Answered, and kept in the table.
        let ended = table.endAnswered(serial: 51, on: ConnectionID(number: 1))
        let kept = try #require(ended)
        #expect(kept.number == 1 && kept.facts.sent == self.at(3) && kept.facts.firstByte == self.at(4))
        #expect(table.phase(of: kept.key) == .idle)
        let changed = table.withCall(kept.key) { call, facts in
            facts.identifier = 7
            return call.existingFlight?.facts.identifier
        }
        #expect(changed == .some(0), "the flight has the facts of the moment in which it was made")
        table.remove(kept.key)
        // Expired.
        guard case .expired(let expired) = table.nextAlarm(now: self.at(10)) else { return #expect(Bool(false)) }
        #expect(expired.flight.number == 2 && expired.count == 1)
        // Lost.
        let lost = table.linkWasLost(ConnectionID(number: 1))
        #expect(lost.map(\.flight.number) == [3] && lost.map(\.phase) == [.sent])
        #expect(table.count == 1)
    }

    @Test func serialsCountFrom50() {
        var table = self.readyTable()
        let serials = (0..<5).compactMap { table.submit($0, deadline: self.at(8)).serial }
        #expect(serials == [50, 51, 52, 53, 54])
    }

    /// Serials of calls that have timed out, and whose late answers may still arrive, do not use up a small range.
    @Test func tombstonesSpareSerialsForCalls() {
        var table = self.readyTable(serials: 1...10, maximumTombstones: 4_096)
        for number in 0..<100 {
            guard case .send(let key, _) = table.submit(number, deadline: .distantFuture) else {
                Issue.record("call \(number) has no serial")
                return
            }
            #expect(table.remove(key)?.flight == number)
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
        #expect(expired?.flight == 7)
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
            let serial = table.nextSerialToSend()
            let key = table.enterSent(Named(number), CallFacts(), serial: serial, deadline: self.at(8))
            #expect(table.endAttempt(key) != nil)
            table.backOff(key, until: self.at(4))
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

    @Test func callsWaitForAnAttemptInProgressAndAreSentInOrder() {
        var table = Table(maximumInFlight: 10, maximumWaiting: 3, maximumTombstones: 10)
        #expect(table.submit(0, deadline: self.at(8)).refusal == .offline)
        table.linkIsConnecting()
        let keys = (1...3).compactMap { table.submit($0, deadline: self.at(8)).key }
        #expect(keys.count == 3)
        #expect(table.submit(4, deadline: self.at(8)).refusal == .queueFull)
        #expect(table.nextWaiting() == nil)
        #expect(table.remove(keys[1])?.phase == .waiting)
        table.linkIsReady(ConnectionID(number: 1))
        #expect(table.nextWaiting()?.flight == 1)
        #expect(table.nextWaiting()?.flight == 3)
        #expect(table.nextWaiting() == nil)
        #expect(table.inFlightCount == 2)
        #expect(table.waitingCount == 0)
    }

    @Test func callsThatWaitedContinueWaitingWhileNoMoreMayBeInFlight() {
        var table = Table(maximumInFlight: 2, maximumWaiting: 10, maximumTombstones: 10)
        table.linkIsConnecting()
        for number in 1...4 { _ = table.submit(number, deadline: self.at(8)) }
        table.linkIsReady(ConnectionID(number: 1))
        #expect(table.nextWaiting()?.flight == 1)
        #expect(table.nextWaiting()?.flight == 2)
        #expect(table.nextWaiting() == nil)
        #expect(table.waitingCount == 2)
        // A new call is not sent before them.
        #expect(table.answer(serial: 50).text == "answer 1")
        #expect(table.canSend == false)
        #expect(table.submit(5, deadline: self.at(8)).refusal == .tooManyInFlight)
        #expect(table.nextWaiting()?.flight == 3)
        #expect(table.answer(serial: 51).text == "answer 2")
        #expect(table.answer(serial: 52).text == "answer 3")
        #expect(table.nextWaiting()?.flight == 4)
        #expect(table.submit(6, deadline: self.at(8)).serial == 54)
    }

    @Test func lossFailsWhatIsInFlightAndSaysHowFarItGot() {
        var table = self.readyTable()
        _ = table.submit(0, deadline: self.at(8))
        if let key = table.submit(1, deadline: self.at(8)).key { table.queued(key) }
        let lost = table.linkWasLost(ConnectionID(number: 1))
        #expect(Set(lost.map(\.flight)) == [0, 1])
        #expect(lost.first { $0.flight == 0 }?.phase == .sent)
        #expect(lost.first { $0.flight == 1 }?.phase == .queued)
        for attempt in lost { table.remove(attempt.key) }
        #expect(table.count == 0)
        table.linkIsConnecting()
        table.linkIsReady(ConnectionID(number: 1))
        #expect(table.submit(2, deadline: self.at(8)).serial == 52)
    }

    @Test func queuedFrameOfAGoneCallIsNotSentAndBuriesNoSerial() {
        var table = self.readyTable()
        guard let key = table.submit(0, deadline: self.at(8)).key else { return }
        table.queued(key)
        #expect(table.remove(key)?.phase == .queued)
        let isSent = table.willSend(serial: 50, on: ConnectionID(number: 1))
        #expect(!isSent)
        #expect(table.answer(serial: 50).text == "duplicate")
    }

    @Test func keyOfAGoneCallNamesNothingAfterItsSlotIsTakenAgain() {
        var table = self.readyTable()
        guard let old = table.submit(0, deadline: self.at(8)).key else { return }
        #expect(table.remove(old)?.flight == 0)
        _ = table.submit(1, deadline: self.at(8))
        #expect(table.remove(old) == nil)
        #expect(table.flight(for: old) == nil)
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
        #expect(table.expire(now: self.at(8))?.flight == -1)
        #expect(table.expire(now: self.at(8)) == nil)
    }

    @Test func attemptThatEndsKeepsItsCallWhichIsSentAgainUnderAnotherSerial() {
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
        #expect(table.remove(key)?.flight == 7)
        #expect(table.count == 0)
        #expect(table.nextAlarm(now: self.at(9)).text == nil)
    }

    /// An older connection may still answer a call under a serial that is in use again.
    @Test func answerOfAnotherConnectionCompletesNoCall() {
        var table = self.readyTable()
        guard table.submit(7, deadline: self.at(8)).serial == 50 else { return #expect(Bool(false)) }
        let other = ConnectionID(number: 2)
        #expect(table.receive(serial: 50, on: other).text == "unknown")
        let isTaken = table.takeAnswered(serial: 50, on: other) != nil
        #expect(!isTaken)
        // Nor does its progress count.
        let isSent = table.willSend(serial: 50, on: other)
        let found = table.withCall(serial: 50, on: other) { call, _ in call.name }
        table.expectFirstResponse(serial: 50, on: other, by: self.at(1))
        let began = table.responseBegins(serial: 50, on: other) { call, _ in call.name }
        #expect(!isSent && found == nil && began == nil)
        let isAwaited = table.isAwaited(serial: 50, on: ConnectionID(number: 1))
        let isAwaitedThere = table.isAwaited(serial: 50, on: other)
        #expect(isAwaited && !isAwaitedThere)
        #expect(table.nextAlarm(now: self.at(1)).text == nil)
        #expect(table.count == 1 && table.inFlightCount == 1)
        let answered = table.takeAnswered(serial: 50, on: ConnectionID(number: 1))?.take().name
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
        let first = ConnectionID(number: 1)
        for call in 0..<3 { _ = table.submit(call, deadline: self.at(8)) }
        for serial in UInt32(50)...52 { table.expectFirstResponse(serial: serial, on: first, by: self.at(1)) }
        let began = table.responseBegins(serial: 51, on: first) { call, _ in call.name }
        #expect(began == 1)
        #expect(table.receive(serial: 52).text == "answer 2")
        #expect(table.nextAlarm(now: self.at(1)).text == "no first response 0")
        #expect(table.nextAlarm(now: self.at(7)).text == nil)
        #expect(table.receive(serial: 50).text == "late")
        #expect(table.receive(serial: 51).text == "answer 1")
    }

    @Test func callThatWaitsAgainIsInLineOnce() {
        var table = CallTable<Named<String>>(maximumInFlight: 100, maximumWaiting: 100, maximumTombstones: 0)
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
        #expect(table.nextWaiting()?.flight == "b")
        #expect(table.nextWaiting()?.flight == "a")
        #expect(table.nextWaiting()?.flight == nil)
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
            table.expectFirstResponse(serial: serial, on: ConnectionID(number: 1), by: self.at(5))
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
        #expect(left.map(\.flight) == [1] && left.map(\.phase) == [.queued])
        #expect(table.phase(of: unsent) == .idle)
        #expect(table.canSend == false)
        #expect(table.willSend(serial: 51, on: ConnectionID(number: 1)) == false)
        guard case .wait = table.attemptAgain(unsent, isReturning: false) else { return #expect(Bool(false)) }
        #expect(table.submit(2, deadline: self.at(8)).serial == nil)
        #expect(table.nextWaiting() == nil)
        #expect(table.answer(serial: 50).text == "answer 0")
        #expect(table.linkGoesAway().isEmpty, "once")
        table.linkIsReady(ConnectionID(number: 2))
        #expect(table.nextWaiting()?.flight == 1)
        #expect(table.nextWaiting()?.flight == 2)
    }

    @Test func callsThatAreSentAgainGoBeforeNewOnesOfTheirPriorityAndInTheirOrder() {
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
            order.append(next.flight)
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
        #expect(Set(table.linkIsOffline(isForGood: true).map(\.flight)) == [0, 1, 2])
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
        #expect(table.linkGoesAway().map(\.flight) == [10, 11, 12, 13, 14])
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
        let idle = table.enter(Named(1), deadline: self.at(8))
        let backingOff = table.enter(Named(2), deadline: self.at(8))
        table.backOff(backingOff, until: self.at(1))
        #expect(table.linkIsOffline().isEmpty)
        #expect(Set(table.linkIsOffline(isForGood: true).map(\.flight)) == [0, 2])
        #expect(table.phase(of: idle) == .idle)
        #expect(table.nextAlarm(now: self.at(1)).text == nil)
    }
}

extension CallTable<Named<Int>>.Submission {
    fileprivate var key: DispatchKey? {
        switch self {
        case .send(let key, _), .wait(let key): key
        case .refuse: nil
        }
    }

    fileprivate var serial: UInt32? {
        if case .send(_, let serial) = self { serial } else { nil }
    }

    fileprivate var refusal: CallTable<Named<Int>>.Refusal? {
        if case .refuse(let refusal) = self { refusal } else { nil }
    }
}

extension CallTable<Named<Int>>.Reception {
    fileprivate var text: String {
        switch self {
        case .answer(let attempt): "answer \(attempt.flight)"
        case .late: "late"
        case .duplicate: "duplicate"
        case .unknown: "unknown"
        }
    }
}

extension CallTable<Named<Int>> {
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

extension CallTable<Named<Int>>.Alarm? {
    fileprivate var text: String? {
        switch self {
        case .expired(let attempt): "expired \(attempt.flight)"
        case .noFirstResponse(let attempt): "no first response \(attempt.flight)"
        case .retry(_, let flight): "retry \(flight)"
        case nil: nil
        }
    }
}

extension CallTable {
    /// Adds a new call with its first attempt; a rejected one is not in the table.
    fileprivate mutating func submit<Name>(
        _ name: Name,
        _ priority: FramePriority = .default,
        bytes: Int = 0,
        isPatient: Bool = false,
        deadline: NIODeadline
    ) -> Submission where Call == Named<Name> {
        let key = self.enter(Named(name), deadline: deadline)
        let submission = self.attempt(key, priority, bytes: bytes, isPatient: isPatient)
        if case .refuse = submission { self.remove(key) }
        return submission
    }
}
