// SPDX-License-Identifier: Apache-2.0
import HHSocket

extension CallTable where Call: ~Copyable {
    /// The calls that wait for a connection, in the order in which they will be sent.
    ///
    /// A call that no longer waits, or waits in another place, leaves a stub. Its entry knows the number of its valid
    /// place.
    struct Line {
        private struct Place {
            var key: DispatchKey
            var number: UInt32
        }

        private var places: WaitingLine<Place>

        init(maximumCount: Int, maximumBytes: Int) {
            self.places = WaitingLine(maximumCount: maximumCount, maximumBytes: maximumBytes)
        }

        /// The number of places, including stubs.
        var length: Int { self.places.length }
        /// The number of calls that wait.
        var count: Int { self.places.count }
        /// The size of the calls that wait, in bytes.
        var bytes: Int { self.places.bytes }

        /// Whether one more call of this size may wait.
        func hasRoom(for bytes: Int) -> Bool { self.places.hasRoom(for: bytes) }

        /// Adds a call, whose entry knows that it waits.
        mutating func append(_ key: DispatchKey, _ priority: FramePriority, in calls: inout SlotTable<Entry>) {
            let place = Place(key: key, number: calls[key.index].nextPlace())
            let (bytes, isReturning) = (calls[key.index].bytes, calls[key.index].isReturning)
            self.places.append(place, priority, cost: bytes, isReturning: isReturning)
        }

        /// Moves a call that waits behind the others of this priority.
        mutating func move(_ key: DispatchKey, to priority: FramePriority, in calls: inout SlotTable<Entry>) {
            let place = Place(key: key, number: calls[key.index].nextPlace())
            let (bytes, isReturning) = (calls[key.index].bytes, calls[key.index].isReturning)
            self.places.move(place, to: priority, cost: bytes, isReturning: isReturning) { Self.isStub($0, calls) }
        }

        /// Removes and returns the first call that waits.
        mutating func popFirst(_ calls: borrowing SlotTable<Entry>) -> DispatchKey? {
            self.places.popFirst(unless: { Self.isStub($0, calls) })?.key
        }

        /// Removes a call of this size, which no longer waits: its place is a stub from now on.
        mutating func makeStub(bytes: Int, in calls: borrowing SlotTable<Entry>) {
            self.places.makeStub(cost: bytes) { Self.isStub($0, calls) }
        }

        /// Removes all places, which must be stubs.
        mutating func removeStubs() {
            self.places.removeStubs()
        }

        private static func isStub(_ place: Place, _ calls: borrowing SlotTable<Entry>) -> Bool {
            !calls.contains(place.key) || !calls[place.key.index].stands(at: place.number)
        }
    }
}
