// SPDX-License-Identifier: Apache-2.0
public import Metrics
import NIOConcurrencyHelpers

/// A backend of swift-metrics that keeps metrics in memory and writes them in Prometheus' text format.
///
/// ```swift
/// let metrics = PrometheusMetrics()
/// configuration.metricsFactory = metrics
/// router.use(MetricsMiddleware(factory: metrics))
/// let monitoring = MonitoringEndpoint(server: server, metrics: metrics)
/// ```
/// Or `MetricsSystem.bootstrap(metrics)`, for the metrics of all libraries of the process.
///
/// Names follow Prometheus' conventions: characters other than letters, digits, `_` and `:` become `_`, counters end
/// with `_total`, and timers are histograms of seconds whose names end with `_seconds`. A meter, and a recorder that
/// does not aggregate, is a gauge; a recorder that aggregates is a summary without quantiles. The guide on operations
/// lists the metrics of clients and servers. The metrics of the process are added: CPU time, memory and file
/// descriptors.
public final class PrometheusMetrics: MetricsFactory {
    /// The upper bounds of a timer's buckets by default, in seconds: 0.5 ms to 10 s.
    private static let defaultBuckets: [Double] = [
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
    ]

    private struct Family {
        let kind: PrometheusKind
        /// The series by their labels as text.
        var series: [String: any PrometheusSeries] = [:]
    }

    private struct State {
        var families: [String: Family] = [:]
        var count = 0
        /// The handlers that were made and are not exported.
        var dropped: Int64 = 0
    }

    private let buckets: [Double]
    private let maximumSeries: Int
    private let process = ProcessMetrics()
    private let state = NIOLockedValueBox(State())

    /// - Parameters:
    ///   - buckets: The upper bounds of a timer's buckets, in seconds; nil, the default: 14 from 0.5 ms to 10 s. Each
    ///     is a line for each timer and set of labels.
    ///   - maximumSeries: The number of metrics with different names or labels that are exported; 10,000 by default.
    ///     Further ones are counted in `hhsocket_metrics_dropped_total`, and otherwise ignored.
    public init(buckets: [Double]? = nil, maximumSeries: Int = 10_000) {
        self.buckets = Set((buckets ?? Self.defaultBuckets).filter(\.isFinite)).sorted()
        self.maximumSeries = maximumSeries
    }

    /// The metrics with their present values in Prometheus' text format, version 0.0.4, ordered by name and labels.
    public var text: String {
        let (families, dropped) = self.state.withLockedValue { ($0.families, $0.dropped) }
        var text = ""
        for (name, family) in families.sorted(by: { $0.key < $1.key }) {
            text += "# TYPE \(name) \(family.kind.rawValue)\n"
            for (labels, series) in family.series.sorted(by: { $0.key < $1.key }) {
                series.write(name: name, labels: labels, to: &text)
            }
        }
        text += "# TYPE hhsocket_metrics_dropped_total counter\nhhsocket_metrics_dropped_total \(dropped)\n"
        self.process.write(to: &text)
        return text
    }

    // MARK: MetricsFactory

    public func makeCounter(label: String, dimensions: [(String, String)]) -> any CounterHandler {
        self.series(label, dimensions: dimensions) { PrometheusCounter() }
    }

    public func makeMeter(label: String, dimensions: [(String, String)]) -> any MeterHandler {
        self.series(label, dimensions: dimensions) { PrometheusGauge() }
    }

    public func makeRecorder(
        label: String,
        dimensions: [(String, String)],
        aggregate: Bool
    ) -> any RecorderHandler {
        if aggregate {
            self.series(label, dimensions: dimensions) { PrometheusSummary() }
        } else {
            self.series(label, dimensions: dimensions) { PrometheusGauge() }
        }
    }

    public func makeTimer(label: String, dimensions: [(String, String)]) -> any TimerHandler {
        self.series(label, dimensions: dimensions) { PrometheusHistogram(buckets: self.buckets) }
    }

    public func destroyCounter(_ handler: any CounterHandler) { self.remove(handler) }
    public func destroyMeter(_ handler: any MeterHandler) { self.remove(handler) }
    public func destroyRecorder(_ handler: any RecorderHandler) { self.remove(handler) }
    public func destroyTimer(_ handler: any TimerHandler) { self.remove(handler) }

    /// Returns the series of a name and labels; one that is not exported where the name belongs to another kind, or
    /// where there are too many.
    private func series<Series: PrometheusSeries>(
        _ label: String,
        dimensions: [(String, String)],
        make: () -> Series
    ) -> Series {
        let name = PrometheusText.name(label, suffix: Series.kind.suffix)
        let labels = PrometheusText.labels(dimensions)
        return self.state.withLockedValue { state in
            var family = state.families[name] ?? Family(kind: Series.kind)
            if let known = family.series[labels] as? Series { return known }
            let made = make()
            guard family.kind == Series.kind, state.count < self.maximumSeries else {
                state.dropped += 1
                return made
            }
            family.series[labels] = made
            state.families[name] = family
            state.count += 1
            return made
        }
    }

    private func remove(_ handler: AnyObject) {
        self.state.withLockedValue { state in
            for (name, family) in state.families {
                guard let (labels, _) = family.series.first(where: { $0.value === handler }) else { continue }
                state.families[name]?.series[labels] = nil
                if family.series.count == 1 { state.families[name] = nil }
                state.count -= 1
                return
            }
        }
    }
}
