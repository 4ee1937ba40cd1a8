/// When calls are to start at a fixed rate, whatever becomes of those before: an open loop.
///
/// A start that comes late does not move the next one, so that the latency, which counts from here, holds the wait of
/// the calls that a slow server keeps from starting.
struct StartSchedule: Sendable {
    private let origin: UInt64
    /// In nanoseconds, between two starts on this connection.
    private let interval: Double
    /// Of the first one, in intervals.
    private let offset: Double
    private var index = 0

    /// - Parameters:
    ///   - rate: Calls per second, on all connections together.
    ///   - origin: When it begins, in nanoseconds.
    ///   - connection: Which of the connections this is for, from 0: they take turns.
    init(rate: Double, origin: UInt64, connection: Int = 0, of connections: Int = 1) {
        self.origin = origin
        self.interval = 1e9 * Double(connections) / rate
        self.offset = Double(connection) / Double(connections)
    }

    /// When the next call is to start. Each is computed from the origin, so that rounding adds nothing up.
    var next: UInt64 { self.origin + UInt64(((Double(self.index) + self.offset) * self.interval).rounded()) }

    /// Takes the next start.
    mutating func take() -> UInt64 {
        defer { self.index += 1 }
        return self.next
    }

    /// Takes the next start if it is due.
    mutating func takeDue(at now: UInt64) -> UInt64? {
        self.next <= now ? self.take() : nil
    }
}
