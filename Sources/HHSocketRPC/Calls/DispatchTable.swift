// SPDX-License-Identifier: Apache-2.0
import DequeModule
import HHSocket
import NIOCore

/// The identity of one call in a ``DispatchTable``; invalid once that call has been removed.
struct DispatchKey: Hashable, Sendable {
    fileprivate var index: UInt32
    fileprivate var generation: UInt32
}

/// A table of every call between its start and its completion. A call completes when it is removed from the table,
/// which can happen only once.
///
/// A call is sent in one attempt, or in several in succession. It stays in the table when an attempt ends:
/// ``remove(_:)`` removes it, ``backOff(_:until:)`` and ``attempt(_:_:bytes:isPatient:)`` continue it.
///
/// Decides which calls are sent, wait or fail, which answer belongs to which call, and which deadlines have passed. It
/// has no clock and no I/O. `Call` is any representation of a call; tests use numbers.
///
/// A call to which nothing else refers may be in the table in a light form, `Light`, without an object. Its answer
/// removes it in this form (``takeAnsweredLight(serial:on:)``). Every other event first converts it into a `Call`, so
/// that only code that is the same for both forms has to handle the light one.
struct DispatchTable<Call, Light>: ~Copyable {
    /// Whether calls can be sent now.
    enum LinkState: Sendable {
        case offline, connecting, ready
        /// The connection only finishes calls in flight. Other calls wait for its successor.
        case goingAway
    }

    /// The progress of a call.
    enum Phase: Sendable {
        /// Waits for a connection; has no serial yet.
        case waiting
        /// Queued because the peer does not read; no byte has been sent.
        case queued
        /// Bytes have been sent.
        case sent
        /// Waits for the next attempt.
        case backingOff
        /// No attempt is in progress: the previous one has ended, or the first has not begun.
        case idle
    }

    /// The decision on a call that should be sent.
    enum Submission {
        case send(DispatchKey, serial: UInt32)
        case wait(DispatchKey)
        /// The call stays in the table without an attempt.
        case refuse(Refusal)
    }

    enum Refusal: Hashable, Sendable {
        case offline, tooManyInFlight, queueFull
    }

    /// The classification of an answer.
    enum Reception {
        case answer(Attempt)
        /// Its call timed out or was cancelled before.
        case late
        /// Its call was answered before.
        case duplicate
        /// No call had this serial.
        case unknown
    }

    /// An attempt of a call, with its progress when it began or ended.
    struct Attempt {
        var key: DispatchKey
        var call: Call
        var phase: Phase
        /// The serial of the attempt, if it has one.
        var serial: UInt32?
        /// The connection on which it was sent, if it was.
        var connection = DispatchTable.noConnection
        /// The number of the call's attempts that have reached a connection.
        var count = 0
    }

    /// An event at a point in time.
    enum Alarm {
        /// The call's deadline has passed; it has been removed from the table.
        case expired(Attempt)
        /// An attempt has ended because its answer did not begin in time.
        case noFirstResponse(Attempt)
        /// The back-off is over: the next attempt is due.
        case retry(DispatchKey, Call)
    }

    struct Entry {
        var call: Call?
        /// Whether there is a call in its light form.
        var isLight = false
        var deadline = NIODeadline.distantFuture
        /// The time by which the answer must begin, or at which the back-off ends.
        var alarm = NIODeadline.distantFuture
        var serial: UInt32 = 0
        var generation: UInt32 = 0
        var phase = Phase.idle
        /// Whether it keeps waiting even if no attempt to connect is in progress.
        var isPatient = false
        /// Whether it waits ahead of calls that have never been sent.
        var isReturning = false
        var bytes = 0
        /// The connection on which it was sent.
        var connection = DispatchTable.noConnection
        /// The number of attempts that have reached a connection.
        var attempts = 0
        /// The number of its valid place in line; its earlier places are stubs.
        var place: UInt32 = 0

        var isInFlight: Bool { self.serial != 0 }
        var hasCall: Bool { self.isLight || self.call != nil }

        /// Ends the attempt of the call, which becomes idle.
        mutating func end() {
            self.phase = .idle
            self.alarm = .distantFuture
            self.serial = 0
        }

        /// Releases the call.
        mutating func release() -> Call? {
            self.attempts = 0
            self.generation &+= 1
            // Moved out, not copied.
            var call: Call?
            swap(&call, &self.call)
            return call
        }

        /// Ends the attempt that was answered on its connection, and removes the call unless it is kept.
        mutating func answered(keeping: Bool) -> Call? {
            self.end()
            return keeping ? self.call : self.release()
        }

        /// Ends the attempt of a call in its light form, and removes the call. Returns the connection.
        mutating func endLight() -> ConnectionID {
            self.end()
            self.isLight = false
            self.attempts = 0
            self.generation &+= 1
            return self.connection
        }

        /// Stores a call and returns the generation of its key.
        mutating func enter(_ call: Call, _ deadline: NIODeadline) -> UInt32 {
            self.call = call
            self.deadline = deadline
            return self.generation
        }

        /// Begins an attempt.
        mutating func join(_ serial: UInt32, _ connection: ConnectionID) {
            self.serial = serial
            self.phase = .sent
            self.connection = connection
            self.attempts += 1
        }

        func stands(at place: QueueEntry) -> Bool {
            self.phase == .waiting && self.generation == place.key.generation && self.place == place.number
        }

        func isWaiting(for alarm: DeadlineHeap<DispatchKey>.Element) -> Bool {
            self.generation == alarm.key.generation
                && (self.deadline == alarm.deadline || self.alarm == alarm.deadline)
        }
    }

    /// A call's place in the line for a connection.
    struct QueueEntry {
        var key: DispatchKey
        var number: UInt32
    }

    /// The connection of calls that have not been sent.
    private static var noConnection: ConnectionID { ConnectionID(number: 0) }

    /// The number of entries kept even if they hold no call.
    private static var entriesKept: Int { 1_024 }

    /// The value that marks a tombstone in `serials`.
    private static var tombstone: UInt32 { .max }

    private let serialRange: ClosedRange<UInt32>
    private let serialCount: Int
    private let maximumInFlight: Int
    private let maximumWaiting: Int
    private let maximumTombstones: Int

    private(set) var link = LinkState.offline
    /// The connection that calls are sent on, or were sent on last.
    private var connection = DispatchTable.noConnection
    /// The number of calls in flight on each connection that has a successor.
    private var draining: [ConnectionID: Int] = [:]
    /// The connections with a successor that have nothing left in flight.
    private var drained: [ConnectionID] = []
    private var entries = Slab<Entry>()
    private var free = Slab<UInt32>()
    /// Calls in their light form, at the indices of their entries.
    private var lights = Places<Light>()
    /// Converts a call in its light form, which has been sent, into a `Call`; nil if there are none.
    var promote: ((Light, DispatchKey, _ deadline: NIODeadline) -> Call)?
    /// The generation of new entries.
    private var firstGeneration: UInt32 = 0
    /// Maps serials to the indices of entries, or to `tombstone`.
    private var serials = SerialMap()
    /// The serials with a tombstone, oldest first.
    private var tombstones: Deque<UInt32> = []
    private var nextSerial: UInt32
    private var hasWrapped = false
    private var alarms = DeadlineHeap<DispatchKey>()
    /// Calls that wait for a connection.
    private var waiting: WaitingLine<QueueEntry>
    private(set) var inFlightCount = 0

    init(
        serialRange: ClosedRange<UInt32> = FrameSerial.firstRequest...UInt32.max,
        maximumInFlight: Int,
        maximumWaiting: Int,
        maximumWaitingBytes: Int = .max,
        maximumTombstones: Int
    ) {
        self.serialRange = serialRange
        self.serialCount = Int(serialRange.upperBound - serialRange.lowerBound) + 1
        self.maximumInFlight = maximumInFlight
        self.maximumWaiting = maximumWaiting
        self.waiting = WaitingLine(maximumCount: maximumWaiting, maximumBytes: maximumWaitingBytes)
        // At most half of the serials, so that the others remain for calls.
        self.maximumTombstones = min(maximumTombstones, self.serialCount / 2)
        self.nextSerial = serialRange.lowerBound
    }

    deinit {
        for index in self.entries.indices where self.entries[index].isLight {
            self.lights[index].deinitialize(count: 1)
        }
    }

    /// The number of entries held, including those without a call.
    var entryCount: Int { self.entries.count }

    /// The number of calls in the table.
    var count: Int { self.entries.count - self.free.count }

    /// Whether there is room for one more call, whatever the states of the others.
    var hasRoom: Bool { self.count - self.maximumInFlight < self.maximumWaiting }

    // MARK: Calls

    /// Adds a new call, without an attempt yet.
    mutating func enter(_ call: Call, deadline: NIODeadline) -> DispatchKey {
        let index = self.takeIndex()
        let key = DispatchKey(index: index, generation: self.entries[Int(index)].enter(call, deadline))
        self.addAlarm(deadline, key)
        return key
    }

    /// Returns the index of an entry without a call.
    @inline(__always)
    private mutating func takeIndex() -> UInt32 {
        if let reused = self.free.popLast() { return reused }
        self.entries.append(Entry(generation: self.firstGeneration))
        return UInt32(self.entries.count - 1)
    }

    /// Releases the memory of a burst of calls once the table is empty. Otherwise every loss of a connection would scan
    /// as many entries as there were concurrent calls at the peak.
    private mutating func shrink() {
        guard self.count == 0, self.entries.count > Self.entriesKept else { return }
        // Old keys must not match new entries.
        for index in self.entries.indices {
            self.firstGeneration = max(self.firstGeneration, self.entries[index].generation &+ 1)
        }
        self.entries = Slab()
        self.free = Slab()
        self.lights = Places()
        self.alarms = DeadlineHeap()
        self.waiting.removeStubs()
    }

    /// Whether a new call can be sent at once: the connection is ready, there is room and a serial, and no call waits.
    var canSend: Bool {
        self.link == .ready && self.waitingCount == 0 && self.hasSerial && self.takesCalls && self.hasRoom
    }

    /// Whether new calls may be sent at once; if not, the owner refuses them.
    var takesCalls = true

    /// Adds a new call and begins its first attempt. Requires ``canSend``.
    mutating func enterSent(_ call: Call, deadline: NIODeadline) -> (key: DispatchKey, serial: UInt32) {
        let index = self.takeIndex()
        let key = DispatchKey(index: index, generation: self.entries[Int(index)].enter(call, deadline))
        let serial = self.unusedSerial()
        self.join(key, serial)
        self.addAlarm(deadline, key)
        return (key, serial)
    }

    /// Adds a new call in its light form, and begins its first attempt. Requires ``canSend``.
    ///
    /// - Parameter serial: The serial that ``nextSerialToSend()`` has just returned.
    /// - Returns: The memory of the call, which the caller must initialise before the table is used again.
    mutating func enterSent(serial: UInt32, deadline: NIODeadline) -> UnsafeMutablePointer<Light> {
        let index = self.takeIndex()
        Self.reserve(Int(index), in: &self.lights, self.entries)
        self.entries[Int(index)].isLight = true
        self.entries[Int(index)].deadline = deadline
        let key = DispatchKey(index: index, generation: self.entries[Int(index)].generation)
        self.join(key, serial)
        self.addAlarm(deadline, key)
        return self.lights[Int(index)]
    }

    @inline(__always)
    private static func reserve(_ index: Int, in lights: inout Places<Light>, _ entries: borrowing Slab<Entry>) {
        lights.reserve(index) { $0 < entries.count && entries[$0].isLight }
    }

    /// The serial of a call that is sent before it is entered. Requires ``canSend``.
    mutating func nextSerialToSend() -> UInt32 { self.unusedSerial() }

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
            self.join(key, serial)
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
        self.entries[Int(key.index)].attempts = max(0, self.entries[Int(key.index)].attempts - 1)
        if self.link == .ready, let serial = self.takeSerial() {
            self.join(key, serial)
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

    /// Puts the call in line for a connection.
    private mutating func enqueue(
        _ key: DispatchKey,
        _ priority: FramePriority,
        bytes: Int,
        isPatient: Bool,
        isReturning: Bool = false
    ) {
        self.entries[Int(key.index)].phase = .waiting
        self.entries[Int(key.index)].isPatient = isPatient
        self.entries[Int(key.index)].isReturning = isReturning
        self.entries[Int(key.index)].bytes = bytes
        self.dropStaleWaiting()
        let place = self.nextPlace(of: key)
        self.waiting.append(place, priority, cost: bytes, isReturning: isReturning)
    }

    /// Returns a new place in line for a call. Its earlier places become stubs.
    private mutating func nextPlace(of key: DispatchKey) -> QueueEntry {
        self.entries[Int(key.index)].place &+= 1
        return QueueEntry(key: key, number: self.entries[Int(key.index)].place)
    }

    /// Moves a waiting call behind the others of this priority.
    mutating func setPriority(_ priority: FramePriority, _ key: DispatchKey) {
        guard self.phase(of: key) == .waiting else { return }
        let place = self.nextPlace(of: key)
        self.dropStaleWaiting()
        let entry = self.entries[Int(key.index)]
        self.waiting.appendEntry(place, priority, cost: entry.bytes, isReturning: entry.isReturning)
    }

    /// Keeps a call without an attempt until `time`, when ``nextAlarm(now:)`` returns it.
    mutating func backOff(_ key: DispatchKey, until time: NIODeadline) {
        guard self.contains(key) else { return }
        self.entries[Int(key.index)].phase = .backingOff
        self.setAlarm(time, key)
    }

    private mutating func dropStaleWaiting() {
        Self.dropStubs(of: &self.waiting, self.entries)
    }

    private static func dropStubs(of line: inout WaitingLine<QueueEntry>, _ entries: borrowing Slab<Entry>) {
        line.dropStubs { !entries[Int($0.key.index)].stands(at: $0) }
    }

    /// The number of places in line, including stubs.
    var lineLength: Int { self.waiting.length }

    /// The number of calls that wait for a connection.
    var waitingCount: Int { self.waiting.count }
    /// The size of the waiting calls, in bytes.
    var waitingBytes: Int { self.waiting.bytes }

    /// Begins the attempt of the next waiting call, if the connection is ready: its phase is `sent`, and it has a
    /// serial. Nil if none waits, or if no more calls may be in flight.
    mutating func nextWaiting() -> Attempt? {
        guard self.link == .ready, self.hasSerial, self.waiting.length > 0 else { return nil }
        guard let place = Self.popFirst(&self.waiting, self.entries) else { return nil }
        return self.dequeue(place.key)
    }

    /// Removes the first valid place. The entries are borrowed, not copied, since they are mutated right afterwards.
    private static func popFirst(_ line: inout WaitingLine<QueueEntry>, _ entries: borrowing Slab<Entry>) -> QueueEntry?
    {
        line.popFirst(unless: { !entries[Int($0.key.index)].stands(at: $0) })
    }

    private mutating func dequeue(_ key: DispatchKey) -> Attempt? {
        self.entries[Int(key.index)].bytes = 0
        self.join(key, self.unusedSerial())
        return self.attempt(at: key.index)
    }

    /// Moves the deadline of a call.
    mutating func setDeadline(_ deadline: NIODeadline, _ key: DispatchKey) {
        guard self.contains(key) else { return }
        self.entries[Int(key.index)].deadline = deadline
        self.addAlarm(deadline, key)
    }

    /// Records that the frame of this call was queued.
    mutating func queued(_ key: DispatchKey) {
        if self.contains(key) { self.entries[Int(key.index)].phase = .queued }
    }

    /// Records that a queued frame is about to be sent on this connection.
    ///
    /// - Returns: False if the frame must not be sent, because its call has been removed or is sent on another
    ///   connection.
    mutating func willSend(serial: UInt32, on connection: ConnectionID) -> Bool {
        guard let index = self.serials[serial], index != Self.tombstone,
            self.entries[Int(index)].connection == connection
        else { return false }
        self.entries[Int(index)].phase = .sent
        return true
    }

    mutating func call(withSerial serial: UInt32) -> Call? {
        guard let index = self.serials[serial], index != Self.tombstone else { return nil }
        return self.call(at: index)
    }

    /// Whether a call waits for the answer to this serial.
    func isAwaited(serial: UInt32) -> Bool {
        guard let index = self.serials[serial] else { return false }
        return index != Self.tombstone
    }

    /// Sets the deadline by which the answer must begin, once the whole request with this serial has been sent.
    mutating func expectFirstResponse(serial: UInt32, by deadline: NIODeadline) {
        guard let index = self.serials[serial], index != Self.tombstone else { return }
        self.setAlarm(deadline, DispatchKey(index: index, generation: self.entries[Int(index)].generation))
    }

    /// Records that the answer to this serial has begun, and returns its call, if there is one. A light call stays in
    /// its form, since its progress is not observed.
    mutating func responseBegins(serial: UInt32) -> Call? {
        guard let index = self.serials[serial], index != Self.tombstone else { return nil }
        self.entries[Int(index)].alarm = .distantFuture
        return self.entries[Int(index)].call
    }

    /// Classifies an answer, and ends the attempt that it is for.
    ///
    /// - Parameters:
    ///   - connection: The connection that brought it. The serial of a call on another connection may have been that of
    ///     a call on this one.
    ///   - isFinal: Whether a correct server sends nothing more for this serial.
    mutating func receive(serial: UInt32, on connection: ConnectionID, isFinal: Bool = true) -> Reception {
        guard let index = self.serials[serial] else {
            return self.wasIssued(serial) ? .duplicate : .unknown
        }
        guard index != Self.tombstone else {
            if isFinal { self.exhume(serial) }
            return .late
        }
        guard self.entries[Int(index)].connection == connection else { return .unknown }
        guard let attempt = self.end(index, leavesTombstone: !isFinal) else { return .unknown }
        return .answer(attempt)
    }

    /// Ends the attempt that `serial` answers, and returns its call. Nil if no call waits for the answer;
    /// ``receive(serial:on:isFinal:)`` gives the reason.
    ///
    /// - Parameters:
    ///   - connection: The connection that brought the answer.
    ///   - keeping: Whether the call stays in the table; otherwise it completes.
    mutating func takeAnswered(serial: UInt32, on connection: ConnectionID, keeping: Bool) -> Call? {
        guard let value = self.serials[serial], value != Self.tombstone,
            self.entries[Int(value)].connection == connection
        else { return nil }
        self.serials.remove(serial)
        if self.entries[Int(value)].isLight { _ = self.call(at: value) }
        let call = self.entries[Int(value)].answered(keeping: keeping)
        self.left(connection)
        if !keeping { self.free.append(value) }
        return call
    }

    /// Removes the light call that `serial` answers, which completes it. Nil if there is none on this connection.
    ///
    /// - Returns: The memory of the light form, which the caller must move out before the table is used again.
    @inline(__always)
    mutating func takeAnsweredLight(serial: UInt32, on connection: ConnectionID) -> UnsafeMutablePointer<Light>? {
        guard let index = self.serials[serial], index != Self.tombstone, self.entries[Int(index)].isLight,
            self.entries[Int(index)].connection == connection
        else { return nil }
        self.serials.remove(serial)
        self.left(self.entries[Int(index)].endLight())
        self.free.append(index)
        return self.lights[Int(index)]
    }

    /// The key of the call whose light form satisfies `predicate`. Searches the whole table.
    func key(ofLight predicate: (Light) -> Bool) -> DispatchKey? {
        for index in self.entries.indices {
            if self.entries[index].isLight, predicate(self.lights[index].pointee) {
                return DispatchKey(index: UInt32(index), generation: self.entries[index].generation)
            }
        }
        return nil
    }

    /// Ends the unanswered attempt of a call, which stays in the table.
    mutating func endAttempt(_ key: DispatchKey) -> Attempt? {
        guard self.contains(key) else { return nil }
        return self.end(key.index, leavesTombstone: true)
    }

    /// Removes a call, which completes it, and ends its attempt in progress.
    @discardableResult
    mutating func remove(_ key: DispatchKey) -> Attempt? {
        guard self.contains(key), let attempt = self.end(key.index, leavesTombstone: true) else { return nil }
        self.release(key.index)
        return attempt
    }

    /// Resets the number of the call's attempts.
    mutating func resetAttempts(_ key: DispatchKey) {
        if self.contains(key) { self.entries[Int(key.index)].attempts = 0 }
    }

    // MARK: Time

    /// Removes and returns the next alarm that is due.
    mutating func nextAlarm(now: NIODeadline) -> Alarm? {
        while let first = self.alarms.first, first.deadline <= now {
            self.alarms.removeFirst()
            guard self.isWanted(first), let call = self.call(for: first.key) else { continue }
            if self.entries[Int(first.key.index)].deadline <= now {
                guard let expired = self.remove(first.key) else { continue }
                return .expired(expired)
            }
            self.entries[Int(first.key.index)].alarm = .distantFuture
            switch self.entries[Int(first.key.index)].phase {
            case .backingOff:
                self.entries[Int(first.key.index)].phase = .idle
                return .retry(first.key, call)
            case .sent:
                if let attempt = self.endAttempt(first.key) { return .noFirstResponse(attempt) }
            case .waiting, .queued, .idle:
                break
            }
        }
        return nil
    }

    /// The number of alarms held, including stale ones.
    var alarmCount: Int { self.alarms.count }

    /// The time of the earliest alarm, which may be stale.
    var earliestAlarm: NIODeadline? { self.alarms.first?.deadline }

    /// Removes stale alarms from the front, so that ``earliestAlarm`` is not stale.
    mutating func dropStaleAlarms() {
        while let first = self.alarms.first, !self.isWanted(first) { self.alarms.removeFirst() }
    }

    private func isWanted(_ alarm: DeadlineHeap<DispatchKey>.Element) -> Bool {
        self.entries[Int(alarm.key.index)].isWaiting(for: alarm)
    }

    private mutating func setAlarm(_ time: NIODeadline, _ key: DispatchKey) {
        self.entries[Int(key.index)].alarm = time
        self.addAlarm(time, key)
    }

    private mutating func addAlarm(_ time: NIODeadline, _ key: DispatchKey) {
        guard time < .distantFuture else { return }
        // Swept when most are stale, so that the cost per call is constant.
        if self.alarms.count > 4 * self.count + 64 {
            Self.sweep(&self.alarms, self.entries)
        }
        self.alarms.insert(DeadlineHeap<DispatchKey>.Element(deadline: time, key: key))
    }

    /// Removes stale alarms. The entries are borrowed, while the alarms are mutated.
    private static func sweep(_ alarms: inout DeadlineHeap<DispatchKey>, _ entries: borrowing Slab<Entry>) {
        alarms.sweep { entries[Int($0.key.index)].isWaiting(for: $0) }
    }

    /// The keys of every call in the table.
    var keys: [DispatchKey] { self.keys { _ in true } }

    /// The keys of the calls whose entries satisfy `predicate`.
    private func keys(where predicate: (Entry) -> Bool) -> [DispatchKey] {
        var keys: [DispatchKey] = []
        for index in self.entries.indices where self.entries[index].hasCall && predicate(self.entries[index]) {
            keys.append(DispatchKey(index: UInt32(index), generation: self.entries[index].generation))
        }
        return keys
    }

    // MARK: The link

    mutating func linkIsConnecting() {
        if self.link == .offline { self.link = .connecting }
    }

    /// Sends calls on this connection from now on. If another was ready, ``linkGoesAway(_:)`` must be called next.
    mutating func linkIsReady(_ connection: ConnectionID) {
        if self.link != .ready, self.link != .goingAway {
            // A new connection brings no answers to a lost one's calls.
            for serial in self.tombstones { self.serials.remove(serial) }
            self.tombstones.removeAll()
        }
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
        // Serials increase and wrap around: the oldest is the farthest behind the next.
        let next = self.nextSerial
        return self.endAll { $0.isInFlight && $0.phase == .queued && $0.connection == connection }
            .sorted { self.distance(from: $0.serial ?? 0, to: next) > self.distance(from: $1.serial ?? 0, to: next) }
    }

    /// The distance from a serial to a later one in the order of their use, at least 1.
    private func distance(from serial: UInt32, to later: UInt32) -> Int {
        let distance = Int(later) - Int(serial)
        return distance > 0 ? distance : distance + self.serialCount
    }

    /// Begins to drain a connection that has a successor.
    mutating func linkGoesAway(_ connection: ConnectionID) {
        let inFlight = self.keys { $0.isInFlight && $0.connection == connection }.count
        if inFlight > 0 {
            self.draining[connection] = inFlight
        } else {
            self.drained.append(connection)
        }
    }

    /// Whether ``nextDrained()`` returns a connection.
    var hasDrained: Bool { !self.drained.isEmpty }

    /// Removes and returns a drained connection: one with a successor and with nothing in flight.
    mutating func nextDrained() -> ConnectionID? { self.drained.popLast() }

    /// Ends and returns the attempts in flight on a connection that was lost.
    mutating func linkWasLost(_ connection: ConnectionID) -> [Attempt] {
        if connection == self.connection { self.link = .offline }
        self.draining[connection] = nil
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

    private mutating func endAll(where predicate: (Entry) -> Bool) -> [Attempt] {
        var attempts: [Attempt] = []
        for key in self.keys(where: predicate) {
            if let attempt = self.end(key.index, leavesTombstone: false) { attempts.append(attempt) }
        }
        return attempts
    }

    // MARK: Pieces

    private mutating func join(_ key: DispatchKey, _ serial: UInt32) {
        self.entries[Int(key.index)].join(serial, self.connection)
        self.hasJoined(key.index, serial)
    }

    @inline(__always)
    private mutating func hasJoined(_ index: UInt32, _ serial: UInt32) {
        self.serials.set(serial, index)
        self.inFlightCount += 1
    }

    mutating func call(for key: DispatchKey) -> Call? { self.contains(key) ? self.call(at: key.index) : nil }

    /// Whether a call is in the table.
    func contains(_ key: DispatchKey) -> Bool {
        // The entries are released when no call remains.
        Int(key.index) < self.entries.count && self.entries[Int(key.index)].generation == key.generation
            && self.entries[Int(key.index)].hasCall
    }

    /// The call at this index, which has no light form from now on.
    private mutating func call(at index: UInt32) -> Call? {
        if self.entries[Int(index)].isLight {
            self.entries[Int(index)].isLight = false
            let key = DispatchKey(index: index, generation: self.entries[Int(index)].generation)
            let light = self.lights[Int(index)].move()
            self.entries[Int(index)].call = self.promote?(light, key, self.entries[Int(index)].deadline)
        }
        return self.entries[Int(index)].call
    }

    /// The phase of a call; nil if it has been removed.
    func phase(of key: DispatchKey) -> Phase? { self.contains(key) ? self.entries[Int(key.index)].phase : nil }

    private mutating func attempt(at index: UInt32) -> Attempt? {
        guard let call = self.call(at: index) else { return nil }
        let entry = self.entries[Int(index)]
        let hasSerial = entry.serial != 0
        return Attempt(
            key: DispatchKey(index: index, generation: entry.generation),
            call: call,
            phase: entry.phase,
            serial: hasSerial ? entry.serial : nil,
            connection: hasSerial ? entry.connection : Self.noConnection,
            count: entry.attempts
        )
    }

    /// Ends the attempt of a call, which becomes idle.
    private mutating func end(_ index: UInt32, leavesTombstone: Bool) -> Attempt? {
        guard let attempt = self.attempt(at: index) else { return nil }
        self.entries[Int(index)].end()
        if attempt.phase == .waiting { self.waitsNoLonger(index) }
        guard let serial = attempt.serial else { return attempt }
        self.left(attempt.connection)
        if leavesTombstone, attempt.phase == .sent, self.maximumTombstones > 0 {
            self.bury(serial)
        } else {
            self.serials.remove(serial)
        }
        return attempt
    }

    /// Removes one call from those in flight on this connection.
    private mutating func left(_ connection: ConnectionID) {
        self.inFlightCount -= 1
        guard connection != self.connection, let count = self.draining[connection] else { return }
        self.draining[connection] = count > 1 ? count - 1 : nil
        if count <= 1 { self.drained.append(connection) }
    }

    private mutating func waitsNoLonger(_ index: UInt32) {
        self.waiting.leave(cost: self.entries[Int(index)].bytes)
        self.entries[Int(index)].bytes = 0
    }

    /// Removes a call whose attempt has ended.
    @discardableResult
    private mutating func release(_ index: UInt32) -> Call? {
        self.free.append(index)
        return self.entries[Int(index)].release()
    }

    private mutating func bury(_ serial: UInt32) {
        self.serials.set(serial, Self.tombstone)
        self.tombstones.append(serial)
        while self.tombstones.count > self.maximumTombstones, let oldest = self.tombstones.popFirst() {
            self.serials.remove(oldest)
        }
    }

    /// Removes the tombstone of a serial whose late answer has arrived. The serial may be reused and buried again, and
    /// must not be listed twice.
    private mutating func exhume(_ serial: UInt32) {
        self.serials.remove(serial)
        if let index = self.tombstones.firstIndex(of: serial) { self.tombstones.remove(at: index) }
    }

    /// Whether there is a serial for one more call, and one more may be in flight.
    private var hasSerial: Bool {
        self.inFlightCount < self.maximumInFlight && self.serials.count < self.serialCount
    }

    private mutating func takeSerial() -> UInt32? { self.hasSerial ? self.unusedSerial() : nil }

    /// The next serial that is neither in flight nor a tombstone; there must be one.
    @inline(__always)
    private mutating func unusedSerial() -> UInt32 {
        var serial = self.nextSerial
        while self.serials.contains(serial) { serial = self.following(serial) }
        self.nextSerial = self.following(serial)
        return serial
    }

    private mutating func following(_ serial: UInt32) -> UInt32 {
        guard serial < self.serialRange.upperBound else {
            self.hasWrapped = true
            return self.serialRange.lowerBound
        }
        return serial + 1
    }

    private func wasIssued(_ serial: UInt32) -> Bool {
        self.serialRange.contains(serial) && (self.hasWrapped || serial < self.nextSerial)
    }
}
