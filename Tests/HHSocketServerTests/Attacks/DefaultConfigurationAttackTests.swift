// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import Foundation
import HHSocketTesting
import TestSupport
import Testing

/// Each attack against the default configuration, in a separate process: `SocketServer.Configuration()` as it is, and
/// variants of it and of the way to it.
///
/// Ten honest clients come over the transport of the attackers, from another address, and make small calls, each one at
/// a time. ``Siege/Promise`` lists the assertions about each attack; ``AttackFindings`` the promises that are known to
/// be broken. The figures are printed, a line for each attack. With `HHSOCKET_EFFORT` attacks are stronger, and each is
/// run over each transport; `HHSOCKET_ATTACKS` selects some of them.
@Suite(.tags(.io, .exclusive), .serialized, .timeLimit(.minutes(effort > 1 ? 60 : 15)))
struct DefaultConfigurationAttackTests {
    typealias Variant = ServerUnderAttack.Variant

    /// All variants, or one of them: `make test` sets `HHSOCKET_ROTATION` to a number made of the commit, so that
    /// different commits test different variants, and a commit always tests the same one.
    static var variants: [Variant] {
        let all = Variant.allCases.filter { $0 != .everything }
        let rotation = ProcessInfo.processInfo.environment["HHSOCKET_ROTATION"].flatMap { Int($0) }
        return rotation.map { [all[abs($0 % all.count)]] } ?? all
    }

    @Test(arguments: Self.variants)
    func promisesAreKept(variant: Variant) async throws {
        try await Siege.lay(to: variant) { siege in
            for plan in AttackPlan.plans(variant) {
                let figures = try await siege.measure(plan, open: AttackFindings.openPromises(plan, variant)) {
                    try await siege.attack(plan)
                }
                figures.expectPromises { AttackFindings.finding($0, plan, variant) }
            }
        }
    }
}

extension AttackFigures {
    /// Fails for each broken promise, unless there is a finding about it.
    func expectPromises(sourceLocation: SourceLocation = #_sourceLocation, _ finding: (Siege.Promise) -> Comment?) {
        func expect(_ promise: Siege.Promise, _ isKept: Bool, _ comment: Comment) {
            guard let finding = finding(promise) else {
                #expect(isKept, comment, sourceLocation: sourceLocation)
                return
            }
            withKnownIssue(finding, isIntermittent: true) {
                #expect(isKept, comment, sourceLocation: sourceLocation)
            }
        }
        let allowed = self.variant == "everything" ? Self.longestRoundTripOfAll : Self.longestRoundTrip
        let name = "\(self.variant), \(self.attack), type \(self.type), strength \(self.strength)"
        expect(
            .honestClientsAreServed,
            self.longest < allowed.milliseconds && self.faults.isEmpty,
            "\(name): the longest round trip took \(self.longest) ms, p99 \(self.p99) ms; \(self.faults)"
        )
        expect(.newcomersAreServed, self.newcomer != nil, "\(name): a newcomer was not served")
        expect(
            .memoryIsAccountedFor,
            self.growth <= self.allowedGrowth,
            "\(name): \(self.growth >> 20) MiB were gained, and \(self.held >> 20) MiB held"
        )
        expect(
            .everythingIsGivenBack,
            self.givenBack != nil,
            """
            \(name): \(self.stillHeld) bytes, \(self.stillConnected) connections and \(self.stillInFlight) requests are left
            """
        )
        expect(.memoryIsGivenBack, self.isMemoryGivenBack, "\(name): \(self.left >> 20) MiB are left")
        if let idle = self.idleConnection {
            expect(.idleConnectionsAreCheap, self.isIdleConnectionCheap, "\(name): \(idle) bytes for each")
        }
    }
}
#endif
