// SPDX-License-Identifier: Apache-2.0
import HHSocketServer
import Metrics
import Testing

@testable import HHSocketOperations

@Suite struct PrometheusMetricsTests {
    private let metrics = PrometheusMetrics(buckets: [1, 0.01, .infinity, 0.01])

    /// The lines without those of the process and of the exporter itself.
    private func lines(of metrics: PrometheusMetrics? = nil) -> [String] {
        (metrics ?? self.metrics).text.split(separator: "\n").map(String.init).filter {
            !$0.contains("process_") && !$0.contains("hhsocket_metrics_dropped")
        }
    }

    @Test func everyKindIsWritten() {
        Counter(label: "shop.orders", dimensions: [("kind", "tea")], factory: self.metrics).increment(by: 2)
        Counter(label: "shop.orders", dimensions: [("kind", "coffee")], factory: self.metrics).increment()
        Gauge(label: "shop.seats", factory: self.metrics).record(1.5)
        Meter(label: "shop.queue", factory: self.metrics).set(3)
        Recorder(label: "shop.size", factory: self.metrics).record(10)
        let timer = Timer(label: "shop.time", dimensions: [("type", "101")], factory: self.metrics)
        for milliseconds in [5, 10, 500, 2_000] { timer.recordMilliseconds(milliseconds) }
        #expect(
            self.lines() == [
                "# TYPE shop_orders_total counter",
                #"shop_orders_total{kind="coffee"} 1"#,
                #"shop_orders_total{kind="tea"} 2"#,
                "# TYPE shop_queue gauge",
                "shop_queue 3",
                "# TYPE shop_seats gauge",
                "shop_seats 1.5",
                "# TYPE shop_size summary",
                "shop_size_sum 10",
                "shop_size_count 1",
                "# TYPE shop_time_seconds histogram",
                #"shop_time_seconds_bucket{type="101",le="0.01"} 2"#,
                #"shop_time_seconds_bucket{type="101",le="1"} 3"#,
                #"shop_time_seconds_bucket{type="101",le="+Inf"} 4"#,
                #"shop_time_seconds_sum{type="101"} 2.515"#,
                #"shop_time_seconds_count{type="101"} 4"#,
            ]
        )
    }

    @Test func oneNameAndItsLabelsAreOneSeries() {
        let first = Counter(label: "a", dimensions: [("x", "1"), ("y", "2")], factory: self.metrics)
        let second = Counter(label: "a", dimensions: [("y", "2"), ("x", "1")], factory: self.metrics)
        first.increment()
        second.increment(by: 2)
        #expect(self.lines() == ["# TYPE a_total counter", #"a_total{x="1",y="2"} 3"#])
        first.reset()
        #expect(self.lines().last == #"a_total{x="1",y="2"} 0"#)
    }

    @Test func metersCountUpAndDown() {
        let meter = Meter(label: "m", factory: self.metrics)
        meter.increment(by: 5)
        meter.decrement(by: 1.5)
        #expect(self.lines().last == "m 3.5")
    }

    @Test func destroyedMetricsAreNoLongerWritten() {
        let kept = Counter(label: "a", dimensions: [("x", "1")], factory: self.metrics)
        let other = Counter(label: "a", dimensions: [("x", "2")], factory: self.metrics)
        other.destroy()
        #expect(self.lines() == ["# TYPE a_total counter", #"a_total{x="1"} 0"#])
        kept.destroy()
        #expect(self.lines() == [])
    }

    @Test(arguments: [
        ("hhsocket.server.requests", "_total", "hhsocket_server_requests_total"), ("x_total", "_total", "x_total"),
        ("1st", "", "_1st"), ("", "", "_"), ("a-ü:b", "", "a__:b"),
    ])
    func names(label: String, suffix: String, name: String) {
        #expect(PrometheusText.name(label, suffix: suffix) == name)
    }

    @Test(arguments: [
        ([("b", "2"), ("a", "1")], #"a="1",b="2""#), ([("a", ""), ("b", "x")], #"b="x""#),
        // Names that Prometheus reserves, and names that are equal once they are written.
        ([("le", "1"), ("__name__", "n")], #"label___name__="n",label_le="1""#),
        ([("a.b", "1"), ("a_b", "2")], #"a_b="1""#), ([("a", "\"\\\nü")], #"a="\"\\\nü""#),
        ([("a:b", "1")], #"a_b="1""#),
    ])
    func labels(dimensions: [(String, String)], text: String) {
        #expect(PrometheusText.labels(dimensions) == text)
    }

    @Test(arguments: [
        (0.0, "0"), (3, "3"), (-1, "-1"), (0.25, "0.25"), (1e300, "1e+300"), (.infinity, "+Inf"), (-.infinity, "-Inf"),
        (.nan, "NaN"),
    ])
    func numbers(value: Double, text: String) {
        #expect(PrometheusText.number(value) == text)
    }

    /// Each name is exported with only one kind, and the number of series is bounded.
    @Test func metricsThatCannotBeExportedAreCounted() {
        let metrics = PrometheusMetrics(maximumSeries: 2)
        Gauge(label: "a", factory: metrics).record(1)
        Recorder(label: "a", dimensions: [("x", "1")], factory: metrics).record(1)
        Gauge(label: "b", factory: metrics).record(2)
        Gauge(label: "c", factory: metrics).record(3)
        #expect(self.lines(of: metrics) == ["# TYPE a gauge", "a 1", "# TYPE b gauge", "b 2"])
        #expect(metrics.text.contains("\nhhsocket_metrics_dropped_total 2\n"))
        // There is room again.
        Gauge(label: "a", factory: metrics).destroy()
        Gauge(label: "c", factory: metrics).record(3)
        #expect(self.lines(of: metrics) == ["# TYPE b gauge", "b 2", "# TYPE c gauge", "c 3"])
    }

    @Test func theProcessIsMeasured() throws {
        let text = self.metrics.text
        func value(_ name: String) throws -> Double {
            let line = try #require(text.split(separator: "\n").first { $0.hasPrefix("\(name) ") }, "\(name)")
            return try #require(Double(line.split(separator: " ")[1]))
        }
        #expect(try value("process_cpu_seconds_total") > 0)
        #expect(try value("process_start_time_seconds") > 1.7e9)
        let open = try value("process_open_fds")
        #expect(open > 2)
        let limit = try value("process_max_fds")
        #expect(open < limit)
        #if os(Linux)
        #expect(try value("process_resident_memory_bytes") > 1_048_576)
        #endif
    }
}
