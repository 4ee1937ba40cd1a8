// SPDX-License-Identifier: Apache-2.0
/// The rules by which servers are chosen.
///
/// ``failuresBeforeBan`` consecutive failures ban a server for 15 s, the last half random; each further ban without a
/// stable connection in between lasts twice as long, 300 s at most. Outcomes of the last 10 minutes count in a server's
/// score.
public struct ServerPolicy: Hashable, Sendable {
    /// The number of consecutive failures that ban a server: refused and timed-out attempts, failed handshakes,
    /// connections lost before they were stable. 3 by default, as in Tencent Mars and Finagle; 1 at least.
    public var failuresBeforeBan: Int
    /// The length of the first ban. Each further ban without a stable connection in between lasts twice as long; the
    /// last half of each is random.
    static let firstBan = Duration.seconds(15)
    /// The length of the longest ban, as in Finagle.
    static let longestBan = Duration.seconds(300)
    /// The age beyond which outcomes do not count in a server's score.
    static let memory = Duration.seconds(600)
    /// Whether a server that goes away may name servers that are not in the list; at most 16 of them are used at a
    /// time, with the same ``SocketConfiguration/tls``. False by default: a server could send its clients anywhere, and
    /// without TLS so could an attacker on the path. In either case, named servers that are in the list are preferred,
    /// in the order named.
    public var acceptsOtherEndpoints: Bool
    /// Whether equally good servers are tried in random order, which spreads the clients of a fleet, instead of the
    /// list's. False by default.
    public var shufflesEquals: Bool

    public init(
        failuresBeforeBan: Int = 3,
        shufflesEquals: Bool = false,
        acceptsOtherEndpoints: Bool = false
    ) {
        self.failuresBeforeBan = failuresBeforeBan
        self.shufflesEquals = shufflesEquals
        self.acceptsOtherEndpoints = acceptsOtherEndpoints
    }

    /// The number of outcomes that count for a server's score, as in Tencent Mars.
    static let rememberedOutcomes = 8
}
