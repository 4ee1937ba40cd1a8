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
/// Decides which calls leave, wait or fail, which answer belongs to which call, and which deadlines have passed. It has
/// no clock and no I/O. `Call` is whatever stands for a call; tests use numbers.
struct DispatchTable<Call> {
    /// Whether calls can leave now.
    enum LinkState: Sendable {
        case offline, connecting, ready
    }

    /// How far a call got.
    enum Phase: Sendable {
        /// For a connection; no serial yet.
        case waiting
        /// Behind a peer that does not read; none of it has left.
        case queued
        /// Bytes have left.
        case sent
    }

    /// What to do with a new call.
    enum Submission {
        case send(DispatchKey, serial: UInt32)
        case wait(DispatchKey)
        /// The call is not in the table.
        case refuse(Refusal)
    }

    enum Refusal: Hashable, Sendable {
        case offline, tooManyInFlight, queueFull
    }

    /// What an answer is.
    enum Reception {
        case answer(Call)
        /// Its call timed out or was cancelled before.
        case late
        /// Its call was answered before.
        case duplicate
        /// No call had this serial.
        case unknown
    }

    /// A call taken out of the table.
    struct Removed {
        var call: Call
        var phase: Phase
        /// The serial it was given, if any.
        var serial: UInt32?
        /// What it left by, where it did.
        var connection = DispatchTable.noConnection
    }

    private struct Entry {
        var call: Call?
        var deadline = NIODeadline.distantFuture
        var serial: UInt32 = 0
        var generation: UInt32 = 0
        var phase = Phase.waiting
        /// Whether it goes on waiting where no attempt is in progress.
        var isPatient = false
        var bytes = 0
        /// What it left by.
        var connection = DispatchTable.noConnection
    }

    /// Of calls that have not left.
    private static var noConnection: ConnectionID { ConnectionID(number: 0) }

    /// The value that marks a tombstone in `serials`.
    private static var tombstone: UInt32 { .max }

    private let serialRange: ClosedRange<UInt32>
    private let maximumInFlight: Int
    private let maximumWaiting: Int
    private let maximumWaitingBytes: Int
    private let maximumTombstones: Int

    private(set) var link = LinkState.offline
    /// What calls leave by, or left by last.
    private var connection = DispatchTable.noConnection
    /// How many calls are in flight on connections that were left for another.
    private var draining: [ConnectionID: Int] = [:]
    /// Those of them that have nothing in flight any more.
    private var drained: [ConnectionID] = []
    private var entries: [Entry] = []
    private var free: [UInt32] = []
    /// Serials in flight, to entries, or to `tombstone`.
    private var serials = SerialMap()
    /// Oldest first. May name serials whose late answer has come since.
    private var tombstones: Deque<UInt32> = []
    private var nextSerial: UInt32
    private var hasWrapped = false
    private var deadlines = DeadlineHeap()
    /// Highest priority first, then oldest.
    private var waiting = PriorityQueue<DispatchKey>()
    private(set) var waitingCount = 0
    private(set) var waitingBytes = 0
    private(set) var inFlightCount = 0

    init(
        serialRange: ClosedRange<UInt32> = FrameSerial.firstRequest...UInt32.max,
        maximumInFlight: Int,
        maximumWaiting: Int,
        maximumWaitingBytes: Int = .max,
        maximumTombstones: Int
    ) {
        self.serialRange = serialRange
        self.maximumInFlight = maximumInFlight
        self.maximumWaiting = maximumWaiting
        self.maximumWaitingBytes = maximumWaitingBytes
        self.maximumTombstones = maximumTombstones
        self.nextSerial = serialRange.lowerBound
    }

    /// Calls in the table.
    var count: Int { self.waitingCount + self.inFlightCount }

    // MARK: Calls

    /// - Parameters:
    ///   - bytes: What the call holds while it waits.
    ///   - isPatient: Whether it waits also where no attempt is in progress.
    mutating func submit(
        _ call: Call,
        _ priority: FramePriority = .default,
        bytes: Int = 0,
        isPatient: Bool = false,
        deadline: NIODeadline
    ) -> Submission {
        switch self.link {
        case .offline where !isPatient:
            return .refuse(.offline)
        case .offline, .connecting:
            guard self.waitingCount < self.maximumWaiting,
                self.waitingCount == 0 || bytes <= self.maximumWaitingBytes - self.waitingBytes
            else { return .refuse(.queueFull) }
            let key = self.insert(call, deadline)
            self.entries[Int(key.index)].isPatient = isPatient
            self.entries[Int(key.index)].bytes = bytes
            self.dropStaleWaiting()
            self.waiting.append(key, priority)
            self.waitingCount += 1
            self.waitingBytes += bytes
            return .wait(key)
        case .ready:
            guard let serial = self.takeSerial() else { return .refuse(.tooManyInFlight) }
            let key = self.insert(call, deadline)
            self.join(key, serial)
            return .send(key, serial: serial)
        }
    }

    /// Those that were cancelled or timed out stay in line as stubs until most are that: so the cost per call is constant.
    private mutating func dropStaleWaiting() {
        guard self.waiting.count > 2 * self.waitingCount + 64 else { return }
        let entries = self.entries
        self.waiting.removeAll { entries[Int($0.index)].generation != $0.generation }
    }

    /// Places in line, stubs included.
    var lineLength: Int { self.waiting.count }

    /// The next call that waited for the connection, now that there is one. It has been given a serial, or it has none
    /// because all are busy, and is out of the table.
    mutating func nextWaiting() -> (removedOrSent: Removed, key: DispatchKey)? {
        while self.link == .ready, let key = self.waiting.popFirst() {
            guard let call = self.call(for: key) else { continue }
            self.waitsNoLonger(key.index)
            guard let serial = self.takeSerial() else {
                self.release(key.index)
                return (Removed(call: call, phase: .waiting, serial: nil), key)
            }
            self.join(key, serial)
            return (Removed(call: call, phase: .sent, serial: serial), key)
        }
        return nil
    }

    /// The frame of this call could not leave yet.
    mutating func queued(_ key: DispatchKey) {
        if self.call(for: key) != nil { self.entries[Int(key.index)].phase = .queued }
    }

    /// A queued frame is about to leave. False if its call is gone and it should not.
    mutating func willLeave(serial: UInt32) -> Bool {
        guard let index = self.serials[serial], index != Self.tombstone else { return false }
        self.entries[Int(index)].phase = .sent
        return true
    }

    func call(withSerial serial: UInt32) -> Call? {
        guard let index = self.serials[serial], index != Self.tombstone else { return nil }
        return self.entries[Int(index)].call
    }

    /// - Parameter isFinal: Whether the server will send nothing more for this serial, so far as it does what it should.
    mutating func receive(serial: UInt32, isFinal: Bool = true) -> Reception {
        guard let index = self.serials[serial] else {
            return self.wasIssued(serial) ? .duplicate : .unknown
        }
        guard index != Self.tombstone else {
            if isFinal { self.serials.remove(serial) }
            return .late
        }
        guard let removed = self.take(index, leavingTombstone: !isFinal) else { return .unknown }
        return .answer(removed.call)
    }

    /// Takes a call out before it is answered.
    mutating func remove(_ key: DispatchKey) -> Removed? {
        guard self.call(for: key) != nil else { return nil }
        return self.take(key.index, leavingTombstone: true)
    }

    /// The next call whose deadline has passed.
    mutating func expire(now: NIODeadline) -> Removed? {
        while let first = self.deadlines.first, first.deadline <= now {
            self.deadlines.removeFirst()
            if let removed = self.remove(first.key) { return removed }
        }
        return nil
    }

    /// Deadlines held, stale ones included.
    var deadlineCount: Int { self.deadlines.count }

    /// When ``expire(now:)`` is worth calling next; the call it is for may be gone.
    var earliestDeadline: NIODeadline? { self.deadlines.first?.deadline }

    /// Makes ``earliestDeadline`` that of a call that is still here.
    mutating func dropStaleDeadlines() {
        while let first = self.deadlines.first, self.call(for: first.key) == nil { self.deadlines.removeFirst() }
    }

    func firstKey(where predicate: (Call) -> Bool) -> DispatchKey? {
        for (index, entry) in self.entries.enumerated() {
            if let call = entry.call, predicate(call) {
                return DispatchKey(index: UInt32(index), generation: entry.generation)
            }
        }
        return nil
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

    /// Calls leave by this connection from now on. If another was ready, ``linkDrains(_:)`` is called next.
    mutating func linkIsReady(_ connection: ConnectionID) {
        if self.link != .ready {
            // A new connection brings no answers to a lost one's calls.
            for serial in self.tombstones where self.serials[serial] == Self.tombstone { self.serials.remove(serial) }
            self.tombstones.removeAll()
        }
        self.link = .ready
        self.connection = connection
    }

    /// The connection has a successor: no call leaves by it any more.
    mutating func linkDrains(_ connection: ConnectionID) {
        let inFlight = self.entries.reduce(0) {
            $0 + ($1.call != nil && $1.phase != .waiting && $1.connection == connection ? 1 : 0)
        }
        if inFlight > 0 {
            self.draining[connection] = inFlight
        } else {
            self.drained.append(connection)
        }
    }

    /// A connection that was left and on which nothing is in flight any more.
    mutating func nextDrained() -> ConnectionID? { self.drained.popLast() }

    /// The connection is gone: every call in flight on it.
    mutating func linkWasLost(_ connection: ConnectionID) -> [Removed] {
        if connection == self.connection { self.link = .offline }
        self.draining[connection] = nil
        return self.removeAll { $0.phase != .waiting && $0.connection == connection }
    }

    /// No attempt is in progress: every call that waits.
    ///
    /// - Parameter isForGood: Whether none will be made by itself: then the patient ones are among them.
    mutating func linkIsOffline(isForGood: Bool = false) -> [Removed] {
        self.link = .offline
        return self.removeAll { $0.phase == .waiting && (isForGood || !$0.isPatient) }
    }

    private mutating func removeAll(where predicate: (Entry) -> Bool) -> [Removed] {
        self.keys.filter { predicate(self.entries[Int($0.index)]) }
            .compactMap { self.take($0.index, leavingTombstone: false) }
    }

    // MARK: Pieces

    private mutating func insert(_ call: Call, _ deadline: NIODeadline) -> DispatchKey {
        let index: UInt32
        if let reused = self.free.popLast() {
            index = reused
        } else {
            index = UInt32(self.entries.count)
            self.entries.append(Entry())
        }
        self.entries[Int(index)].call = call
        self.entries[Int(index)].deadline = deadline
        self.entries[Int(index)].phase = .waiting
        self.entries[Int(index)].isPatient = false
        self.entries[Int(index)].bytes = 0
        let key = DispatchKey(index: index, generation: self.entries[Int(index)].generation)
        if deadline < .distantFuture { self.addDeadline(deadline, key) }
        return key
    }

    private mutating func addDeadline(_ deadline: NIODeadline, _ key: DispatchKey) {
        // Swept when most are stale, so that the cost per call is constant.
        if self.deadlines.count > 2 * self.count + 64 {
            let entries = self.entries
            self.deadlines.sweep { entries[Int($0.index)].generation == $0.generation }
        }
        self.deadlines.insert(DeadlineHeap.Element(deadline: deadline, key: key))
    }

    private mutating func join(_ key: DispatchKey, _ serial: UInt32) {
        self.entries[Int(key.index)].serial = serial
        self.entries[Int(key.index)].phase = .sent
        self.entries[Int(key.index)].connection = self.connection
        self.serials.set(serial, key.index)
        self.inFlightCount += 1
    }

    func call(for key: DispatchKey) -> Call? {
        let entry = self.entries[Int(key.index)]
        return entry.generation == key.generation ? entry.call : nil
    }

    private mutating func take(_ index: UInt32, leavingTombstone: Bool) -> Removed? {
        let entry = self.entries[Int(index)]
        guard let call = entry.call else { return nil }
        guard entry.serial != 0 else {
            self.waitsNoLonger(index)
            self.release(index)
            return Removed(call: call, phase: entry.phase, serial: nil)
        }
        self.release(index)
        self.inFlightCount -= 1
        if entry.connection != self.connection { self.leftDraining(entry.connection) }
        if leavingTombstone, entry.phase == .sent, self.maximumTombstones > 0 {
            self.bury(entry.serial)
        } else {
            self.serials.remove(entry.serial)
        }
        return Removed(call: call, phase: entry.phase, serial: entry.serial, connection: entry.connection)
    }

    private mutating func leftDraining(_ connection: ConnectionID) {
        guard let count = self.draining[connection] else { return }
        self.draining[connection] = count > 1 ? count - 1 : nil
        if count <= 1 { self.drained.append(connection) }
    }

    private mutating func waitsNoLonger(_ index: UInt32) {
        self.waitingCount -= 1
        self.waitingBytes -= self.entries[Int(index)].bytes
        self.entries[Int(index)].bytes = 0
    }

    private mutating func release(_ index: UInt32) {
        self.entries[Int(index)].call = nil
        self.entries[Int(index)].serial = 0
        self.entries[Int(index)].generation &+= 1
        self.free.append(index)
    }

    private mutating func bury(_ serial: UInt32) {
        self.serials.set(serial, Self.tombstone)
        self.tombstones.append(serial)
        while self.tombstones.count > self.maximumTombstones, let oldest = self.tombstones.popFirst() {
            if self.serials[oldest] == Self.tombstone { self.serials.remove(oldest) }
        }
    }

    /// The next serial that is neither in flight nor a tombstone.
    private mutating func takeSerial() -> UInt32? {
        let space = Int(self.serialRange.upperBound - self.serialRange.lowerBound) + 1
        guard self.inFlightCount < self.maximumInFlight, self.serials.count < space else { return nil }
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
