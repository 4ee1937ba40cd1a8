// SPDX-License-Identifier: Apache-2.0
import Atomics
import Metrics
import NIOConcurrencyHelpers

/// A kind of metric that Prometheus has. The raw value is its name in the text format.
enum PrometheusKind: String {
    case counter
    case gauge
    case histogram
    case summary

    /// The end of the names of this kind.
    var suffix: String {
        switch self {
        case .counter: "_total"
        case .histogram: "_seconds"
        case .gauge, .summary: ""
        }
    }
}

/// A metric with one set of labels.
protocol PrometheusSeries: AnyObject, Sendable {
    static var kind: PrometheusKind { get }

    /// Appends the lines of the current value.
    ///
    /// - Parameter labels: As ``PrometheusText/labels(_:)`` makes them, without braces.
    func write(name: String, labels: String, to text: inout String)
}

/// A number that only grows.
final class PrometheusCounter: PrometheusSeries, CounterHandler {
    static var kind: PrometheusKind { .counter }

    private let value = ManagedAtomic<Int64>(0)

    func increment(by amount: Int64) {
        guard amount > 0 else { return }
        self.value.wrappingIncrement(by: amount, ordering: .relaxed)
    }

    func reset() { self.value.store(0, ordering: .relaxed) }

    func write(name: String, labels: String, to text: inout String) {
        PrometheusText.write(name, labels: labels, value: "\(self.value.load(ordering: .relaxed))", to: &text)
    }
}

/// A number that goes up and down.
final class PrometheusGauge: PrometheusSeries, MeterHandler, RecorderHandler {
    static var kind: PrometheusKind { .gauge }

    /// The bits of a `Double`.
    private let bits = ManagedAtomic<UInt64>(0)

    func set(_ value: Int64) { self.set(Double(value)) }
    func set(_ value: Double) { self.bits.store(value.bitPattern, ordering: .relaxed) }
    func record(_ value: Int64) { self.set(value) }
    func record(_ value: Double) { self.set(value) }
    func decrement(by amount: Double) { self.increment(by: -amount) }

    func increment(by amount: Double) {
        var old = self.bits.load(ordering: .relaxed)
        while true {
            let new = (Double(bitPattern: old) + amount).bitPattern
            let outcome = self.bits.compareExchange(expected: old, desired: new, ordering: .relaxed)
            if outcome.exchanged { return }
            old = outcome.original
        }
    }

    func write(name: String, labels: String, to text: inout String) {
        let value = Double(bitPattern: self.bits.load(ordering: .relaxed))
        PrometheusText.write(name, labels: labels, value: PrometheusText.number(value), to: &text)
    }
}

/// Numbers of which the count and the sum are kept.
final class PrometheusSummary: PrometheusSeries, RecorderHandler {
    static var kind: PrometheusKind { .summary }

    private let state = NIOLockedValueBox((count: 0, sum: 0.0))

    func record(_ value: Int64) { self.record(Double(value)) }

    func record(_ value: Double) {
        self.state.withLockedValue {
            $0.count += 1
            $0.sum += value
        }
    }

    func write(name: String, labels: String, to text: inout String) {
        let (count, sum) = self.state.withLockedValue { $0 }
        PrometheusText.write(name + "_sum", labels: labels, value: PrometheusText.number(sum), to: &text)
        PrometheusText.write(name + "_count", labels: labels, value: "\(count)", to: &text)
    }
}

/// Times, counted by how long they are.
final class PrometheusHistogram: PrometheusSeries, TimerHandler {
    private struct State {
        /// The number of times in each bucket and not in an earlier one; the last is that without a bound.
        var counts: [Int]
        var sum = 0.0
    }

    static var kind: PrometheusKind { .histogram }

    private let buckets: [Double]
    private let state: NIOLockedValueBox<State>

    /// - Parameter buckets: The upper bounds in seconds, in ascending order.
    init(buckets: [Double]) {
        self.buckets = buckets
        self.state = NIOLockedValueBox(State(counts: Array(repeating: 0, count: buckets.count + 1)))
    }

    func recordNanoseconds(_ duration: Int64) {
        let seconds = Double(max(duration, 0)) / 1e9
        let index = self.buckets.firstIndex { seconds <= $0 } ?? self.buckets.count
        self.state.withLockedValue {
            $0.counts[index] += 1
            $0.sum += seconds
        }
    }

    func write(name: String, labels: String, to text: inout String) {
        let state = self.state.withLockedValue { $0 }
        let prefix = labels.isEmpty ? "" : labels + ","
        var total = 0
        for (count, bound) in zip(state.counts, self.buckets + [.infinity]) {
            total += count
            let labels = "\(prefix)le=\"\(PrometheusText.number(bound))\""
            PrometheusText.write(name + "_bucket", labels: labels, value: "\(total)", to: &text)
        }
        PrometheusText.write(name + "_sum", labels: labels, value: PrometheusText.number(state.sum), to: &text)
        PrometheusText.write(name + "_count", labels: labels, value: "\(total)", to: &text)
    }
}
