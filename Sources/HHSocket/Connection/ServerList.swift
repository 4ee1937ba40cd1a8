import NIOCore

/// The servers to choose from, how each has behaved, and which to try next.
///
/// A server that failed often in a row is banned for a growing time. When the ban ends it is on probation: it comes after
/// the trusted ones, and one failure bans it again, for longer; a stable connection makes it trusted. When all are banned
/// none is: it is then more likely that the network is at fault.
struct ServerList: Sendable {
    private struct Outcome: Sendable {
        var succeeded: Bool
        var time: NIODeadline
    }

    private struct Entry: Sendable {
        var endpoint: Endpoint
        /// The latest, oldest first.
        var outcomes: [Outcome] = []
        var failuresInARow = 0
        /// Bans since the last stable connection.
        var bans = 0
        var bannedUntil: NIODeadline?

        /// How many of the outcomes that still count are failures.
        func recentFailures(since start: NIODeadline) -> Int {
            self.outcomes.reduce(0) { $0 + (!$1.succeeded && $1.time >= start ? 1 : 0) }
        }

        mutating func note(_ succeeded: Bool, now: NIODeadline) {
            self.outcomes.append(Outcome(succeeded: succeeded, time: now))
            if self.outcomes.count > ServerPolicy.rememberedOutcomes { self.outcomes.removeFirst() }
        }
    }

    /// What a server is worth now. Lower is better.
    private enum Standing: Int, Comparable {
        case trusted, onProbation, banned
        static func < (one: Self, other: Self) -> Bool { one.rawValue < other.rawValue }
    }

    private let policy: ServerPolicy
    private var entries: [Entry] = []
    /// Where the next round starts, among servers that behaved equally well.
    private var start = 0

    init(_ endpoints: [Endpoint], policy: ServerPolicy = ServerPolicy()) {
        self.policy = policy
        self.replace(with: endpoints)
    }

    var isEmpty: Bool { self.entries.isEmpty }
    var count: Int { self.entries.count }
    var endpoints: [Endpoint] { self.entries.map(\.endpoint) }

    func contains(_ endpoint: Endpoint) -> Bool { self.index(of: endpoint) != nil }

    /// Whether the server is banned at this time.
    func isBanned(_ endpoint: Endpoint, now: NIODeadline) -> Bool {
        guard let index = self.index(of: endpoint) else { return false }
        return self.standing(of: self.entries[index], now: now) == .banned
    }

    /// The new list; what is known of servers that stay is kept.
    mutating func replace(with endpoints: [Endpoint]) {
        var seen: Set<Endpoint> = []
        let known = Dictionary(uniqueKeysWithValues: self.entries.map { ($0.endpoint, $0) })
        self.entries = endpoints.filter { seen.insert($0).inserted }.map { known[$0] ?? Entry(endpoint: $0) }
        self.start = 0
    }

    /// The servers to try, each once, best first. Those that are banned are left out, unless all are.
    func round(now: NIODeadline, using generator: inout some RandomNumberGenerator) -> [Endpoint] {
        let memory = TimeAmount(self.policy.memory)
        let oldest = now.uptimeNanoseconds > UInt64(max(0, memory.nanoseconds)) ? now - memory : .uptimeNanoseconds(0)
        var rotated = Array(self.entries[self.start...] + self.entries[..<self.start])
        if self.policy.shufflesEquals, !rotated.isEmpty {
            // The first one may be first by the user's wish.
            let first = self.start > 0 ? 1 : 0
            rotated[first...].shuffle(using: &generator)
        }
        let ranked = rotated.enumerated().map { offset, entry in
            (
                endpoint: entry.endpoint, standing: self.standing(of: entry, now: now),
                failures: entry.recentFailures(since: oldest), bannedUntil: entry.bannedUntil ?? now, offset: offset
            )
        }
        guard ranked.contains(where: { $0.standing != .banned }) else {
            return ranked.sorted { ($0.bannedUntil, $0.offset) < ($1.bannedUntil, $1.offset) }.map(\.endpoint)
        }
        return ranked.filter { $0.standing != .banned }
            .sorted { ($0.standing, $0.failures, $0.offset) < ($1.standing, $1.failures, $1.offset) }
            .map(\.endpoint)
    }

    private func standing(of entry: Entry, now: NIODeadline) -> Standing {
        guard let bannedUntil = entry.bannedUntil else { return .trusted }
        return now < bannedUntil ? .banned : .onProbation
    }

    /// An attempt failed, or a connection was lost.
    mutating func failed(_ endpoint: Endpoint, now: NIODeadline, using generator: inout some RandomNumberGenerator) {
        guard let index = self.index(of: endpoint) else { return }
        self.entries[index].note(false, now: now)
        self.entries[index].failuresInARow += 1
        let isOnProbation = self.entries[index].bannedUntil != nil
        guard isOnProbation || self.entries[index].failuresInARow >= self.policy.failuresBeforeBan else { return }
        // One that fails although it is banned was tried because all are: that proves nothing new.
        guard self.standing(of: self.entries[index], now: now) != .banned else { return }
        let ban = Backoff(base: self.policy.firstBan, cap: self.policy.longestBan, jitter: 0.5)
            .delay(afterFailures: self.entries[index].bans, using: &generator)
        self.entries[index].bans += 1
        self.entries[index].bannedUntil = now.advanced(clamping: TimeAmount(ban))
    }

    /// A connection has proved stable.
    mutating func proved(_ endpoint: Endpoint, now: NIODeadline) {
        guard let index = self.index(of: endpoint) else { return }
        self.entries[index].note(true, now: now)
        self.trust(index)
    }

    private mutating func trust(_ index: Int) {
        self.entries[index].failuresInARow = 0
        self.entries[index].bans = 0
        self.entries[index].bannedUntil = nil
    }

    /// Makes the next round start with `endpoint`, which is added if it is new. What it did before is forgiven.
    mutating func prefer(_ endpoint: Endpoint) {
        if self.index(of: endpoint) == nil { self.entries.append(Entry(endpoint: endpoint)) }
        guard let index = self.index(of: endpoint) else { return }
        self.start = index
        self.entries[index].outcomes = []
        self.trust(index)
    }

    /// Makes the next round start with the server after `endpoint`.
    mutating func passOver(_ endpoint: Endpoint) {
        guard let index = self.index(of: endpoint) else { return }
        self.start = (index + 1) % self.entries.count
    }

    private func index(of endpoint: Endpoint) -> Int? {
        self.entries.firstIndex { $0.endpoint == endpoint }
    }
}
