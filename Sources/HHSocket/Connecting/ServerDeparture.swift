/// What a server says when it is about to end.
package struct ServerDeparture: Hashable, Sendable {
    /// The number of named servers that are considered, from the first on.
    package static let maximumEndpoints = 16

    /// Why, for people to read.
    package var reason: String
    /// How long clients should stay away; nil if the server did not say.
    package var retryAfter: Duration?
    /// Servers that may be used instead, best first.
    package var endpoints: [Endpoint]

    package init(reason: String = "", retryAfter: Duration? = nil, endpoints: [Endpoint] = []) {
        self.reason = reason
        self.retryAfter = retryAfter
        self.endpoints = endpoints
    }
}
