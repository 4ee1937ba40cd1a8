// SPDX-License-Identifier: Apache-2.0
/// The measurement of connections that are open.
struct EchoMeasurement: Sendable {
    private let parameters: EchoParameters
    /// The time at which it began.
    let origin: UInt64
    let window: MeasuredWindow

    /// Begins now.
    init(_ parameters: EchoParameters) {
        self.parameters = parameters
        self.origin = Uptime.now
        self.window = MeasuredWindow(origin: self.origin, warmup: parameters.warmup, seconds: parameters.seconds)
    }

    /// Runs the loops of all connections until the window has ended, or the Swift task is cancelled.
    ///
    /// - Throws: ``EchoFailure`` if a call failed or was answered wrongly, or nothing was measured.
    func run(_ loops: [any EchoLoop], showsProgress: Bool) async throws -> EchoResult {
        async let cpu = CPUUse.measured(in: self.window, serverPID: self.parameters.serverPID)
        @Sendable func count() -> Int { loops.reduce(0) { $0 + $1.callsSoFar } }
        let tally = try await LiveLine.shown(showsProgress, window: self.window, unit: "calls", count: count) {
            try await self.tally(of: loops)
        }
        guard tally.window.seconds > 0 else { throw EchoFailure("interrupted before anything was measured") }
        return EchoResult(
            parameters: self.parameters,
            tally: tally,
            cpu: await cpu,
            isInterrupted: tally.window != self.window
        )
    }

    /// Runs all loops at once. The first failure cancels the others.
    private func tally(of loops: [any EchoLoop]) async throws -> EchoTally {
        try await withThrowingTaskGroup(of: EchoTally.self) { group in
            for loop in loops { group.addTask { try await loop.run() } }
            var sum: EchoTally?
            for try await tally in group {
                if sum == nil { sum = tally } else { sum?.add(tally) }
            }
            return sum ?? EchoTally(.closedLoop, window: self.window)
        }
    }
}
