// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import HHSocketServer
import NIOCore

/// The answers of the paths, without the connection.
struct MonitoringAnswers: Sendable {
    struct Answer: Hashable, Sendable {
        /// The status of HTTP.
        var status: Int
        var contentType = "text/plain; charset=utf-8"
        var body: String
        /// The methods that the path has, for a request with another one.
        var allow: String?

        /// The answer's bytes. The connection closes after them.
        ///
        /// - Parameter request: The request; nil if it is no request.
        func encoded(for request: MonitoringRequest?) -> ByteBuffer {
            var bytes = ByteBuffer()
            bytes.writeString("\(request?.version ?? "HTTP/1.1") \(self.status) \(HTTPSyntax.reason(self.status))\r\n")
            bytes.writeField("content-type", self.contentType)
            bytes.writeField("content-length", "\(self.body.utf8.count)")
            if let allow = self.allow { bytes.writeField("allow", allow) }
            bytes.writeField("connection", "close")
            bytes.writeStaticString("\r\n")
            if request?.method != "HEAD" { bytes.writeString(self.body) }
            return bytes
        }
    }

    let server: SocketServer
    let metrics: PrometheusMetrics?
    let isReady: (@Sendable () async -> Bool)?

    /// The query of the target is ignored.
    func answer(to request: MonitoringRequest) async -> Answer {
        guard request.method == "GET" || request.method == "HEAD" else {
            return Answer(status: 405, body: "use GET\n", allow: "GET, HEAD")
        }
        switch request.target.prefix(while: { $0 != "?" }) {
        case "/metrics":
            guard let metrics = self.metrics else {
                return Answer(status: 404, body: "this program exports no metrics\n")
            }
            return Answer(status: 200, contentType: "text/plain; version=0.0.4; charset=utf-8", body: metrics.text)
        case "/readyz":
            guard self.server.isAccepting else {
                return Answer(status: 503, body: "the server accepts no connections\n")
            }
            guard await self.isReady?() ?? true else {
                return Answer(status: 503, body: "the program is not ready\n")
            }
            return Answer(status: 200, body: "ready\n")
        case "/livez":
            await self.server.awaitTurns()
            return Answer(status: 200, body: "alive\n")
        default:
            return Answer(status: 404, body: "paths: /metrics /readyz /livez\n")
        }
    }
}
