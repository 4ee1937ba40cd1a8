// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketOperations
import HHSocketServer
import HHSocketTesting
import TestSupport
import Testing

/// The pages and files with names of metrics in Prometheus.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct MonitoringGuideTests {
    private static let files =
        ["Sources/HHSocketOperations/HHSocketOperations.docc/Monitoring.md"]
        + ["Sizing", "Troubleshooting", "FirstServer"].map { "Sources/HHSocketServer/HHSocketServer.docc/\($0).md" }
        + ["alerts.yaml", "alerts.test.yaml", "dashboard.json"].map { "Examples/Deployment/\($0)" }

    @Test func everyExampleOfThePageIsInThisFile() throws {
        #expect(try DocumentationPage(guide: "Monitoring").shortcomings(allowing: ["Foundation"]) == [])
    }

    /// Returns the metrics of a server that has answered a request.
    private func exported() async throws -> Set<String> {
        var configuration = SocketServer.Configuration()
        var router = Router()
        let logger = Logger(label: "guide", factory: { _ in SwiftLogNoOpLogHandler() })

        let metrics = PrometheusMetrics()
        configuration.metricsFactory = metrics
        router.use(MetricsMiddleware(factory: metrics))
        let server = SocketServer(configuration: configuration, router: router)
        let monitoring = MonitoringEndpoint(host: "0.0.0.0", server: server, metrics: metrics)
        let group = ServiceGroup(
            services: [monitoring, server],
            gracefulShutdownSignals: [.sigterm, .sigint],
            logger: logger
        )

        // Not run: the page's port may be taken.
        withExtendedLifetime(group) {}
        try await server.start()
        let client = try await HostileClient.connect(to: server.address)
        await client.perform(.request(101, serial: 50))
        _ = try await client.response()
        await server.shutdown(gracePeriod: .zero)
        return Set(metrics.text.matches(of: /TYPE ([a-zA-Z0-9_:]+) [a-z]+\n/).map { String($0.output.1) })
    }

    @Test func everyMetricThatIsNamedIsExported() async throws {
        // This metric is exported once a handler has answered.
        let exported = try await self.exported().union(["hhsocket_server_answer_time_seconds"])
        #expect(exported.count > 60)
        for file in Self.files {
            let text = try DocumentationPage(file).text
            let names = text.matches(of: /\b(?:hhsocket_server|hhsocket_metrics|process)_[a-z_]*[a-z]\b/)
                .map { String($0.output) }
            #expect(!names.isEmpty, "\(file)")
            for name in names {
                let family = name.replacing(/_(bucket|sum|count)$/, with: "")
                #expect(exported.contains(name) || exported.contains(family), "\(file): \(name)")
            }
        }
    }

    /// The blocks of the page are equal to the files.
    @Test func theConfigurationIsTheFile() throws {
        let file = try DocumentationPage("Examples/Deployment/prometheus.yaml").text
        let block = try #require(try DocumentationPage(guide: "Monitoring").blocks("yaml").first)
        #expect(file.hasSuffix("\n\(block)\n"))
    }

    @Test func everyAlertIsExplained() throws {
        let rules = try DocumentationPage("Examples/Deployment/alerts.yaml").text
        let names = rules.matches(of: /- alert: ([A-Za-z]+)/).map { String($0.output.1) }
        let page = try DocumentationPage(guide: "Monitoring", section: "Alerts").text
        #expect(names.count > 10)
        for name in names { #expect(page.contains("`\(name)`"), "\(name)") }
    }
}
