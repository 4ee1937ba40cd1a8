// SPDX-License-Identifier: Apache-2.0
import HHSocket
import Metrics
import NIOCore

/// The metrics of calls, for swift-metrics. Not created without a metrics backend, so that calls then have no cost.
///
/// - `hhsocket.calls` (`type`, `outcome`: `ok` or a code's name), `hhsocket.call_time` (`type`): completed calls;
/// - `hhsocket.retries` (`cause`): attempts after the first;
/// - `hhsocket.calls_in_flight`, `hhsocket.calls_waiting`: current numbers, summed over the clients that share a
///   factory;
/// - `hhsocket.late_responses`, `.duplicate_responses`, `.unknown_responses`, `.checksum_failures`,
///   `.malformed_frames`, `.go_away_frames`, `.malformed_go_aways`, `.resent_calls`, `.opened_streams`, `.sent_items`,
///   `.received_items`, `.pushes`, `.dropped_pushes`, `.failed_push_handlers`: as in ``ClientStatistics``.
struct CallMetrics {
    /// The number of types with their own metrics; the calls of all others are counted together, as type `other`,
    /// because a metric is never released.
    static let maximumTypes = 1_000

    private struct Kind: Hashable {
        var type: UInt32?
        var outcome: SocketError.Code?
    }

    private let factory: any MetricsFactory
    private var calls: [Kind: Counter] = [:]
    private var times: [UInt32?: Timer] = [:]
    private var retries: [SocketError.Code: Counter] = [:]
    private let statistics: [KeyPath<ClientStatistics, Int>: Counter]
    private let inFlight: Meter
    private let waiting: Meter
    private var lastInFlight = 0
    private var lastWaiting = 0

    init?(factory: any MetricsFactory) {
        guard !(factory is NOOPMetricsHandler) else { return nil }
        self.factory = factory
        let names: [(KeyPath<ClientStatistics, Int>, String)] = [
            (\.lateResponses, "late_responses"), (\.duplicateResponses, "duplicate_responses"),
            (\.unknownResponses, "unknown_responses"), (\.checksumFailures, "checksum_failures"),
            (\.malformedFrames, "malformed_frames"),
            (\.goAways, "go_away_frames"), (\.malformedGoAways, "malformed_go_aways"),
            (\.resentCalls, "resent_calls"),
            (\.openedStreams, "opened_streams"), (\.sentItems, "sent_items"),
            (\.receivedItems, "received_items"),
            (\.pushes, "pushes"), (\.droppedPushes, "dropped_pushes"),
            (\.failedPushHandlers, "failed_push_handlers"),
        ]
        self.statistics = Dictionary(
            uniqueKeysWithValues: names.map { ($0, Counter(label: "hhsocket.\($1)", factory: factory)) }
        )
        self.inFlight = Meter(label: "hhsocket.calls_in_flight", factory: factory)
        self.waiting = Meter(label: "hhsocket.calls_waiting", factory: factory)
    }

    /// Records the completion of a call of this type.
    mutating func completed(_ type: UInt32, _ outcome: SocketError.Code?, after time: TimeAmount) {
        let type = self.times[type] != nil || self.times.count < Self.maximumTypes ? type : nil
        let name = type.map { "\($0)" } ?? "other"
        let timer =
            self.times[type]
            ?? Timer(label: "hhsocket.call_time", dimensions: [("type", name)], factory: self.factory)
        self.times[type] = timer
        timer.recordNanoseconds(time.nanoseconds)
        let kind = Kind(type: type, outcome: outcome)
        let counter =
            self.calls[kind]
            ?? Counter(
                label: "hhsocket.calls",
                dimensions: [("type", name), ("outcome", outcome.map { Self.name(of: $0) } ?? "ok")],
                factory: self.factory
            )
        self.calls[kind] = counter
        counter.increment()
    }

    /// The name of an outcome. A server's own statuses share one, since it could make up any number of them.
    private static func name(of code: SocketError.Code) -> String {
        code.serverStatus == nil ? "\(code)" : "server"
    }

    mutating func retried(after cause: SocketError.Code) {
        let counter =
            self.retries[cause]
            ?? Counter(label: "hhsocket.retries", dimensions: [("cause", Self.name(of: cause))], factory: self.factory)
        self.retries[cause] = counter
        counter.increment()
    }

    func counted(_ statistic: KeyPath<ClientStatistics, Int>, by amount: Int) {
        self.statistics[statistic]?.increment(by: amount)
    }

    /// Records the number of calls at present.
    mutating func measure(inFlight: Int, waiting: Int) {
        Self.move(self.inFlight, &self.lastInFlight, to: inFlight)
        Self.move(self.waiting, &self.lastWaiting, to: waiting)
    }

    private static func move(_ meter: Meter, _ last: inout Int, to value: Int) {
        guard value != last else { return }
        if value > last {
            meter.increment(by: Double(value - last))
        } else {
            meter.decrement(by: Double(last - value))
        }
        last = value
    }
}
