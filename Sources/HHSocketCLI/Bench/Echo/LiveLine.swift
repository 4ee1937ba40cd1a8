// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket

/// The line that a terminal shows during a measurement.
struct LiveLine {
    private let window: MeasuredWindow
    private var lastTime: UInt64
    private var lastCalls = 0
    /// The unit of the count.
    private let unit: String

    init(_ window: MeasuredWindow, unit: String = "calls") {
        self.window = window
        self.unit = unit
        self.lastTime = window.begin
    }

    /// Returns the current line, without its end.
    ///
    /// - Parameter calls: The number of calls that count so far.
    mutating func text(at now: UInt64, calls: Int) -> String {
        guard now > self.window.begin else { return "warming up" }
        guard now < self.window.end else { return "waiting for calls in flight" }
        let elapsed = Double(now - self.window.begin) * 1e-9
        let span = Double(now - self.lastTime) * 1e-9
        let rate = span > 0 ? Double(calls - self.lastCalls) / span : 0
        self.lastTime = now
        self.lastCalls = calls
        let times = String(format: "%.1f of %.1f s", elapsed, self.window.seconds)
        return "\(times)   \(calls.grouped) \(self.unit)   \(Int(rate.rounded()).grouped) \(self.unit)/s"
    }

    /// Measures, and draws on stderr meanwhile if `isShown`.
    ///
    /// - Parameters:
    ///   - unit: What is counted.
    ///   - count: The number that counts so far.
    static func shown<Measured: Sendable>(
        _ isShown: Bool,
        window: MeasuredWindow,
        unit: String,
        count: @escaping @Sendable () -> Int,
        while measure: () async throws -> Measured
    ) async throws -> Measured {
        guard isShown else { return try await measure() }
        let drawing = Task {
            var line = LiveLine(window, unit: unit)
            while !Task.isCancelled {
                StandardError.write("\r\u{1B}[K\(line.text(at: Uptime.now, calls: count()))")
                try? await Task.sleep(for: .milliseconds(500))
            }
            StandardError.write("\r\u{1B}[K")
        }
        let outcome: Result<Measured, any Error> = await .of { try await measure() }
        drawing.cancel()
        await drawing.value
        return try outcome.get()
    }
}
