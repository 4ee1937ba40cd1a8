// SPDX-License-Identifier: Apache-2.0
/// The measurement of a connection so far. Decides which calls count.
struct EchoTally: Sendable {
    enum Pace: Sendable {
        /// Each call that completes makes room for the next. A latency counts if the call completed in the window.
        case closedLoop
        /// Calls start by a schedule. A latency counts if the call was due in the window, however late it completed.
        case schedule
    }

    let pace: Pace
    private(set) var window: MeasuredWindow
    /// The number of calls that completed in the window.
    private(set) var calls = 0
    /// The number of calls that were due in the window but did not start, because too many were in flight.
    private(set) var notStarted = 0
    private(set) var latencies = Latencies()

    init(_ pace: Pace, window: MeasuredWindow) {
        self.pace = pace
        self.window = window
    }

    /// Records a completed call.
    ///
    /// - Parameter start: The time at which the call started, or was due.
    @inline(__always)
    mutating func completed(start: UInt64, now: UInt64) {
        let isInWindow = self.window.contains(now)
        if isInWindow { self.calls += 1 }
        let counts =
            switch self.pace {
            case .closedLoop: isInWindow
            case .schedule: self.window.contains(start)
            }
        if counts { self.latencies.record(nanoseconds: now > start ? now - start : 0) }
    }

    /// Counts the calls that are still scheduled when the window has ended. Their latency is at least the wait until
    /// then; omitting them would flatter a server that stalled.
    mutating func countNotStarted(_ schedule: StartSchedule) {
        var schedule = schedule
        while self.window.end > 0, let start = schedule.takeDue(at: self.window.end - 1) {
            guard self.window.contains(start) else { continue }
            self.notStarted += 1
            self.latencies.record(nanoseconds: self.window.end - start)
        }
    }

    /// Ends the measurement early.
    mutating func cut(at time: UInt64) {
        self.window.cut(at: time)
    }

    /// Adds the measurement of another connection in the same window.
    mutating func add(_ other: EchoTally) {
        self.calls += other.calls
        self.notStarted += other.notStarted
        self.latencies.add(other.latencies)
        self.window.cut(at: other.window.end)
    }
}
