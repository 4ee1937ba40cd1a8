// SPDX-License-Identifier: Apache-2.0
import Foundation

/// A measurement of streams, and its report.
struct StreamResult: BenchResult {
    var parameters: EchoParameters
    var direction: StreamDirection
    var sample: StreamSample
    /// The plain calls beside the streams.
    var calls: EchoTally?

    var isInterrupted: Bool { self.sample.isInterrupted }

    var itemsPerSecond: Double { Double(self.sample.items) / self.sample.seconds }

    /// The bytes of the items in one direction, in units of a million.
    var megabytesPerSecond: Double { self.itemsPerSecond * Double(self.parameters.body) / 1e6 }

    /// The report as a JSON object on one line.
    var json: String {
        var object = JSONLine()
        object.add("peer", self.parameters.peer)
        object.add("workload", "stream")
        object.add("direction", self.direction.rawValue)
        object.add("body", self.parameters.body)
        object.add("inflight", self.parameters.inFlight)
        object.add("items_per_s", self.itemsPerSecond, digits: 1)
        object.add("mb_per_s", self.megabytesPerSecond, digits: 3)
        object.add("client_cpu_s", self.sample.cpu.client, digits: 3)
        object.add("server_cpu_s", self.sample.cpu.server, digits: 3)
        object.add("seconds", self.sample.seconds, digits: 3)
        object.add("items", self.sample.items)
        object.add("api", self.parameters.api.rawValue)
        object.add("executor", self.parameters.executor?.rawValue)
        object.add("connections", self.parameters.connections)
        object.add("threads", self.parameters.threads)
        object.add("window", self.parameters.window.map(Double.init), digits: 0)
        object.add("interrupted", self.isInterrupted)
        if let calls = self.calls {
            object.add("calls", calls.calls)
            object.add("calls_not_started", calls.notStarted)
            object.add("p50_us", calls.latencies.microseconds(atPercentile: 50), digits: 2)
            object.add("p99_us", calls.latencies.microseconds(atPercentile: 99), digits: 2)
            object.add("max_us", calls.latencies.longestMicroseconds, digits: 2)
        }
        return object.line
    }

    /// The report as several lines: the parameters, the number of items, and their CPU time.
    var summary: String {
        let rate = "\(Int(self.itemsPerSecond.rounded()).grouped) items/s"
        let bytes = String(format: "%.1f MB/s", self.megabytesPerSecond)
        var lines = [self.title]
        lines.append(
            """
            \(self.sample.items.grouped) items in \(String(format: "%.3f s", self.sample.seconds)): \(rate), \(bytes)\
            \(self.direction == .both ? " each way" : "")
            """
        )
        if let cpu = self.sample.cpu.line(per: "item", of: self.sample.items) { lines.append(cpu) }
        if let calls = self.callsLine { lines.append(calls) }
        return lines.joined(separator: "\n") + "\n"
    }

    private var title: String {
        let parameters = self.parameters
        let sender =
            switch self.direction {
            case .down: "from the server"
            case .up: "from the client"
            case .both: "echoed by the server"
            }
        let streams = parameters.inFlight == 1 ? "1 stream" : "\(parameters.inFlight.grouped) streams"
        var parts = ["\(parameters.body.grouped) B items \(sender)"]
        parts.append(
            parameters.connections == 1
                ? streams : "\(streams) on each of \(parameters.connections.grouped) connections"
        )
        if let window = parameters.window { parts.append("windows of \(window.grouped) B") }
        if let executor = parameters.executor { parts.append("\(executor.rawValue) executor") }
        return "\(parameters.peer) at \(parameters.server): \(parts.joined(separator: ", "))"
    }

    private var callsLine: String? {
        guard let calls = self.calls else { return nil }
        return "\(calls.calls.grouped) plain calls beside: latency \(calls.latencies.text(percentiles: [50, 99]) ?? "")"
    }
}
