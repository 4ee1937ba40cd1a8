// SPDX-License-Identifier: Apache-2.0
/// The output of one link, in order: bytes that are ready, then units by priority. It does no I/O: the link pulls, as
/// far as its channel accepts more.
///
/// Units are encoded when their sending begins. A unit that is sent piece by piece continues until a boundary, where
/// units of a higher priority go first, and those of the same priority alternate with it.
package struct SendBuffer<Language: LinkLanguage> {
    private enum Waiting {
        case unit(Language.Unit, cost: Int)
        /// A unit whose sending has begun, at a boundary.
        case outgoing(Outgoing<Language.Unit>, cost: Int)
    }

    /// The outcome of appending a unit.
    package enum Taken: Sendable {
        /// It is sent with the next flush.
        case sent
        /// It waits for the peer to read.
        case queued
        /// Too much waits already.
        case refused
    }

    /// The outcome of ``pull(_:limit:)``.
    package enum Pulled {
        /// Nothing waits.
        case nothing
        /// A unit to begin, by ``begin(_:_:in:)``, or to drop.
        case unit(Language.Unit, FramePriority)
        /// A piece of this unit was written.
        case piece(Outgoing<Language.Unit>)
    }

    /// Bytes that are ready to be written.
    package var bytes = SendBytes()
    /// The largest number of bytes that may wait; an empty queue accepts a unit of any size.
    private let maximumBytes: Int
    private var waiting = PriorityQueue<Waiting>()
    /// The unit that is being written piece by piece.
    private var current: (outgoing: Outgoing<Language.Unit>, priority: FramePriority, cost: Int)? {
        didSet { self.hasCurrent = self.current != nil }
    }
    /// Whether a unit is being sent piece by piece. Every turn reads this, and comparing an optional of a generic type
    /// with nil makes the runtime look up that type.
    private var hasCurrent = false
    /// Whether a unit of a higher priority may be sent before its next piece.
    private var isInterruptible = false
    /// The length of the waiting units on the wire, in bytes.
    private var waitingUnitBytes = 0
    /// Whether units that wait are detached from the reads that they are slices of, as at a server, whose handlers may
    /// answer with a part of the request.
    var detachesWaiting = false
    /// The reads of which waiting units are large slices, which are not copied.
    private var shared = SharedReads()

    package init(maximumBytes: Int) {
        self.maximumBytes = maximumBytes
    }

    /// Whether nothing waits, so that what is appended now is sent at once, if the channel accepts it.
    @inline(__always)
    package var isEmpty: Bool { !self.hasCurrent && self.waiting.isEmpty }

    /// The number of bytes that wait for the channel to accept them, without those that are ready.
    package var waitingBytes: Int {
        guard self.hasCurrent, let current = self.current else { return self.waitingUnitBytes }
        return self.waitingUnitBytes + current.cost - current.outgoing.sent
    }

    /// - Parameter isOpen: Whether the channel accepts more.
    package mutating func append(
        _ unit: consuming Language.Unit,
        _ priority: FramePriority,
        isOpen: Bool,
        in language: inout Language
    ) -> Taken {
        if isOpen, self.isEmpty {
            self.begin(unit, priority, in: &language)
            return .sent
        }
        let cost = language.cost(of: unit)
        guard self.waiting.isEmpty || cost <= self.maximumBytes - self.waitingUnitBytes else { return .refused }
        var unit = unit
        if self.detachesWaiting { self.detach(&unit) }
        self.waiting.append(.unit(unit, cost: cost), priority)
        self.waitingUnitBytes += cost
        return .queued
    }

    private mutating func detach(_ unit: inout Language.Unit) {
        let payload = Language.payload(of: unit)
        if payload.isLargeSlice { self.shared.add(payload) } else { Language.detach(&unit) }
    }

    /// A waiting unit is sent or taken away.
    @inline(__always)
    private mutating func noLongerWaits(_ unit: Language.Unit, cost: Int) {
        self.waitingUnitBytes -= cost
        guard self.shared.bytes > 0 else { return }
        let payload = Language.payload(of: unit)
        if payload.isLargeSlice { self.shared.remove(payload) }
    }

    /// The memory that large slices of reads keep while they wait, in bytes.
    var sharedBytes: Int { self.shared.bytes }

    /// Detaches the unit that is being sent piece by piece, unless it is a large part of what it keeps.
    mutating func detachCurrent() {
        guard self.detachesWaiting, self.hasCurrent, var current = self.current.take() else { return }
        if !Language.payload(of: current.outgoing.unit).isLargeSlice { Language.detach(&current.outgoing.unit) }
        self.current = current
    }

    /// Begins a unit: it is sent now, whole or piece by piece.
    package mutating func begin(
        _ unit: consuming Language.Unit,
        _ priority: FramePriority,
        in language: inout Language
    ) {
        guard let outgoing = language.begin(unit, into: &self.bytes) else { return }
        self.isInterruptible = false
        self.current = (outgoing, priority, language.cost(of: outgoing.unit))
    }

    /// Removes the next waiting entry.
    ///
    /// - Parameter limit: The largest piece, in bytes.
    package mutating func pull(_ language: inout Language, limit: Int) -> Pulled {
        if self.mayInterrupt, let priority = self.waiting.firstPriority,
            case .unit(let unit, let cost)? = self.waiting.popFirst()
        {
            self.noLongerWaits(unit, cost: cost)
            return .unit(unit, priority)
        }
        if let current = self.current.take() {
            return .piece(
                self.writePiece(current.outgoing, current.priority, cost: current.cost, in: &language, limit: limit)
            )
        }
        guard let priority = self.waiting.firstPriority, let next = self.waiting.popFirst() else { return .nothing }
        switch next {
        case .unit(let unit, let cost):
            self.noLongerWaits(unit, cost: cost)
            return .unit(unit, priority)
        case .outgoing(let outgoing, let cost):
            self.waitingUnitBytes -= cost - outgoing.sent
            return .piece(self.writePiece(outgoing, priority, cost: cost, in: &language, limit: limit))
        }
    }

    /// Whether a waiting unit is sent before the next piece of the unit that has begun.
    private var mayInterrupt: Bool {
        guard self.hasCurrent, self.isInterruptible, let current = self.current,
            let priority = self.waiting.firstPriority, priority > current.priority, case .unit? = self.waiting.first
        else { return false }
        return true
    }

    private mutating func writePiece(
        _ begun: Outgoing<Language.Unit>,
        _ priority: FramePriority,
        cost: Int,
        in language: inout Language,
        limit: Int
    ) -> Outgoing<Language.Unit> {
        var outgoing = begun
        let piece = language.nextPiece(of: &outgoing, limit: limit, into: &self.bytes)
        self.isInterruptible = piece == .interruptible
        switch piece {
        case .more, .interruptible:
            self.current = (outgoing, priority, cost)
        case .boundary:
            self.waiting.append(.outgoing(outgoing, cost: cost), priority)
            self.waitingUnitBytes += cost - outgoing.sent
        case .end:
            break
        }
        return outgoing
    }

    /// Removes the units that have not begun, in the order of sending. Units that have begun continue.
    mutating func takeWaitingUnits() -> [(unit: Language.Unit, priority: FramePriority)] {
        var units: [(Language.Unit, FramePriority)] = []
        var others: [(Waiting, FramePriority)] = []
        while let priority = self.waiting.firstPriority, let next = self.waiting.popFirst() {
            if case .unit(let unit, let cost) = next {
                units.append((unit, priority))
                self.noLongerWaits(unit, cost: cost)
            } else {
                others.append((next, priority))
            }
        }
        for (other, priority) in others { self.waiting.append(other, priority) }
        return units
    }

    /// Drops everything that was not sent.
    ///
    /// - Returns: The units that have not begun, in the order of sending.
    @discardableResult
    package mutating func removeAll() -> [Language.Unit] {
        self.bytes.removeAll()
        self.current = nil
        self.waitingUnitBytes = 0
        self.shared = SharedReads()
        var units: [Language.Unit] = []
        while let next = self.waiting.popFirst() {
            if case .unit(let unit, _) = next { units.append(unit) }
        }
        return units
    }
}
