// SPDX-License-Identifier: Apache-2.0
import Foundation

/// A measurement, and its report.
struct EchoResult: BenchResult {
    var parameters: EchoParameters
    var tally: EchoTally
    var cpu: CPUUse
    /// Whether it was ended early.
    var isInterrupted: Bool

    var callsPerSecond: Double { Double(self.tally.calls) / self.tally.window.seconds }

    // MARK: For programs

    /// The report as a JSON object on one line.
    var json: String {
        let latencies = self.tally.latencies
        var object = JSONLine()
        object.add("peer", self.parameters.peer)
        object.add("workload", "echo")
        object.add("body", self.parameters.body)
        object.add("inflight", self.parameters.inFlight)
        object.add("calls_per_s", self.callsPerSecond, digits: 1)
        object.add("p50_us", latencies.microseconds(atPercentile: 50), digits: 2)
        object.add("p99_us", latencies.microseconds(atPercentile: 99), digits: 2)
        object.add("client_cpu_s", self.cpu.client, digits: 3)
        object.add("server_cpu_s", self.cpu.server, digits: 3)
        object.add("seconds", self.tally.window.seconds, digits: 3)
        object.add("calls", self.tally.calls)
        object.add("api", self.parameters.api.rawValue)
        object.add("callbacks", self.parameters.callbacks?.rawValue)
        object.add("connections", self.parameters.connections)
        object.add("threads", self.parameters.threads)
        object.add("rate", self.parameters.rate, digits: 3)
        object.add("not_started", self.tally.notStarted)
        object.add("p90_us", latencies.microseconds(atPercentile: 90), digits: 2)
        object.add("p999_us", latencies.microseconds(atPercentile: 99.9), digits: 2)
        object.add("max_us", latencies.longestMicroseconds, digits: 2)
        object.add("interrupted", self.isInterrupted)
        object.add("hello", self.parameters.hello)
        object.add("executor", self.parameters.executor?.rawValue)
        return object.line
    }

    // MARK: For people

    /// The report as several lines: the parameters, the number of calls, their latencies and their CPU time.
    var summary: String {
        var lines = [self.title]
        let seconds = String(format: "%.3f s", self.tally.window.seconds)
        lines.append(
            "\(self.tally.calls.grouped) calls in \(seconds): \(Int(self.callsPerSecond.rounded()).grouped) calls/s"
        )
        if self.tally.notStarted > 0 {
            let calls =
                self.tally.notStarted == 1 ? "1 more call was" : "\(self.tally.notStarted.grouped) more calls were"
            lines.append("\(calls) due, but waited until the end for a place among \(self.room) in flight")
        }
        if let latencies = self.tally.latencies.text(percentiles: [50, 90, 99, 99.9]) {
            lines.append("latency: \(latencies)")
        }
        if let cpu = self.cpu.line(per: "call", of: self.tally.calls) { lines.append(cpu) }
        let chart = LatencyChart(self.tally.latencies.values)
        if !chart.lines.isEmpty { lines += [""] + chart.lines }
        return lines.joined(separator: "\n") + "\n"
    }

    private var title: String {
        let parameters = self.parameters
        var parts = ["\(parameters.body.grouped) B bodies"]
        parts.append(
            parameters.connections == 1
                ? "\(parameters.inFlight.grouped) in flight"
                : "\(parameters.inFlight.grouped) in flight on each of \(parameters.connections.grouped) connections"
        )
        if let rate = parameters.rate { parts.append("\(String(format: "%g", rate)) calls/s asked for") }
        parts.append("\(parameters.api.rawValue) API")
        if let callbacks = parameters.callbacks { parts.append("\(callbacks.rawValue) callbacks") }
        if let executor = parameters.executor { parts.append("\(executor.rawValue) executor") }
        if parameters.hello { parts.append("after hello") }
        return "\(parameters.peer) at \(parameters.server): \(parts.joined(separator: ", "))"
    }

    private var room: String { (self.parameters.inFlight * self.parameters.connections).grouped }
}
