// SPDX-License-Identifier: Apache-2.0
import NIOHTTP1

/// The answers of the paths, without the connection.
struct MonitoringAnswers: Sendable {
    struct Answer: Hashable, Sendable {
        var status: HTTPResponseStatus
        var contentType = "text/plain; charset=utf-8"
        var body: String
        /// The methods that the path has, for a request with another one.
        var allow: String?
    }

    let server: SocketServer
    let metrics: PrometheusMetrics?
    let isReady: (@Sendable () async -> Bool)?

    /// - Parameter target: A path, and maybe a query, which is ignored.
    func answer(_ method: HTTPMethod, _ target: String) async -> Answer {
        guard method == .GET || method == .HEAD else {
            return Answer(status: .methodNotAllowed, body: "use GET\n", allow: "GET, HEAD")
        }
        switch target.prefix(while: { $0 != "?" }) {
        case "/metrics":
            guard let metrics = self.metrics else {
                return Answer(status: .notFound, body: "this program exports no metrics\n")
            }
            return Answer(status: .ok, contentType: "text/plain; version=0.0.4; charset=utf-8", body: metrics.text)
        case "/readyz":
            guard self.server.isAccepting else {
                return Answer(status: .serviceUnavailable, body: "the server accepts no connections\n")
            }
            guard await self.isReady?() ?? true else {
                return Answer(status: .serviceUnavailable, body: "the program is not ready\n")
            }
            return Answer(status: .ok, body: "ready\n")
        case "/livez":
            await self.server.awaitTurns()
            return Answer(status: .ok, body: "alive\n")
        default:
            return Answer(status: .notFound, body: "paths: /metrics /readyz /livez\n")
        }
    }
}
