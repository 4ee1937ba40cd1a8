import HHSocket

/// The go-away that a client receives before its connection ends.
struct GoAwayNotice: Sendable {
    var reason: String
    /// How long the client should stay away from this server.
    var retryAfter = Duration.zero
    /// Where it may go instead.
    var endpoints: [Endpoint] = []

    var frame: Frame {
        WireGoAway(reason: self.reason, retryAfter: self.retryAfter, endpoints: self.endpoints).frame
    }
}
