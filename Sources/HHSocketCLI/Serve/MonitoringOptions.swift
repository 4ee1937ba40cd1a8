// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket
import HHSocketOperations
import HHSocketServer

/// The address at which a server's metrics and health are available.
struct MonitoringOptions: ParsableArguments {
    @Option(
        help: .value(
            "host:port",
            """
            Answer GET /metrics, /readyz and /livez over HTTP at this address: metrics in Prometheus' text format, and \
            probes. Port 0 picks a free one, which is reported on stderr. Handlers then run in tasks, which are measured.
            """
        ),
        transform: Self.address
    )
    var monitoring: ServerListener?

    private static func address(_ text: String) throws -> ServerListener {
        guard let listener = ListenAddress(argument: text)?.listener, listener.unixPath == nil,
            listener.webSocket == nil, listener.descriptor == nil
        else { throw ValidationError("write HOST:PORT, with an IPv6 address in brackets") }
        return listener
    }

    /// Makes the server and its handlers record metrics; nil if no address is given.
    func metrics(_ configuration: inout SocketServer.Configuration, _ router: inout Router) -> PrometheusMetrics? {
        guard self.monitoring != nil else { return nil }
        let metrics = PrometheusMetrics()
        configuration.metricsFactory = metrics
        router.use(MetricsMiddleware(factory: metrics))
        return metrics
    }

    /// Starts to answer, if an address is given.
    func start(_ server: SocketServer, _ metrics: PrometheusMetrics?) async throws(SocketError) -> MonitoringEndpoint? {
        guard let address = self.monitoring else { return nil }
        let endpoint = MonitoringEndpoint(host: address.host, port: address.port, server: server, metrics: metrics)
        try await endpoint.start()
        if address.port == 0, let found = endpoint.address { StandardError.line("monitoring on \(found)") }
        return endpoint
    }
}
