// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketRPC

/// The metrics of a call, for `--metrics`.
enum MetricsPrinter {
    /// Returns one line for people, with times counted from the start.
    static func text(_ metrics: SocketTaskMetrics) -> String {
        func moment(_ name: String, _ date: Date?) -> String? {
            date.map { String(format: "%@ %.3f ms", name, $0.timeIntervalSince(metrics.queued) * 1_000) }
        }
        let moments = [
            moment("sent", metrics.sent), moment("first byte", metrics.firstByte),
            String(format: "completed %.3f ms", metrics.duration.inMilliseconds),
        ].compactMap { $0 }
        let attempts = metrics.attempts == 1 ? "1 attempt" : "\(metrics.attempts) attempts"
        let server = metrics.server.map { "; \($0)" } ?? ""
        return "metrics: \(moments.joined(separator: ", ")); \(attempts); "
            + "\(metrics.bytesSent) B sent, \(metrics.bytesReceived) B received\(server)"
    }

    /// Adds the metrics to a JSON object; times that do not exist are null.
    static func add(_ metrics: SocketTaskMetrics, to object: inout JSONLine) {
        func add(_ name: String, _ date: Date?) {
            object.add(name, date.map { $0.timeIntervalSince(metrics.queued) * 1_000 } ?? .nan, digits: 3)
        }
        add("sentMs", metrics.sent)
        add("firstByteMs", metrics.firstByte)
        object.add("attempts", metrics.attempts)
        object.add("bytesSent", metrics.bytesSent)
        object.add("bytesReceived", metrics.bytesReceived)
    }
}
