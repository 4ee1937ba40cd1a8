// SPDX-License-Identifier: Apache-2.0
/// The redirects of one attempt to open a WebSocket.
package struct RedirectRules: Hashable, Sendable {
    /// The number of redirects that are followed.
    package static let maximum = 5

    /// The address to connect to.
    package private(set) var target: WebSocketTarget
    /// The number of redirects that were followed.
    package private(set) var count = 0
    /// Whether all addresses so far have one origin. Secrets are sent only then: the header fields that the
    /// configuration fixes, `Authorization` and `Cookie` among them, the client's certificate, and what the protocol on
    /// the WebSocket logs in with. A server elsewhere must not get them, nor choose the path with which the first one
    /// gets them after all.
    package private(set) var isOfOneOrigin = true

    /// Creates the rules of an attempt that begins at `target`.
    package init(from target: WebSocketTarget) {
        self.target = target
    }

    /// Follows a redirect.
    ///
    /// - Throws: `tooManyRedirects` or `redirectToPlain`.
    package mutating func follow(to location: WebSocketTarget) throws(OpeningError) {
        guard self.count < Self.maximum else { throw .tooManyRedirects }
        guard location.isSecure || !self.target.isSecure else { throw .redirectToPlain }
        self.count += 1
        self.isOfOneOrigin = self.isOfOneOrigin && location.hasOrigin(of: self.target)
        self.target = location
    }
}
