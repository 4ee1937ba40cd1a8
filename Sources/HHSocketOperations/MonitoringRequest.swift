// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

/// The head of a request to a monitoring endpoint: any method, HTTP/1.0 or HTTP/1.1.
struct MonitoringRequest: Hashable, Sendable {
    /// The reason why a request is refused before its path is read.
    enum Fault: HTTPHeadFailure, Hashable {
        case notHTTP
        case headTooLong
        case malformedHead(HTTPHeadFault)

        var status: Int { if case .headTooLong = self { 431 } else { 400 } }
    }

    var method: String
    /// A path, and maybe a query.
    var target: String
    /// `HTTP/1.0` or `HTTP/1.1`, which the answer repeats.
    var version: String
    /// Whether bytes follow the head.
    var hasBody: Bool

    init(_ head: HTTPHead) throws(Fault) {
        guard let line = head.requestLine, !line.target.isEmpty else { throw .malformedHead(.startLine) }
        self.method = String(decoding: line.method, as: UTF8.self)
        self.target = String(decoding: line.target, as: UTF8.self)
        self.version = String(decoding: line.version, as: UTF8.self)
        guard self.version == "HTTP/1.1" || self.version == "HTTP/1.0" else { throw .malformedHead(.startLine) }
        self.hasBody = head.fields.announcesBody
    }
}
