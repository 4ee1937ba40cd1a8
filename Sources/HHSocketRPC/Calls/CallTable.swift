// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// The identity of one call in a ``CallTable``; invalid once that call has been removed.
typealias DispatchKey = SlotKey

/// The facts of a call that every entry has room for: plain values, which are copied out and written back.
struct CallFacts {
    /// The number by which the call can be cancelled; 0 for none.
    var identifier = 0
    /// The time at which a call that is sent at once was accepted.
    var queued = NIODeadline.distantPast
    /// The time at which its sending began.
    var sent = NIODeadline.distantPast
    /// The time at which the first byte of an answer arrived that comes in several reads.
    var firstByte = NIODeadline.distantPast
}

/// A call as a ``CallTable`` has it: its entry.
protocol TableCall: ~Copyable {
    /// The contents of the memory beside the entry, such as the request. Some calls fill it, and know whether they do.
    associatedtype Kept
    /// The part of a call that most calls never need.
    associatedtype Flight

    /// Whether the memory beside the entry is filled.
    var keeps: Bool { get }

    /// The flight, if it has been made.
    var existingFlight: Flight? { get }

    /// Makes the flight of a call that was sent at once, which takes over everything that the entry has; then nothing
    /// is kept any more.
    mutating func makeFlight(
        _ facts: CallFacts,
        kept: UnsafeMutablePointer<Kept>,
        key: DispatchKey,
        deadline: NIODeadline
    ) -> Flight
}

/// A table of every call between its start and its completion. A call completes when it is removed from the table,
/// which can happen only once.
///
/// A call is sent in one attempt, or in several in succession. It stays in the table when an attempt ends:
/// ``remove(_:)`` removes it, ``backOff(_:until:)`` and ``attempt(_:_:bytes:isPatient:)`` continue it.
///
/// Decides which calls are sent, wait or fail, which answer belongs to which call, and which deadlines have passed. It
/// has no clock and no I/O. The table keeps the phases and attempts of calls; a ``SlotTable`` has their entries,
/// ``Serials`` those in flight, an ``AlarmHeap`` the times, and ``DrainCounts`` the connections that end after their
/// last call.
///
/// The entry is the call: `Call` is moved into it, and moved out by its answer (``takeAnswered(serial:on:)``). Every
/// other event requires its ``TableCall/Flight``, which is made when it is first needed.
struct CallTable<Call: TableCall & ~Copyable>: ~Copyable {
    typealias Flight = Call.Flight
    private typealias Alarms = AlarmHeap<NIODeadline, DispatchKey>

    /// The number of slots kept even if they hold no call.
    private static var slotsKept: Int { 1_024 }

    private let maximumInFlight: Int
    private let maximumWaiting: Int

    private(set) var link = LinkState.offline
    /// The connection that calls are sent on, or were sent on last.
    private(set) var connection = CallTable.noConnection
    private var calls = SlotTable<Entry>()
    /// The memory beside the entries, at their indices. Not in them: an entry would be copied with it.
    private var kept = Slots<Call.Kept>()
    /// The serials of calls in flight, which lead to the indices of their entries.
    private var serials: Serials
    private var alarms = Alarms()
    /// Calls that wait for a connection.
    private var waiting: Line
    private var drains = DrainCounts()
    /// Whether new calls may be sent at once; if not, the owner refuses them.
    var takesCalls = true

    init(
        serialRange: ClosedRange<UInt32> = FrameSerial.firstRequest...UInt32.max,
        maximumInFlight: Int,
        maximumWaiting: Int,
        maximumWaitingBytes: Int = .max,
        maximumTombstones: Int
    ) {
        self.maximumInFlight = maximumInFlight
        self.maximumWaiting = maximumWaiting
        self.waiting = Line(maximumCount: maximumWaiting, maximumBytes: maximumWaitingBytes)
        self.serials = Serials(serialRange, maximumTombstones: maximumTombstones)
    }

    deinit {
        for index in self.calls.indices where self.calls.hasElement(at: index) && self.calls[index].keeps {
            self.kept[Int(index)].deinitialize(count: 1)
        }
    }

    /// The number of entries held, including those without a call.
    var entryCount: Int { self.calls.indices.count }

    /// The number of calls in the table.
    var count: Int { self.calls.count }

    /// The number of calls in flight.
    var inFlightCount: Int { self.serials.inFlightCount }

    /// Whether there is room for one more call, whatever the states of the others.
    var hasRoom: Bool { self.count - self.maximumInFlight < self.maximumWaiting }

    // MARK: Calls

    /// Adds a new call, without an attempt yet.
    mutating func enter(_ call: consuming Call, identifier: Int = 0, deadline: NIODeadline) -> DispatchKey {
        let key = self.calls.insert(Entry(call, CallFacts(identifier: identifier), deadline: deadline))
        self.addAlarm(deadline, key)
        return key
    }

    /// Releases the memory of a burst of calls once the table is empty. Otherwise every loss of a connection would scan
    /// as many entries as there were concurrent calls at the peak.
    private mutating func shrink() {
        guard self.calls.releaseMemory(keeping: Self.slotsKept) else { return }
        self.kept = Slots()
        self.alarms = Alarms()
        self.waiting.removeStubs()
    }

    /// Whether a new call can be sent at once: the connection is ready, there is room and a serial, and no call waits.
    var canSend: Bool {
        self.link == .ready && self.waitingCount == 0 && self.hasSerial && self.takesCalls && self.hasRoom
    }

    /// Adds a new call and begins its first attempt. Requires ``canSend``. A call that keeps anything must be given it
    /// at ``slot(of:)`` before the table is used again.
    ///
    /// - Parameter serial: The serial that ``nextSerialToSend()`` has just returned.
    @inline(__always)
    mutating func enterSent(
        _ call: consuming Call,
        _ facts: CallFacts,
        serial: UInt32,
        deadline: NIODeadline
    ) -> DispatchKey {
        let key = self.calls.insert(Entry(call, facts, deadline: deadline))
        self.join(key.index, serial)
        self.addAlarm(deadline, key)
        return key
    }

    /// The memory beside an entry.
    @inline(__always)
    mutating func slot(of key: DispatchKey) -> UnsafeMutablePointer<Call.Kept> {
        Self.reserve(key.index, in: &self.kept, self.calls)
        return self.kept[Int(key.index)]
    }

    /// Makes room beside an entry. The entries are borrowed, while the memory is mutated.
    @inline(__always)
    private static func reserve(
        _ index: UInt32,
        in kept: inout Slots<Call.Kept>,
        _ calls: borrowing SlotTable<Entry>
    ) {
        kept.reserve(Int(index)) { calls.hasElement(at: UInt32($0)) && calls[UInt32($0)].keeps }
    }

    /// The serial of a call that is sent before it is entered. Requires ``canSend``.
    mutating func nextSerialToSend() -> UInt32 { self.serials.issue() }

    /// Begins the first or next attempt of a call in the table without an attempt in progress.
    ///
    /// - Parameters:
    ///   - bytes: The number of bytes that the call holds while it waits.
    ///   - isPatient: Whether it waits even if no attempt to connect is in progress.
    mutating func attempt(
        _ key: DispatchKey,
        _ priority: FramePriority = .default,
        bytes: Int = 0,
        isPatient: Bool = false
    ) -> Submission {
        if self.link == .ready {
            // Calls that waited for the connection are sent first.
            guard self.waitingCount == 0, let serial = self.takeSerial() else { return .refuse(.tooManyInFlight) }
            self.join(key.index, serial)
            return .send(key, serial: serial)
        }
        if let refusal = self.refusal(bytes: bytes, isPatient: isPatient) { return .refuse(refusal) }
        self.enqueue(key, priority, bytes: bytes, isPatient: isPatient)
        return .wait(key)
    }

    /// Repeats the previous attempt of a call in the table without an attempt in progress: the server did not run it
    /// because it is shutting down, or the request was never sent. Since it was in flight, it may wait whatever the
    /// limits, and even if no attempt to connect is in progress.
    ///
    /// - Parameters:
    ///   - isPatient: Whether it waits even if no attempt to connect is in progress, and whatever the limits; true
    ///     unless it was never in flight.
    ///   - isReturning: Whether it is sent before calls of its priority that have never been sent.
    mutating func attemptAgain(
        _ key: DispatchKey,
        _ priority: FramePriority = .default,
        bytes: Int = 0,
        isPatient: Bool = true,
        isReturning: Bool
    ) -> Submission {
        self.calls[key.index].repeatsAttempt()
        if self.link == .ready, let serial = self.takeSerial() {
            self.join(key.index, serial)
            return .send(key, serial: serial)
        }
        if !isPatient, let refusal = self.refusal(bytes: bytes, isPatient: false) { return .refuse(refusal) }
        self.enqueue(key, priority, bytes: bytes, isPatient: isPatient, isReturning: isReturning)
        return .wait(key)
    }

    /// The reason why a call cannot wait for a connection; nil if it can.
    private func refusal(bytes: Int, isPatient: Bool) -> Refusal? {
        guard isPatient || self.link == .connecting || self.link == .goingAway else { return .offline }
        return self.waiting.hasRoom(for: bytes) ? nil : .queueFull
    }

    /// Keeps a call without an attempt until `time`, when ``nextAlarm(now:)`` returns it.
    mutating func backOff(_ key: DispatchKey, until time: NIODeadline) {
        guard self.contains(key) else { return }
        self.calls[key.index].phase = .backingOff
        self.setAlarm(time, key)
    }

    // MARK: The line for a connection

    /// Puts the call in line for a connection.
    private mutating func enqueue(
        _ key: DispatchKey,
        _ priority: FramePriority,
        bytes: Int,
        isPatient: Bool,
        isReturning: Bool = false
    ) {
        self.calls[key.index].wait(bytes: bytes, isPatient: isPatient, isReturning: isReturning)
        self.waiting.append(key, priority, in: &self.calls)
    }

    /// Moves a waiting call behind the others of this priority.
    mutating func setPriority(_ priority: FramePriority, _ key: DispatchKey) {
        if self.phase(of: key) == .waiting { self.waiting.move(key, to: priority, in: &self.calls) }
    }

    /// The number of tickets in line, including stubs.
    var lineLength: Int { self.waiting.length }

    /// The number of calls that wait for a connection.
    var waitingCount: Int { self.waiting.count }
    /// The size of the waiting calls, in bytes.
    var waitingBytes: Int { self.waiting.bytes }

    /// Begins the attempt of the next waiting call, if the connection is ready: its phase is `sent`, and it has a
    /// serial. Nil if none waits, or if no more calls may be in flight.
    mutating func nextWaiting() -> Attempt? {
        guard self.link == .ready, self.hasSerial, self.waiting.length > 0,
            let key = self.waiting.popFirst(self.calls)
        else { return nil }
        self.calls[key.index].bytes = 0
        self.join(key.index, self.serials.issue())
        return self.attempt(at: key.index)
    }

    // MARK: Progress

    /// Moves the deadline of a call.
    mutating func setDeadline(_ deadline: NIODeadline, _ key: DispatchKey) {
        guard self.calls.with(key, { $0.deadline = deadline }) != nil else { return }
        self.addAlarm(deadline, key)
    }

    /// Records that the frame of this call was queued.
    mutating func queued(_ key: DispatchKey) {
        self.calls.with(key) { $0.phase = .queued }
    }

    /// Records that a queued frame is about to be sent on this connection.
    ///
    /// - Returns: False if the frame must not be sent, because its call has been removed or is sent on another
    ///   connection.
    mutating func willSend(serial: UInt32, on connection: ConnectionID) -> Bool {
        guard let index = self.index(serial, on: connection) else { return false }
        self.calls[index].phase = .sent
        return true
    }

    /// The result of `body` for the call that waits for the answer to this serial on this connection; nil if there is
    /// none. `body` must not use the table.
    @inline(__always)
    mutating func withCall<Result>(
        serial: UInt32,
        on connection: ConnectionID,
        _ body: (borrowing Call, inout CallFacts) -> Result
    ) -> Result? {
        guard let index = self.index(serial, on: connection) else { return nil }
        return self.withCall(at: index, body)
    }

    /// The filled memory beside the call that waits for the answer to this serial on this connection; nil if there is
    /// none.
    func kept(serial: UInt32, on connection: ConnectionID) -> UnsafeMutablePointer<Call.Kept>? {
        guard let index = self.index(serial, on: connection), self.calls[index].keeps else { return nil }
        return self.kept[Int(index)]
    }

    /// Whether a call waits for the answer to this serial on this connection.
    func isAwaited(serial: UInt32, on connection: ConnectionID) -> Bool { self.index(serial, on: connection) != nil }

    /// Sets the deadline by which the answer must begin, once the whole request with this serial has been sent on this
    /// connection.
    mutating func expectFirstResponse(serial: UInt32, on connection: ConnectionID, by deadline: NIODeadline) {
        guard let index = self.index(serial, on: connection) else { return }
        self.setAlarm(deadline, self.calls.key(at: index))
    }

    /// Records that the answer to this serial has begun on this connection, and returns the result of `body` for its
    /// call; nil if there is none.
    @inline(__always)
    mutating func responseBegins<Result>(
        serial: UInt32,
        on connection: ConnectionID,
        _ body: (borrowing Call, inout CallFacts) -> Result
    ) -> Result? {
        guard let index = self.index(serial, on: connection) else { return nil }
        self.calls[index].alarm = .distantFuture
        return self.withCall(at: index, body)
    }

    /// Classifies an answer, and ends the attempt that it is for.
    ///
    /// - Parameters:
    ///   - connection: The connection that brought it.
    ///   - isFinal: Whether a correct server sends nothing more for this serial.
    mutating func receive(serial: UInt32, on connection: ConnectionID, isFinal: Bool = true) -> Reception {
        guard let index = self.serials[serial] else {
            return Reception(self.serials.received(unawaited: serial, isFinal: isFinal))
        }
        guard self.calls[index].connection == connection,
            let attempt = self.end(index, keepsTombstone: !isFinal)
        else { return .unknown }
        return .answer(attempt)
    }

    /// Ends the attempt that `serial` answers, and removes its call, which completes it. Nil if no call waits for the
    /// answer; ``receive(serial:on:isFinal:)`` gives the reason.
    ///
    /// - Parameter connection: The connection that brought the answer.
    @inline(__always)
    mutating func takeAnswered(serial: UInt32, on connection: ConnectionID) -> Answered? {
        guard let index = self.endAnswered(index: serial, on: connection) else { return nil }
        return self.release(index)
    }

    /// Ends the attempt that `serial` answers, and returns the flight of its call, which stays in the table. Nil like
    /// ``takeAnswered(serial:on:)``.
    mutating func endAnswered(serial: UInt32, on connection: ConnectionID) -> Flight? {
        guard let index = self.endAnswered(index: serial, on: connection) else { return nil }
        self.calls[index].end()
        return self.flight(at: index)
    }

    /// The key of the call with this identifier; nil if there is none. Searches the whole table.
    func key(withIdentifier identifier: Int) -> DispatchKey? {
        self.calls.indices.first { self.calls.hasElement(at: $0) && self.calls[$0].facts.identifier == identifier }
            .map { self.calls.key(at: $0) }
    }

    /// Ends the unanswered attempt of a call, which stays in the table.
    mutating func endAttempt(_ key: DispatchKey) -> Attempt? {
        self.contains(key) ? self.end(key.index, keepsTombstone: true) : nil
    }

    /// Removes a call, which completes it, and ends its attempt in progress.
    @discardableResult
    mutating func remove(_ key: DispatchKey) -> Attempt? {
        guard let attempt = self.endAttempt(key) else { return nil }
        _ = self.release(key.index)
        return attempt
    }

    /// Resets the number of the call's attempts.
    mutating func resetAttempts(_ key: DispatchKey) {
        self.calls.with(key) { $0.attempts = 0 }
    }

    // MARK: Time

    /// Removes and returns the next alarm that is due.
    mutating func nextAlarm(now: NIODeadline) -> Alarm? {
        while let alarm = self.alarms.popDue(now: now) {
            let key = alarm.key
            guard Self.isWanted(alarm, self.calls) else { continue }
            if self.calls[key.index].deadline <= now {
                guard let expired = self.remove(key) else { continue }
                return .expired(expired)
            }
            self.calls[key.index].alarm = .distantFuture
            switch self.calls[key.index].phase {
            case .backingOff:
                self.calls[key.index].phase = .idle
                if let flight = self.flight(at: key.index) { return .retry(key, flight) }
            case .sent:
                if let attempt = self.endAttempt(key) { return .noFirstResponse(attempt) }
            case .waiting, .queued, .idle:
                break
            }
        }
        return nil
    }

    /// The number of alarms held, including stale ones.
    var alarmCount: Int { self.alarms.count }

    /// The time of the earliest alarm, which may be stale.
    var earliestAlarm: NIODeadline? { self.alarms.first?.time }

    /// Removes stale alarms from the front, so that ``earliestAlarm`` is not stale.
    mutating func dropStaleAlarms() {
        Self.dropStale(&self.alarms, self.calls)
    }

    private mutating func setAlarm(_ time: NIODeadline, _ key: DispatchKey) {
        self.calls[key.index].alarm = time
        self.addAlarm(time, key)
    }

    private mutating func addAlarm(_ time: NIODeadline, _ key: DispatchKey) {
        guard time < .distantFuture else { return }
        if self.alarms.isCrowded(owners: self.count) { Self.sweep(&self.alarms, self.calls) }
        self.alarms.insert(time, key)
    }

    // The entries are borrowed, while the alarms are mutated.

    private static func sweep(_ alarms: inout Alarms, _ calls: borrowing SlotTable<Entry>) {
        alarms.sweep { Self.isWanted($0, calls) }
    }

    private static func dropStale(_ alarms: inout Alarms, _ calls: borrowing SlotTable<Entry>) {
        alarms.dropFirst { Self.isWanted($0, calls) }
    }

    private static func isWanted(_ alarm: Alarms.Alarm, _ calls: borrowing SlotTable<Entry>) -> Bool {
        calls.contains(alarm.key) && calls[alarm.key.index].isWaiting(until: alarm.time)
    }

    /// The keys of every call in the table.
    var keys: [DispatchKey] { self.calls.keys { _ in true } }

    // MARK: The link

    mutating func linkIsConnecting() {
        if self.link == .offline { self.link = .connecting }
    }

    /// Sends calls on this connection from now on. If another was ready, ``linkGoesAway(_:)`` must be called next.
    mutating func linkIsReady(_ connection: ConnectionID) {
        // A new connection brings no answers to a lost one's calls.
        if self.link != .ready, self.link != .goingAway { self.serials.removeTombstones() }
        self.link = .ready
        self.connection = connection
    }

    /// Stops sending calls on the ready connection. Requests that were sent may still be answered.
    ///
    /// - Returns: The attempts that had not been sent, oldest first. They have ended.
    mutating func linkGoesAway() -> [Attempt] {
        guard self.link == .ready else { return [] }
        self.link = .goingAway
        let connection = self.connection
        return self.endAll { $0.isInFlight && $0.phase == .queued && $0.connection == connection }
            .sorted { self.serials.age(of: $0.serial ?? 0) > self.serials.age(of: $1.serial ?? 0) }
    }

    /// Begins to drain a connection that has a successor.
    mutating func linkGoesAway(_ connection: ConnectionID) {
        let inFlight = self.calls.keys { $0.isInFlight && $0.connection == connection }.count
        self.drains.begin(connection, inFlight: inFlight)
    }

    /// Whether ``nextDrained()`` returns a connection.
    var hasDrained: Bool { self.drains.hasDrained }

    /// Removes and returns a drained connection: one with a successor and with nothing in flight.
    mutating func nextDrained() -> ConnectionID? { self.drains.nextDrained() }

    /// Ends and returns the attempts in flight on a connection that was lost.
    mutating func linkWasLost(_ connection: ConnectionID) -> [Attempt] {
        if connection == self.connection { self.link = .offline }
        self.drains.connectionWasLost(connection)
        self.shrink()
        return self.endAll { $0.isInFlight && $0.connection == connection }
    }

    /// Ends and returns the attempts that waited for a connection, since no attempt to connect is in progress.
    ///
    /// - Parameter isForGood: Whether none will be made automatically. Then patient attempts end too, and those that
    ///   back off.
    mutating func linkIsOffline(isForGood: Bool = false) -> [Attempt] {
        self.link = .offline
        return self.endAll {
            switch $0.phase {
            case .waiting: isForGood || !$0.isPatient
            case .backingOff: isForGood
            case .queued, .sent, .idle: false
            }
        }
    }

    private mutating func endAll(where predicate: (borrowing Entry) -> Bool) -> [Attempt] {
        var attempts: [Attempt] = []
        for key in self.calls.keys(where: predicate) {
            if let attempt = self.end(key.index, keepsTombstone: false) { attempts.append(attempt) }
        }
        return attempts
    }

    // MARK: Pieces

    private mutating func join(_ index: UInt32, _ serial: UInt32) {
        self.calls[index].join(serial, self.connection)
        self.serials.set(serial, index)
    }

    /// The flight of a call; nil if it has been removed.
    mutating func flight(for key: DispatchKey) -> Flight? { self.contains(key) ? self.flight(at: key.index) : nil }

    /// The result of `body` for a call; nil if it has been removed.
    mutating func withCall<Result>(_ key: DispatchKey, _ body: (borrowing Call, inout CallFacts) -> Result) -> Result? {
        self.contains(key) ? self.withCall(at: key.index, body) : nil
    }

    /// Whether a call is in the table.
    func contains(_ key: DispatchKey) -> Bool { self.calls.contains(key) }

    @inline(__always)
    private mutating func withCall<Result>(
        at index: UInt32,
        _ body: (borrowing Call, inout CallFacts) -> Result
    ) -> Result? {
        // Copied, since the call is borrowed from the same entry.
        var facts = self.calls[index].facts
        defer { self.calls[index].facts = facts }
        switch self.calls[index].call {
        case .some(let call): return body(call, &facts)
        case .none: return nil
        }
    }

    /// The flight of the call at this index, which is made if there is none.
    private mutating func flight(at index: UInt32) -> Flight? {
        if let flight = self.calls[index].existingFlight { return flight }
        let key = self.calls.key(at: index)
        let (facts, deadline, kept) = (self.calls[index].facts, self.calls[index].deadline, self.slot(of: key))
        return self.calls[index].call?.makeFlight(facts, kept: kept, key: key, deadline: deadline)
    }

    /// The index of the call with this serial in flight on this connection. The serial of a call on another connection
    /// may have been that of a call on this one.
    @inline(__always)
    private func index(_ serial: UInt32, on connection: ConnectionID) -> UInt32? {
        guard let index = self.serials[serial], self.calls[index].connection == connection else { return nil }
        return index
    }

    /// Ends the attempt with this serial in flight on this connection, and returns the index of its call.
    @inline(__always)
    private mutating func endAnswered(index serial: UInt32, on connection: ConnectionID) -> UInt32? {
        guard let index = self.index(serial, on: connection) else { return nil }
        self.serials.remove(serial)
        self.hasLeft(connection)
        return index
    }

    /// Moves a call out of the table, and releases what it kept.
    @inline(__always)
    private mutating func release(_ index: UInt32) -> Answered? {
        let facts = self.calls[index].facts
        guard let call = self.calls[index].call.take() else { return nil }
        if call.keeps { self.kept[Int(index)].deinitialize(count: 1) }
        self.calls.vacate(index)
        return Answered(call: call, facts: facts)
    }

    /// The phase of a call; nil if it has been removed.
    func phase(of key: DispatchKey) -> Phase? { self.contains(key) ? self.calls[key.index].phase : nil }

    private mutating func attempt(at index: UInt32) -> Attempt? {
        guard let flight = self.flight(at: index) else { return nil }
        let hasSerial = self.calls[index].isInFlight
        return Attempt(
            key: self.calls.key(at: index),
            flight: flight,
            phase: self.calls[index].phase,
            serial: hasSerial ? self.calls[index].serial : nil,
            connection: hasSerial ? self.calls[index].connection : Self.noConnection,
            count: Int(self.calls[index].attempts)
        )
    }

    /// Ends the attempt of a call, which becomes idle.
    private mutating func end(_ index: UInt32, keepsTombstone: Bool) -> Attempt? {
        guard let attempt = self.attempt(at: index) else { return nil }
        self.calls[index].end()
        if attempt.phase == .waiting {
            self.waiting.makeStub(bytes: self.calls[index].bytes, in: self.calls)
            self.calls[index].bytes = 0
        }
        guard let serial = attempt.serial else { return attempt }
        if keepsTombstone, attempt.phase == .sent { self.serials.bury(serial) } else { self.serials.remove(serial) }
        self.hasLeft(attempt.connection)
        return attempt
    }

    /// Records that a call in flight on this connection has ended.
    @inline(__always)
    private mutating func hasLeft(_ connection: ConnectionID) {
        if connection != self.connection { self.drains.callEnded(on: connection) }
    }

    /// Whether there is a serial for one more call, and one more may be in flight.
    private var hasSerial: Bool { self.serials.inFlightCount < self.maximumInFlight && self.serials.hasFree }

    private mutating func takeSerial() -> UInt32? { self.hasSerial ? self.serials.issue() : nil }
}
