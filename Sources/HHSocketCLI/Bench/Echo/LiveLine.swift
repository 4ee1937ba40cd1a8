// SPDX-License-Identifier: Apache-2.0
import Foundation

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

    /// Draws on stderr until it is cancelled, which clears the line.
    ///
    /// - Parameters:
    ///   - unit: What is counted.
    ///   - calls: The number of calls that count so far.
    static func drawing(
        _ window: MeasuredWindow,
        unit: String = "calls",
        calls: @escaping @Sendable () -> Int
    ) -> Task<Void, Never> {
        Task {
            var line = LiveLine(window, unit: unit)
            while !Task.isCancelled {
                StandardError.write("\r\u{1B}[K\(line.text(at: Uptime.now, calls: calls()))")
                try? await Task.sleep(for: .milliseconds(500))
            }
            StandardError.write("\r\u{1B}[K")
        }
    }
}
