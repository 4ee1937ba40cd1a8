import DequeModule
import HHSocket
import NIOCore

/// Names one call in a ``DispatchTable``. It names nothing once that call is gone.
struct DispatchKey: Hashable, Sendable {
    fileprivate var index: UInt32
    fileprivate var generation: UInt32
}

/// Every call between its start and its completion, and the only thing that can complete one: what is taken out of the
/// table completes, and it can be taken out only once.
///
/// A call is sent by an attempt, or by several one after the other: the end of one leaves it here, ``remove(_:)`` takes
/// it out, ``backOff(_:until:)`` and ``attempt(_:_:bytes:isPatient:)`` go on with it.
///
/// Decides which calls leave, wait or fail, which answer belongs to which call, and which deadlines have passed. It has
/// no clock and no I/O. `Call` is whatever stands for a call; tests use numbers.
struct DispatchTable<Call> {
    /// Whether calls can leave now.
    enum LinkState: Sendable {
        case offline, connecting, ready
        /// There is a connection for what is in flight on it. Calls wait for its successor.
        case goingAway
    }

    /// How far a call got.
    enum Phase: Sendable {
        /// For a connection; no serial yet.
        case waiting
        /// Behind a peer that does not read; none of it has left.
        case queued
        /// Bytes have left.
        case sent
        /// Until the next attempt.
        case backingOff
        /// No attempt is under way: the one before has ended, or the first has not begun.
        case idle
    }

    /// The next step of a call that is to be sent.
    enum Submission {
        case send(DispatchKey, serial: UInt32)
        case wait(DispatchKey)
        /// It has no attempt under way.
        case refuse(Refusal)
    }

    enum Refusal: Hashable, Sendable {
        case offline, tooManyInFlight, queueFull
    }

    /// The meaning of an answer.
    enum Reception {
        case answer(Attempt)
        /// Its call timed out or was cancelled before.
        case late
        /// Its call was answered before.
        case duplicate
        /// No call had this serial.
        case unknown
    }

    /// How far a call had got when its attempt ended.
    struct Attempt {
        var key: DispatchKey
        var call: Call
        var phase: Phase
        /// The serial it was given, if any.
        var serial: UInt32?
        /// The connection on which it was sent, if it was.
        var connection = DispatchTable.noConnection
        /// The number of the call's attempts that have reached a connection.
        var count = 0
    }

    /// The event that a deadline brings.
    enum Alarm {
        /// The call is out of time, and out of the table.
        case expired(Attempt)
        /// An attempt has ended because its answer did not begin in time.
        case noFirstResponse(Attempt)
        /// The back-off is over: the next attempt is due.
        case retry(DispatchKey, Call)
    }

    private struct Entry {
        var call: Call?
        var deadline = NIODeadline.distantFuture
        /// When the answer must have begun, or the back-off ends.
        var alarm = NIODeadline.distantFuture
        var serial: UInt32 = 0
        var generation: UInt32 = 0
        var phase = Phase.idle
        /// Whether it goes on waiting where no attempt is in progress.
        var isPatient = false
        /// Whether it waits before those that have never left.
        var isReturning = false
        var bytes = 0
        /// The connection on which it was sent.
        var connection = DispatchTable.noConnection
        /// The number of attempts that have reached a connection.
        var attempts = 0
        /// Which of the places in line that it ever had is its own.
        var place: UInt32 = 0

        var isInFlight: Bool { self.serial != 0 }

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

        /// Ends the attempt that was answered on its connection, and removes the call if it is not kept.
        mutating func answered(keeping: Bool) -> (Call?, ConnectionID) {
            self.end()
            return (keeping ? self.call : self.release(), self.connection)
        }

        /// Takes in a call. Returns which of the calls that were here it is.
        mutating func enter(_ call: Call, _ deadline: NIODeadline) -> UInt32 {
            self.call = call
            self.deadline = deadline
            return self.generation
        }

        /// Enters a call and begins its first attempt: one access to the table, each of which checks for uniqueness.
        mutating func enter(
            _ call: Call,
            _ deadline: NIODeadline,
            _ serial: UInt32,
            _ connection: ConnectionID
        ) -> UInt32 {
            self.join(serial, connection)
            return self.enter(call, deadline)
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
    private struct QueueEntry {
        var key: DispatchKey
        var number: UInt32
    }

    /// Of calls that have not left.
    private static var noConnection: ConnectionID { ConnectionID(number: 0) }

    /// The number of entries kept although they hold no call.
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
    /// Those of them that have nothing in flight any more.
    private var drained: [ConnectionID] = []
    private var entries: [Entry] = []
    private var free: [UInt32] = []
    /// The generation of an entry that is made now.
    private var firstGeneration: UInt32 = 0
    /// Serials in flight, to entries, or to `tombstone`.
    private var serials = SerialMap()
    /// Oldest first.
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
        // Half of the serials at most, for else there might be none left for calls.
        self.maximumTombstones = min(maximumTombstones, self.serialCount / 2)
        self.nextSerial = serialRange.lowerBound
    }

    /// Entries held, those without a call included.
    var entryCount: Int { self.entries.count }

    /// Calls in the table.
    var count: Int { self.entries.count - self.free.count }

    /// Whether there is room for one more call, whatever the others do.
    var hasRoom: Bool { self.count - self.maximumInFlight < self.maximumWaiting }

    // MARK: Calls

    /// A new call. It has no attempt under way yet.
    mutating func enter(_ call: Call, deadline: NIODeadline) -> DispatchKey {
        let index = self.takeIndex()
        let key = DispatchKey(index: index, generation: self.entries[Int(index)].enter(call, deadline))
        self.addAlarm(deadline, key)
        return key
    }

    /// Of an entry that has no call.
    @inline(__always)
    private mutating func takeIndex() -> UInt32 {
        if let reused = self.free.popLast() { return reused }
        self.entries.append(Entry(generation: self.firstGeneration))
        return UInt32(self.entries.count - 1)
    }

    /// Releases what a burst of calls has left behind, once no call is here: else each loss of a connection would look
    /// at as many entries as there ever were calls at once.
    private mutating func shrink() {
        guard self.count == 0, self.entries.count > Self.entriesKept else { return }
        // Keys of before name nothing in the new entries either.
        self.firstGeneration = (self.entries.lazy.map(\.generation).max() ?? 0) &+ 1
        self.entries = []
        self.free = []
        self.alarms = DeadlineHeap()
        self.waiting.removeStubs()
    }

    /// Whether there is a connection, room for one more call, and a serial for it, which no call waits for.
    var canSend: Bool {
        self.link == .ready && self.waitingCount == 0 && self.hasSerial && self.takesCalls && self.hasRoom
    }

    /// Whether new calls may be sent at once; the owner refuses the others.
    var takesCalls = true

    /// A new call that is sent at once, which ``canSend`` allows: its first attempt has begun.
    mutating func enterSent(_ call: Call, deadline: NIODeadline) -> (key: DispatchKey, serial: UInt32) {
        let serial = self.unusedSerial()
        let index = self.takeIndex()
        let generation = self.entries[Int(index)].enter(call, deadline, serial, self.connection)
        let key = DispatchKey(index: index, generation: generation)
        self.hasJoined(index, serial)
        self.addAlarm(deadline, key)
        return (key, serial)
    }

    /// The next attempt of a call that is here and has none under way, or its first.
    ///
    /// - Parameters:
    ///   - bytes: What the call holds while it waits.
    ///   - isPatient: Whether it waits also where no attempt to connect is in progress.
    mutating func attempt(
        _ key: DispatchKey,
        _ priority: FramePriority = .default,
        bytes: Int = 0,
        isPatient: Bool = false
    ) -> Submission {
        if self.link == .ready {
            // Those that waited for the connection leave first.
            guard self.waitingCount == 0, let serial = self.takeSerial() else { return .refuse(.tooManyInFlight) }
            self.join(key, serial)
            return .send(key, serial: serial)
        }
        if let refusal = self.refusal(bytes: bytes, isPatient: isPatient) { return .refuse(refusal) }
        self.enqueue(key, priority, bytes: bytes, isPatient: isPatient)
        return .wait(key)
    }

    /// The attempt before, over again, of a call that is here and has none under way: the server did not run it because
    /// it is about to end, or the request never left. It waits however many others do, for it was in flight, and also
    /// where no attempt to connect is in progress.
    ///
    /// - Parameter isReturning: Whether it leaves before those of its priority that have never left.
    mutating func attemptAgain(
        _ key: DispatchKey,
        _ priority: FramePriority = .default,
        bytes: Int = 0,
        isReturning: Bool
    ) -> Submission {
        self.entries[Int(key.index)].attempts = max(0, self.entries[Int(key.index)].attempts - 1)
        if self.link == .ready, let serial = self.takeSerial() {
            self.join(key, serial)
            return .send(key, serial: serial)
        }
        self.enqueue(key, priority, bytes: bytes, isPatient: true, isReturning: isReturning)
        return .wait(key)
    }

    /// Why a call cannot wait for a connection.
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

    /// The place that a call has from now on; any other is a stub.
    private mutating func nextPlace(of key: DispatchKey) -> QueueEntry {
        self.entries[Int(key.index)].place &+= 1
        return QueueEntry(key: key, number: self.entries[Int(key.index)].place)
    }

    /// Moves a call that stands in line behind those of this priority that do.
    mutating func setPriority(_ priority: FramePriority, _ key: DispatchKey) {
        guard self.phase(of: key) == .waiting else { return }
        let place = self.nextPlace(of: key)
        self.dropStaleWaiting()
        let entry = self.entries[Int(key.index)]
        self.waiting.appendEntry(place, priority, cost: entry.bytes, isReturning: entry.isReturning)
    }

    /// Leaves a call without an attempt until `time`, when ``nextAlarm(now:)`` tells of it.
    mutating func backOff(_ key: DispatchKey, until time: NIODeadline) {
        guard self.call(for: key) != nil else { return }
        self.entries[Int(key.index)].phase = .backingOff
        self.setAlarm(time, key)
    }

    private mutating func dropStaleWaiting() {
        let entries = self.entries
        self.waiting.dropStubs { !entries[Int($0.key.index)].stands(at: $0) }
    }

    /// Places in line, stubs included.
    var lineLength: Int { self.waiting.length }

    /// The number of calls that wait for a connection.
    var waitingCount: Int { self.waiting.count }
    /// The size of the waiting calls, in bytes.
    var waitingBytes: Int { self.waiting.bytes }

    /// The next call that waited for the connection, now that there is one: its phase is `sent`, and it has been given
    /// a serial. Nil if none waits, or if no more calls may be in flight: the others go on waiting.
    mutating func nextWaiting() -> Attempt? {
        guard self.link == .ready, self.hasSerial, self.waiting.length > 0 else { return nil }
        guard let place = Self.popFirst(&self.waiting, self.entries) else { return nil }
        return self.dequeue(place.key)
    }

    /// The entries are lent, not copied: they are changed right after it.
    private static func popFirst(_ line: inout WaitingLine<QueueEntry>, _ entries: [Entry]) -> QueueEntry? {
        line.popFirst(unless: { !entries[Int($0.key.index)].stands(at: $0) })
    }

    private mutating func dequeue(_ key: DispatchKey) -> Attempt? {
        self.entries[Int(key.index)].bytes = 0
        self.join(key, self.unusedSerial())
        return self.attempt(at: key.index)
    }

    /// The frame of this call could not leave yet.
    mutating func queued(_ key: DispatchKey) {
        if self.call(for: key) != nil { self.entries[Int(key.index)].phase = .queued }
    }

    /// A queued frame is about to leave by this connection. False if its call is gone, or leaves by another, and it
    /// should not.
    mutating func willSend(serial: UInt32, on connection: ConnectionID) -> Bool {
        guard let index = self.serials[serial], index != Self.tombstone,
            self.entries[Int(index)].connection == connection
        else { return false }
        self.entries[Int(index)].phase = .sent
        return true
    }

    func call(withSerial serial: UInt32) -> Call? {
        guard let index = self.serials[serial], index != Self.tombstone else { return nil }
        return self.entries[Int(index)].call
    }

    /// The whole request with this serial has left: its answer must begin by `deadline`.
    mutating func expectFirstResponse(serial: UInt32, by deadline: NIODeadline) {
        guard let index = self.serials[serial], index != Self.tombstone else { return }
        self.setAlarm(deadline, DispatchKey(index: index, generation: self.entries[Int(index)].generation))
    }

    /// The answer to this serial has begun. The call it is for, if there is one.
    mutating func responseBegins(serial: UInt32) -> Call? {
        guard let index = self.serials[serial], index != Self.tombstone else { return nil }
        self.entries[Int(index)].alarm = .distantFuture
        return self.entries[Int(index)].call
    }

    /// The answer to an attempt, which ends by it.
    ///
    /// - Parameter isFinal: Whether the server will send nothing more for this serial, so far as it does what it
    ///   should.
    mutating func receive(serial: UInt32, isFinal: Bool = true) -> Reception {
        guard let index = self.serials[serial] else {
            return self.wasIssued(serial) ? .duplicate : .unknown
        }
        guard index != Self.tombstone else {
            if isFinal { self.exhume(serial) }
            return .late
        }
        guard let attempt = self.end(index, leavesTombstone: !isFinal) else { return .unknown }
        return .answer(attempt)
    }

    /// The call that an answer is for with which it may complete, and whose attempt ends by it. Nil if nobody waits for
    /// that answer; ``receive(serial:isFinal:)`` says why.
    ///
    /// - Parameter keeping: Whether the call stays in the table; else this is its completion.
    mutating func takeAnswered(serial: UInt32, keeping: Bool) -> Call? {
        guard let value = self.serials.remove(serial, unless: Self.tombstone) else { return nil }
        let (call, connection) = self.entries[Int(value)].answered(keeping: keeping)
        self.left(connection)
        if !keeping { self.free.append(value) }
        return call
    }

    /// Ends the attempt that is under way before it is answered. The call stays.
    mutating func endAttempt(_ key: DispatchKey) -> Attempt? {
        guard self.call(for: key) != nil else { return nil }
        return self.end(key.index, leavesTombstone: true)
    }

    /// Takes a call out, and with it ends the attempt that is under way. This is its completion.
    @discardableResult
    mutating func remove(_ key: DispatchKey) -> Attempt? {
        guard self.call(for: key) != nil, let attempt = self.end(key.index, leavesTombstone: true) else { return nil }
        self.release(key.index)
        return attempt
    }

    /// Begins to count attempts anew.
    mutating func resetAttempts(_ key: DispatchKey) {
        if self.call(for: key) != nil { self.entries[Int(key.index)].attempts = 0 }
    }

    // MARK: Time

    /// The next thing that the time has brought.
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

    /// Alarms held, stale ones included.
    var alarmCount: Int { self.alarms.count }

    /// When ``nextAlarm(now:)`` is worth calling next; what it is for may be past.
    var earliestAlarm: NIODeadline? { self.alarms.first?.deadline }

    /// Makes ``earliestAlarm`` one that is still wanted.
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
            let entries = self.entries
            self.alarms.sweep { entries[Int($0.key.index)].isWaiting(for: $0) }
        }
        self.alarms.insert(DeadlineHeap<DispatchKey>.Element(deadline: time, key: key))
    }

    /// The keys of every call in the table.
    var keys: [DispatchKey] {
        self.entries.enumerated().compactMap { index, entry in
            entry.call == nil ? nil : DispatchKey(index: UInt32(index), generation: entry.generation)
        }
    }

    // MARK: The link

    mutating func linkIsConnecting() {
        if self.link == .offline { self.link = .connecting }
    }

    /// Calls leave by this connection from now on. If another was ready, ``linkGoesAway(_:)`` is called next.
    mutating func linkIsReady(_ connection: ConnectionID) {
        if self.link != .ready, self.link != .goingAway {
            // A new connection brings no answers to a lost one's calls.
            for serial in self.tombstones { self.serials.remove(serial) }
            self.tombstones.removeAll()
        }
        self.link = .ready
        self.connection = connection
    }

    /// No call leaves by the ready connection any more; what has left by it may still be answered.
    ///
    /// - Returns: The attempts that had not left, oldest first, which have ended.
    mutating func linkGoesAway() -> [Attempt] {
        guard self.link == .ready else { return [] }
        self.link = .goingAway
        let connection = self.connection
        // Serials are counted on, and wrap: the oldest is the farthest behind the next.
        let next = self.nextSerial
        return self.endAll { $0.isInFlight && $0.phase == .queued && $0.connection == connection }
            .sorted { self.distance(from: $0.serial ?? 0, to: next) > self.distance(from: $1.serial ?? 0, to: next) }
    }

    /// The distance from a serial to a later one in the order in which they are used, 1 at least.
    private func distance(from serial: UInt32, to later: UInt32) -> Int {
        let distance = Int(later) - Int(serial)
        return distance > 0 ? distance : distance + self.serialCount
    }

    /// The connection has a successor: no call leaves by it any more.
    mutating func linkGoesAway(_ connection: ConnectionID) {
        let inFlight = self.entries.reduce(0) {
            $0 + ($1.isInFlight && $1.connection == connection ? 1 : 0)
        }
        if inFlight > 0 {
            self.draining[connection] = inFlight
        } else {
            self.drained.append(connection)
        }
    }

    /// Whether ``nextDrained()`` has something to tell.
    var hasDrained: Bool { !self.drained.isEmpty }

    /// A connection that was left and on which nothing is in flight any more.
    mutating func nextDrained() -> ConnectionID? { self.drained.popLast() }

    /// The connection is gone: the attempts that were in flight on it, which have ended.
    mutating func linkWasLost(_ connection: ConnectionID) -> [Attempt] {
        if connection == self.connection { self.link = .offline }
        self.draining[connection] = nil
        self.shrink()
        return self.endAll { $0.isInFlight && $0.connection == connection }
    }

    /// No attempt to connect is in progress: those of the calls that waited for it, which have ended.
    ///
    /// - Parameter isForGood: Whether none will be made by itself: then the patient ones are among them, and those that
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
        self.keys.filter { predicate(self.entries[Int($0.index)]) }
            .compactMap { self.end($0.index, leavesTombstone: false) }
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

    func call(for key: DispatchKey) -> Call? {
        // Entries go when no call is left.
        guard Int(key.index) < self.entries.count else { return nil }
        let entry = self.entries[Int(key.index)]
        return entry.generation == key.generation ? entry.call : nil
    }

    /// How far a call has got; nil if it is gone.
    func phase(of key: DispatchKey) -> Phase? {
        self.call(for: key) == nil ? nil : self.entries[Int(key.index)].phase
    }

    private func attempt(at index: UInt32) -> Attempt? {
        let entry = self.entries[Int(index)]
        guard let call = entry.call else { return nil }
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

    /// One call less is in flight on this connection.
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

    /// Takes a call out whose attempt has ended.
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

    /// The late answer has come. The serial may be given, and buried, again, so that it must not be named twice.
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
