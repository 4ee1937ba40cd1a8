// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The servers to choose from, with the score of each and the order in which to try them.
///
/// A server with too many consecutive failures is banned for a growing time. When the ban ends it is on probation: it
/// comes after the trusted ones, and one failure bans it again, for longer; a stable connection makes it trusted. If
/// all servers are banned the bans are ignored: the network is then more likely to be at fault.
///
/// A server that sent a go-away did not fail, but is away for the time it asked for, even if all servers are.
struct ServerList: Sendable {
    private struct Outcome: Sendable {
        var succeeded: Bool
        var time: NIODeadline
    }

    private struct Entry: Sendable {
        var endpoint: Endpoint
        /// The latest outcomes, oldest first.
        var outcomes: [Outcome] = []
        var failuresInARow = 0
        /// The number of bans since the last stable connection.
        var bans = 0
        var bannedUntil: NIODeadline?
        /// The end of the time in which it is not tried, which waiting calls may bring forward.
        var awayUntil: NIODeadline?
        /// The end of the time for which the server asked clients to stay away.
        var askedUntil: NIODeadline?
        /// The number of its go-aways since the last stable connection.
        var departures = 0
        /// Whether it may be tried sooner because a call waits.
        var canRetryEarly = true
        /// Whether it is in the list only because another server named it.
        var isAlternate = false
        /// Whether it is in the list only because of ``ServerList/prefer(_:)``.
        var isRequested = false

        func isAway(_ now: NIODeadline) -> Bool { self.awayUntil.map { now < $0 } ?? false }

        /// Returns the number of failures among the outcomes since `start`.
        func recentFailures(since start: NIODeadline) -> Int {
            self.outcomes.reduce(0) { $0 + (!$1.succeeded && $1.time >= start ? 1 : 0) }
        }

        mutating func note(_ succeeded: Bool, now: NIODeadline) {
            self.outcomes.append(Outcome(succeeded: succeeded, time: now))
            if self.outcomes.count > ServerPolicy.rememberedOutcomes { self.outcomes.removeFirst() }
        }
    }

    /// The standing of a server. Lower is better.
    private enum Standing: Int, Comparable {
        case trusted, onProbation, banned
        static func < (one: Self, other: Self) -> Bool { one.rawValue < other.rawValue }
    }

    private let policy: ServerPolicy
    private let addressFamilies: AddressFamilies
    private var entries: [Entry] = []
    /// The index at which the next round starts, among equally good servers.
    private var start = 0
    /// Whether the user requested the server at which the round starts, whatever its address family.
    private var startIsRequested = false

    init(
        _ endpoints: [Endpoint],
        policy: ServerPolicy = ServerPolicy(),
        addressFamilies: AddressFamilies = .any
    ) {
        self.policy = policy
        self.addressFamilies = addressFamilies
        self.replace(with: endpoints)
    }

    var isEmpty: Bool { self.entries.isEmpty }
    /// Whether servers that other servers name are used.
    var acceptsAlternates: Bool { self.policy.acceptsOtherEndpoints }
    var count: Int { self.entries.count }
    var endpoints: [Endpoint] { self.entries.map(\.endpoint) }

    func contains(_ endpoint: Endpoint) -> Bool { self.index(of: endpoint) != nil }

    /// Whether the server is banned at this time.
    func isBanned(_ endpoint: Endpoint, now: NIODeadline) -> Bool {
        guard let index = self.index(of: endpoint) else { return false }
        return self.standing(of: self.entries[index], now: now) == .banned
    }

    /// Replaces the list; the scores of servers that stay are kept.
    ///
    /// - Parameter keepsStart: Whether the next round starts with the same server as before, if it stays: the list was
    ///   found again, and not given by the user.
    mutating func replace(with endpoints: [Endpoint], keepsStart: Bool = false) {
        let first = keepsStart && self.start < self.entries.count ? self.entries[self.start].endpoint : nil
        let wasRequested = self.startIsRequested
        var seen: Set<Endpoint> = []
        let known = Dictionary(uniqueKeysWithValues: self.entries.map { ($0.endpoint, $0) })
        self.entries = endpoints.filter { seen.insert($0).inserted }.map { endpoint in
            var entry = known[endpoint] ?? Entry(endpoint: endpoint)
            entry.isAlternate = false
            entry.isRequested = false
            return entry
        }
        let kept = first.flatMap { self.index(of: $0) }
        self.start = kept ?? 0
        self.startIsRequested = wasRequested && kept != nil
    }

    /// Returns the servers to try, each once, best first. It omits servers that are away, and banned ones unless all
    /// the rest are banned.
    func round(now: NIODeadline, using generator: inout some RandomNumberGenerator) -> [Endpoint] {
        let memory = TimeAmount(clamping: ServerPolicy.memory)
        let oldest = now.uptimeNanoseconds > UInt64(max(0, memory.nanoseconds)) ? now - memory : .uptimeNanoseconds(0)
        var rotated = Array(self.entries[self.start...] + self.entries[..<self.start])
        if self.policy.shufflesEquals, !rotated.isEmpty {
            // The first one may be the user's preference.
            let first = self.start > 0 ? 1 : 0
            rotated[first...].shuffle(using: &generator)
        }
        let ranked = rotated.enumerated().filter { !$0.element.isAway(now) }.map { offset, entry in
            (
                endpoint: entry.endpoint, standing: self.standing(of: entry, now: now),
                failures: entry.recentFailures(since: oldest), bannedUntil: entry.bannedUntil ?? now,
                // A server of the other address family follows its equals.
                order: self.isPutOff(entry, offset) ? self.entries.count + offset : offset
            )
        }
        guard ranked.contains(where: { $0.standing != .banned }) else {
            return ranked.sorted { ($0.bannedUntil, $0.order) < ($1.bannedUntil, $1.order) }.map(\.endpoint)
        }
        return ranked.filter { $0.standing != .banned }
            .sorted { ($0.standing, $0.failures, $0.order) < ($1.standing, $1.failures, $1.order) }
            .map(\.endpoint)
    }

    private func isPutOff(_ entry: Entry, _ offset: Int) -> Bool {
        self.addressFamilies.putOff(entry.endpoint) && !(offset == 0 && self.startIsRequested)
    }

    private func standing(of entry: Entry, now: NIODeadline) -> Standing {
        guard let bannedUntil = entry.bannedUntil else { return .trusted }
        return now < bannedUntil ? .banned : .onProbation
    }

    /// Records that an attempt failed, or that a connection was lost.
    mutating func failed(_ endpoint: Endpoint, now: NIODeadline, using generator: inout some RandomNumberGenerator) {
        guard let index = self.index(of: endpoint) else { return }
        self.entries[index].note(false, now: now)
        self.entries[index].failuresInARow += 1
        let isOnProbation = self.entries[index].bannedUntil != nil
        guard isOnProbation || self.entries[index].failuresInARow >= self.policy.failuresBeforeBan else { return }
        // A banned server is tried only if all are banned: its failure proves nothing new.
        guard self.standing(of: self.entries[index], now: now) != .banned else { return }
        let ban = Backoff(base: ServerPolicy.firstBan, cap: ServerPolicy.longestBan, jitter: 0.5)
            .delay(afterFailures: self.entries[index].bans, using: &generator)
        self.entries[index].bans += 1
        self.entries[index].bannedUntil = now.advanced(clamping: TimeAmount(clamping: ban))
    }

    /// Records that a connection has proved stable.
    mutating func proved(_ endpoint: Endpoint, now: NIODeadline) {
        guard let index = self.index(of: endpoint) else { return }
        self.entries[index].note(true, now: now)
        self.entries[index].departures = 0
        self.trust(index)
    }

    private mutating func trust(_ index: Int) {
        self.entries[index].failuresInARow = 0
        self.entries[index].bans = 0
        self.entries[index].bannedUntil = nil
    }

    /// The number of servers that ``prefer(_:)`` may add to the list.
    static let maximumRequested = 16

    /// Makes the next round start with `endpoint`, which is added if it is new, and clears its score.
    ///
    /// The oldest server that was added in this way is removed once there are more than ``maximumRequested``.
    mutating func prefer(_ endpoint: Endpoint) {
        if self.index(of: endpoint) == nil {
            if self.entries.count(where: \.isRequested) >= Self.maximumRequested,
                let oldest = self.entries.firstIndex(where: \.isRequested)
            {
                self.entries.remove(at: oldest)
            }
            var entry = Entry(endpoint: endpoint)
            entry.isRequested = true
            self.entries.append(entry)
        }
        guard let index = self.index(of: endpoint) else { return }
        self.start = index
        self.startIsRequested = true
        self.entries[index].outcomes = []
        self.entries[index].awayUntil = nil
        self.trust(index)
    }

    /// Makes the next round start with the server after `endpoint`.
    mutating func passOver(_ endpoint: Endpoint) {
        guard let index = self.index(of: endpoint) else { return }
        self.start = (index + 1) % self.entries.count
        self.startIsRequested = false
    }

    // MARK: Servers that go away

    /// Records a go-away of the server.
    ///
    /// - Parameters:
    ///   - span: The time for which it asks clients to stay away; nil if it gave none.
    ///   - again: Whether it is a repeated go-away on the same connection.
    /// - Returns: The time for which the server is away: the requested time, but no longer than the longest ban, and
    ///   growing if it sends its clients away repeatedly.
    mutating func recordGoAway(
        _ endpoint: Endpoint,
        for span: Duration?,
        again: Bool = false,
        now: NIODeadline,
        using generator: inout some RandomNumberGenerator
    ) -> Duration {
        // If the server gives a time, it is responsible for spreading its clients.
        var span = span ?? .seconds(Double.random(in: 0.5...1, using: &generator))
        let index = self.index(of: endpoint)
        if let index, !again {
            if self.entries[index].departures > 0 {
                let least = Backoff(base: Backoff.minimumRepeatedWait, cap: ServerPolicy.firstBan, jitter: 0.5)
                    .delay(afterFailures: self.entries[index].departures, using: &generator)
                span = max(span, least)
            }
            self.entries[index].departures += 1
            self.entries[index].canRetryEarly = true
        }
        span = min(max(.zero, span), max(.zero, ServerPolicy.longestBan))
        if let index {
            self.entries[index].awayUntil = now.advanced(clamping: TimeAmount(clamping: span))
            self.entries[index].askedUntil = self.entries[index].awayUntil
        }
        return span
    }

    /// Records that a server must not be tried before `time`.
    mutating func postpone(_ endpoint: Endpoint, until time: NIODeadline) {
        guard let index = self.index(of: endpoint) else { return }
        self.entries[index].awayUntil = time
        self.entries[index].askedUntil = time
        self.entries[index].canRetryEarly = false
    }

    /// Whether any server other than `excluded` can be tried now.
    func hasPresent(besides excluded: Endpoint? = nil, now: NIODeadline) -> Bool {
        self.entries.contains { $0.endpoint != excluded && !$0.isAway(now) }
    }

    /// Returns the time at which the first server that is away, other than `excluded`, may be tried.
    func nextReturn(besides excluded: Set<Endpoint> = [], now: NIODeadline) -> NIODeadline? {
        self.entries.compactMap { $0.isAway(now) && !excluded.contains($0.endpoint) ? $0.awayUntil : nil }.min()
    }

    /// Brings forward the return of servers that are away, because a call waits: to `share` (0 to 1) of a second, or of
    /// the remaining time if that is shorter. For a server that only ever sends its clients away the second becomes
    /// two, four and so on.
    mutating func retryEarly(_ share: Double, now: NIODeadline) {
        for index in self.entries.indices where self.entries[index].isAway(now) && self.entries[index].canRetryEarly {
            guard let until = self.entries[index].awayUntil else { continue }
            let repeats = max(0, self.entries[index].departures - 1)
            let bound = Backoff(base: .seconds(1), cap: ServerPolicy.longestBan).bound(afterFailures: repeats)
            let wait = Duration.seconds(min(bound, Duration(until - now)).inSeconds * share)
            let least = repeats > 0 ? Backoff.minimumRepeatedWait : .zero
            self.entries[index].awayUntil = min(until, now.advanced(clamping: TimeAmount(clamping: max(wait, least))))
        }
    }

    /// Forbids waiting calls to bring the server's return forward, and undoes where they have.
    mutating func forbidEarlyRetry(_ endpoint: Endpoint) {
        guard let index = self.index(of: endpoint) else { return }
        self.entries[index].canRetryEarly = false
        if self.entries[index].awayUntil != nil { self.entries[index].awayUntil = self.entries[index].askedUntil }
    }

    /// Ends the absence of all servers: the user wants a connection at once.
    mutating func callBack() {
        for index in self.entries.indices { self.entries[index].awayUntil = nil }
    }

    /// Adds servers that another one has named, replacing those named before, except `kept`.
    mutating func add(alternates endpoints: [Endpoint], keeping kept: Endpoint?) {
        self.entries.removeAll { $0.isAlternate && $0.endpoint != kept && !endpoints.contains($0.endpoint) }
        if self.start >= self.entries.count {
            self.start = 0
            self.startIsRequested = false
        }
        for endpoint in endpoints where self.index(of: endpoint) == nil {
            var entry = Entry(endpoint: endpoint)
            entry.isAlternate = true
            self.entries.append(entry)
        }
    }

    private func index(of endpoint: Endpoint) -> Int? {
        self.entries.firstIndex { $0.endpoint == endpoint }
    }
}
