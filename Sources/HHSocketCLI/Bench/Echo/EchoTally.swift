/// What a connection has measured so far: decides which calls count.
struct EchoTally: Sendable {
    enum Pace: Sendable {
        /// Each call that completes makes room for the next. A latency counts if the call completed in the window.
        case closedLoop
        /// Calls start by a schedule. A latency counts if the call was to start in the window, however late it
        /// completed.
        case schedule
    }

    let pace: Pace
    private(set) var window: MeasuredWindow
    /// Calls that completed in the window.
    private(set) var calls = 0
    /// Calls that were to start in the window and did not, because as many as allowed were in flight.
    private(set) var notStarted = 0
    private(set) var latencies = Latencies()

    init(_ pace: Pace, window: MeasuredWindow) {
        self.pace = pace
        self.window = window
    }

    /// - Parameter start: When the call started, or was to start.
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

    /// Counts the calls that the schedule still holds when the window has ended. What is known of their latency is that
    /// they waited until then; leaving them out would flatter a server that stood still.
    mutating func countNotStarted(_ schedule: StartSchedule) {
        var schedule = schedule
        while self.window.end > 0, let start = schedule.takeDue(at: self.window.end - 1) {
            guard self.window.contains(start) else { continue }
            self.notStarted += 1
            self.latencies.record(nanoseconds: self.window.end - start)
        }
    }

    /// The measurement is over before its time.
    mutating func cut(at time: UInt64) {
        self.window.cut(at: time)
    }

    /// Adds what another connection measured in the same window.
    mutating func add(_ other: EchoTally) {
        self.calls += other.calls
        self.notStarted += other.notStarted
        self.latencies.add(other.latencies)
        self.window.cut(at: other.window.end)
    }
}
