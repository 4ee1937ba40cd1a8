// SPDX-License-Identifier: Apache-2.0
#if Development
import HHSocket
import NIOCore

/// Closed-loop workloads on the data structures that every call uses, for the package `Benchmarks`.
///
/// They are in this module because the table of calls is generic and internal: the compiler specialises it for
/// `CallEnd` here, and does the same for the class below. In another package they would not be specialised, and the
/// benchmark would not measure the code that clients run.
@_spi(Benchmarks) public enum DispatchWorkload {
    /// A reference, as `SocketTask` is.
    private final class Call: Sendable, TableCall {
        var keeps: Bool { false }
        var existingFlight: Call? { self }

        func makeFlight(
            _: CallFacts,
            kept: UnsafeMutablePointer<Never>,
            key: DispatchKey,
            deadline: NIODeadline
        ) -> Call { self }
    }

    /// The calls of a client that always has the same number in flight.
    public struct Calls: ~Copyable {
        private let call = Call()
        private var table: CallTable<Call>
        /// The serials in flight, in the order in which they will be answered.
        private var serials: [UInt32] = []
        private var next = 0
        private var now = NIODeadline.uptimeNanoseconds(0)

        /// - Parameter inFlight: The number of calls in flight at any time.
        public init(inFlight: Int) {
            self.table = CallTable(maximumInFlight: inFlight, maximumWaiting: 0, maximumTombstones: inFlight)
            self.table.linkIsReady(ConnectionID(number: 1))
            for _ in 0..<inFlight { self.serials.append(self.start()) }
        }

        /// Answers a call and starts another in its place, `count` times. The oldest is answered first.
        ///
        /// - Returns: The number of calls answered: `count`.
        public mutating func replace(_ count: Int) -> Int {
            var answered = 0
            for _ in 0..<count {
                let answer = self.table.takeAnswered(serial: self.serials[self.next], on: ConnectionID(number: 1))
                if case .some = answer { answered += 1 }
                self.serials[self.next] = self.start()
                self.next += 1
                if self.next == self.serials.count { self.next = 0 }
            }
            return answered
        }

        /// - Returns: The serial; 0 if the call was refused, which does not happen while there is room in flight.
        private mutating func start() -> UInt32 {
            // Deadlines differ, so that those of answered calls are reached and swept as in a client.
            self.now = self.now + .microseconds(1)
            let key = self.table.enter(self.call, deadline: self.now + .seconds(8))
            guard case .send(_, let serial) = self.table.attempt(key) else { return 0 }
            return serial
        }
    }

    /// A heap that always holds the same number of deadlines.
    public struct Deadlines {
        private let key: DispatchKey
        private var heap = AlarmHeap<NIODeadline, DispatchKey>()
        /// xorshift32.
        private var random: UInt32 = 2_463_534_242

        public init(count: Int) {
            var table = CallTable<Call>(maximumInFlight: 1, maximumWaiting: 0, maximumTombstones: 0)
            self.key = table.enter(Call(), deadline: .distantFuture)
            for _ in 0..<count { self.insert(after: .uptimeNanoseconds(0)) }
        }

        /// Removes the earliest deadline and inserts another, up to 8 s later at random, `count` times.
        ///
        /// - Returns: The number that were in order: `count`.
        public mutating func replace(_ count: Int) -> Int {
            var inOrder = 0
            var last = NIODeadline.uptimeNanoseconds(0)
            for _ in 0..<count {
                guard let first = self.heap.popDue(now: .distantFuture) else { break }
                if first.time >= last { inOrder += 1 }
                last = first.time
                self.insert(after: first.time)
            }
            return inOrder
        }

        private mutating func insert(after time: NIODeadline) {
            self.random ^= self.random << 13
            self.random ^= self.random >> 17
            self.random ^= self.random << 5
            let later = TimeAmount.nanoseconds(Int64(self.random % 8_000_000) * 1_000)
            self.heap.insert(time + later, self.key)
        }
    }
}
#endif
