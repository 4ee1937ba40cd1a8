/// When a server is passed over because of how it behaved.
public struct ServerPolicy: Hashable, Sendable {
    /// The number of consecutive failures that ban a server: refused and timed-out attempts, handshakes it failed,
    /// connections it lost before they were stable. 3 by default, as Tencent Mars and Finagle ban; 1 at least.
    public var failuresBeforeBan: Int
    /// How long the first ban lasts. Each ban that follows without a stable connection between lasts twice as long; the
    /// last half of each is left to chance. 15 s by default.
    public var firstBan: Duration
    /// No ban lasts longer. 300 s by default, as Finagle's.
    public var longestBan: Duration
    /// Outcomes older than this do not count in a server's score. 10 minutes by default.
    public var memory: Duration
    /// Whether servers that are not in the list may be used because another server names them when it goes away; at
    /// most 16 of them at a time, with the same ``SocketConfiguration/tls``. False by default: a server could send its
    /// clients anywhere, and without TLS whoever is on the path could. Those in the list are preferred in the order in
    /// which they are named either way.
    public var acceptsOtherEndpoints: Bool
    /// Whether equally good servers are tried in an order of chance, which spreads the clients of a fleet, instead of
    /// in the list's. False by default.
    public var shufflesEquals: Bool

    public init(
        failuresBeforeBan: Int = 3,
        firstBan: Duration = .seconds(15),
        longestBan: Duration = .seconds(300),
        memory: Duration = .seconds(600),
        shufflesEquals: Bool = false,
        acceptsOtherEndpoints: Bool = false
    ) {
        self.failuresBeforeBan = failuresBeforeBan
        self.firstBan = firstBan
        self.longestBan = longestBan
        self.memory = memory
        self.shufflesEquals = shufflesEquals
        self.acceptsOtherEndpoints = acceptsOtherEndpoints
    }

    /// The number of outcomes that are kept for a server's score, as in Tencent Mars.
    static let rememberedOutcomes = 8
}
