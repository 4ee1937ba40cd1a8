// SPDX-License-Identifier: Apache-2.0
/// The terms that both sides agree on in an opening handshake.
package struct OpeningAgreement: Hashable, Sendable {
    /// The subprotocol that the server selected; nil for none.
    package var subprotocol: String?
    /// The parameters of permessage-deflate; nil if messages are not compressed.
    package var deflate: DeflateAgreement?
    /// The header fields of the peer: at a client the response's, at a server the request's.
    package var headers: HTTPFields

    /// Whether a redirect has led to a server of another origin, which must not get the client's secrets.
    package var isOfAnotherOrigin = false

    package init(subprotocol: String? = nil, deflate: DeflateAgreement? = nil, headers: HTTPFields = HTTPFields()) {
        self.subprotocol = subprotocol
        self.deflate = deflate
        self.headers = headers
    }
}

/// Names of subprotocols.
enum Subprotocols {
    /// Checks that each name is a token and occurs once (RFC 6455, sections 4.1 and 11.3.4).
    static func check(_ names: [String]) throws(OpeningError) {
        var known: Set<String> = []
        for name in names {
            guard HTTPSyntax.isToken(name.utf8) else { throw .invalidSubprotocol(name) }
            guard known.insert(name).inserted else { throw .repeatedSubprotocol(name) }
        }
    }
}
