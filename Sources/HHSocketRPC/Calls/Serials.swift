// SPDX-License-Identifier: Apache-2.0
import DequeModule

/// The serials of a connection's requests: which one is next, which are in flight, and with which call.
///
/// A request that is given up leaves a tombstone, a serial that is not issued, so that the late answer is known as such
/// and completes no other call. The number of tombstones is bounded: the oldest is removed.
struct Serials: ~Copyable {
    /// The classification of an answer for which no call waits.
    enum Unawaited: Hashable, Sendable {
        /// Its call was given up before.
        case late
        /// Its call was answered before.
        case duplicate
        /// No call had this serial.
        case unknown
    }

    /// The value that marks a tombstone in `map`.
    private static var tombstone: UInt32 { .max }

    private let range: ClosedRange<UInt32>
    private let rangeCount: Int
    private let maximumTombstones: Int
    /// Maps serials in flight to the numbers of their calls, and the others that are not free to `tombstone`.
    private var map = SerialMap()
    /// The serials with a tombstone, oldest first.
    private var tombstones: Deque<UInt32> = []
    private var next: UInt32
    private var hasWrapped = false
    /// The number of serials in flight.
    private(set) var inFlightCount = 0

    init(_ range: ClosedRange<UInt32>, maximumTombstones: Int) {
        self.range = range
        self.rangeCount = Int(range.upperBound - range.lowerBound) + 1
        // At most half of the serials, so that the others remain for calls.
        self.maximumTombstones = min(maximumTombstones, self.rangeCount / 2)
        self.next = range.lowerBound
    }

    /// Whether there is a serial that is neither in flight nor a tombstone.
    @inline(__always)
    var hasFree: Bool { self.map.count < self.rangeCount }

    /// The number of the call with this serial in flight; nil if there is none.
    @inline(__always)
    subscript(serial: UInt32) -> UInt32? {
        guard let call = self.map[serial], call != Self.tombstone else { return nil }
        return call
    }

    // MARK: In flight

    /// Issues the next serial. Requires ``hasFree``. It is in flight once a call has it.
    @inline(__always)
    mutating func issue() -> UInt32 {
        var serial = self.next
        while self.map.contains(serial) { serial = self.following(serial) }
        self.next = self.following(serial)
        return serial
    }

    private mutating func following(_ serial: UInt32) -> UInt32 {
        guard serial < self.range.upperBound else {
            self.hasWrapped = true
            return self.range.lowerBound
        }
        return serial + 1
    }

    /// Records that a serial that has just been issued is in flight, with the call of this number.
    @inline(__always)
    mutating func set(_ serial: UInt32, _ call: UInt32) {
        assert(call != Self.tombstone)
        self.map.set(serial, call)
        self.inFlightCount += 1
    }

    /// Frees a serial in flight.
    @inline(__always)
    mutating func remove(_ serial: UInt32) {
        self.map.remove(serial)
        self.inFlightCount -= 1
    }

    /// The distance from a serial in flight to the next one, in the order of issue: at least 1, and greater if it was
    /// issued earlier. Serials increase and wrap around.
    func age(of serial: UInt32) -> Int {
        let distance = Int(self.next) - Int(serial)
        return distance > 0 ? distance : distance + self.rangeCount
    }

    // MARK: Tombstones

    /// Replaces a serial in flight by a tombstone, since it may still be answered.
    mutating func bury(_ serial: UInt32) {
        guard self.maximumTombstones > 0 else { return self.remove(serial) }
        self.map.set(serial, Self.tombstone)
        self.inFlightCount -= 1
        self.tombstones.append(serial)
        while self.tombstones.count > self.maximumTombstones, let oldest = self.tombstones.popFirst() {
            self.map.remove(oldest)
        }
    }

    /// Classifies an answer whose serial is not in flight.
    ///
    /// - Parameter isFinal: Whether a correct server sends nothing more for this serial, whose tombstone is removed.
    mutating func received(unawaited serial: UInt32, isFinal: Bool) -> Unawaited {
        guard self.map.contains(serial) else { return self.wasIssued(serial) ? .duplicate : .unknown }
        if isFinal { self.exhume(serial) }
        return .late
    }

    private func wasIssued(_ serial: UInt32) -> Bool {
        self.range.contains(serial) && (self.hasWrapped || serial < self.next)
    }

    /// Removes a tombstone. The serial may be issued and buried again, and must not be listed twice.
    private mutating func exhume(_ serial: UInt32) {
        self.map.remove(serial)
        if let index = self.tombstones.firstIndex(of: serial) { self.tombstones.remove(at: index) }
    }

    /// Removes all tombstones: no late answers can arrive any more.
    mutating func removeTombstones() {
        for serial in self.tombstones { self.map.remove(serial) }
        self.tombstones.removeAll()
    }
}
