// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

/// The slot of a request in every count of requests in flight: of the server, its type, its client's identity and the
/// adaptive limit. It must be left exactly once.
struct RequestSlot: Sendable {
    typealias Refusal = SessionMachine<Task<Void, Never>>.Refusal

    private let account: LedgerAccount
    let rules: RouteRules
    private let identity: IdentityLoad?

    /// - Throws: The first limit that is reached; then it counts nowhere.
    init(
        _ limits: ServerLimits,
        of account: LedgerAccount,
        rules: RouteRules,
        session: ServerSession
    ) throws(Refusal) {
        let identity = limits.maximumInFlightPerIdentity == nil ? nil : session.identityLoad
        guard account.startRequest() else { throw .inFlight }
        guard rules.inFlight?.start() ?? true else {
            account.finishedRequest()
            throw .type
        }
        guard identity?.start() ?? true else {
            rules.inFlight?.finished()
            account.finishedRequest()
            throw .identity
        }
        guard rules.limiter?.start() ?? true else {
            identity?.finished()
            rules.inFlight?.finished()
            account.finishedRequest()
            throw .concurrency
        }
        self.account = account
        self.rules = rules
        self.identity = identity
    }

    /// Returns the start of the measurement; nil if the duration is not measured.
    func begin() -> NIODeadline? { self.rules.limiter == nil ? nil : self.account.now() }

    /// - Parameters:
    ///   - begun: The result of ``begin()``.
    ///   - reportsTime: Whether the time since then is the duration of the handler.
    func release(begun: NIODeadline?, reportsTime: Bool) {
        self.account.finishedRequest()
        self.rules.inFlight?.finished()
        self.identity?.finished()
        guard let begun else { return }
        self.rules.limiter?.finished(after: reportsTime ? self.account.now() - begun : nil)
    }
}
