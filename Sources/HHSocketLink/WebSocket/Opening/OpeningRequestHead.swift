// SPDX-License-Identifier: Apache-2.0
/// The head of a request that a server received: an HTTP/1.1 GET without a body, which need not be an opening's.
package struct OpeningRequestHead: Hashable, Sendable {
    package let method: String
    /// The target in the request line.
    package let target: String
    /// The path, as it was written.
    package let path: String
    /// The query, unchanged, without its question mark; nil if there is none.
    package let query: String?
    /// The host that the client named, an IPv6 address without brackets.
    package let host: String
    /// The port of the request's URL, or of `Host`; nil if `Host` names none.
    package let port: Int?
    package let headers: HTTPFields

    /// The value of `Origin`, if there is one: the scheme, host and port of the page whose script connects.
    package var origin: String? { self.headers.first("Origin") }

    /// The subprotocols that the client offers, the preferred one first.
    package var subprotocols: [String] { self.headers.list("Sec-WebSocket-Protocol").map { String($0) } }

    /// The client's key; nil if it is missing, repeated or malformed.
    package var key: OpeningKey? {
        guard case .once(let text) = self.headers.occurrence(of: "Sec-WebSocket-Key") else { return nil }
        return OpeningKey(text: text)
    }

    /// The offers of permessage-deflate, the preferred one first, without those that are faulty.
    ///
    /// - Throws: `malformedExtensions`, which RFC 6455 (section 9.1) forbids to ignore.
    package func deflateOffers() throws(OpeningRejection) -> [DeflateParameters] {
        let offers: [WebSocketExtension]
        do throws(WebSocketExtension.Malformed) {
            offers = try WebSocketExtension.read(self.headers.values("Sec-WebSocket-Extensions"))
        } catch {
            throw .malformedExtensions
        }
        return offers.compactMap { offer in
            offer.name == DeflateParameters.extensionName ? try? DeflateParameters(offer.parameters) : nil
        }
    }
}

extension OpeningRequestHead: CustomStringConvertible {
    /// The method and the path, without the query and the fields' values, which may be secrets.
    package var description: String { "\(self.method) \(self.path)" }
}

extension OpeningRequestHead {
    init(_ head: HTTPHead) throws(OpeningRejection) {
        let line = try Self.requestLine(head)
        let (path, query, authority) = try Self.read(target: line.target)
        let host = try Self.host(head.fields)
        // The bytes after the head belong to the WebSocket: a proxy before this server, and the server, must agree on
        // the end of the request.
        guard !head.fields.announcesBody else { throw .body }
        self.method = line.method
        self.target = line.target
        self.path = path
        self.query = query
        // The URL of a request that has one overrides Host (RFC 9112, section 3.2.2).
        self.host = authority?.host ?? host.host
        self.port = authority?.port ?? host.port
        self.headers = head.fields
    }

    /// Reads `GET /path HTTP/1.1`.
    private static func requestLine(_ head: HTTPHead) throws(OpeningRejection) -> (method: String, target: String) {
        guard let line = head.requestLine else { throw .requestLine }
        guard line.version.elementsEqual("HTTP/1.1".utf8) else { throw .version }
        guard line.method.elementsEqual("GET".utf8) else { throw .method }
        return (String(decoding: line.method, as: UTF8.self), String(decoding: line.target, as: UTF8.self))
    }

    /// Reads a path, or the URL that a proxy is sent (RFC 9112, sections 3.2.1 and 3.2.2).
    private static func read(
        target: String
    ) throws(OpeningRejection) -> (path: String, query: String?, authority: WebSocketTarget?) {
        if target.utf8.first == UInt8(ascii: "/") {
            guard (try? WebSocketTarget.checkCharacters(target[...])) != nil, !target.contains("#") else {
                throw .requestTarget
            }
            let (path, query) = WebSocketTarget.pathAndQuery(target[...])
            return (String(path), query.map { String($0) }, nil)
        }
        guard let url = try? WebSocketTarget(target, for: .request) else { throw .requestTarget }
        return (url.path, url.query, url)
    }

    /// Reads `Host`, which occurs once (RFC 9112, section 3.2).
    private static func host(_ fields: HTTPFields) throws(OpeningRejection) -> HostAndPort {
        guard case .once(let text) = fields.occurrence(of: "Host"), let host = try? HostAndPort(text[...]) else {
            throw .host
        }
        return host
    }
}
