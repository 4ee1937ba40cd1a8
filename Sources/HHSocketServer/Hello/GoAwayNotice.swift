import HHSocket
import HHSocketHello

/// The go-away that a client receives before its connection ends.
struct GoAwayNotice: Sendable {
    var reason: String
    /// So long the client should leave this server alone.
    var retryAfter = Duration.zero
    /// Where it may go instead.
    var endpoints: [Endpoint] = []

    var frame: Frame {
        WireGoAway(reason: self.reason, retryAfter: self.retryAfter, endpoints: self.endpoints).frame
    }
}
