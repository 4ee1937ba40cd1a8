// SPDX-License-Identifier: Apache-2.0
/// A schedule of calls that start at a fixed rate, regardless of earlier ones: an open loop.
///
/// A late start does not delay the next one. The latency counts from the scheduled start, so it includes the wait of
/// calls that a slow server keeps from starting.
struct StartSchedule: Sendable {
    private let origin: UInt64
    /// The time between two starts on this connection, in nanoseconds.
    private let interval: Double
    /// The offset of the first start, in intervals.
    private let offset: Double
    private var index = 0

    /// - Parameters:
    ///   - rate: The number of calls per second, on all connections together.
    ///   - origin: The time at which the schedule begins, in nanoseconds.
    ///   - connection: The index of the connection, from 0: connections take turns.
    init(rate: Double, origin: UInt64, connection: Int = 0, of connections: Int = 1) {
        self.origin = origin
        self.interval = 1e9 * Double(connections) / rate
        self.offset = Double(connection) / Double(connections)
    }

    /// The time of the next start. Each is computed from the origin, so that rounding errors do not accumulate.
    var next: UInt64 { self.origin + UInt64(((Double(self.index) + self.offset) * self.interval).rounded()) }

    /// Removes and returns the next start.
    mutating func take() -> UInt64 {
        defer { self.index += 1 }
        return self.next
    }

    /// Removes and returns the next start if it is due.
    mutating func takeDue(at now: UInt64) -> UInt64? {
        self.next <= now ? self.take() : nil
    }
}
