// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import HHSocketTesting
import Testing

/// The promises that attacks are known to break, with the reasons.
///
/// A promise that was fixed has no line here.
enum AttackFindings {
    typealias Variant = ServerUnderAttack.Variant

    /// The known finding about a promise; nil if it must be kept.
    static func finding(_ promise: Siege.Promise, _ plan: AttackPlan, _ variant: Variant) -> Comment? {
        switch promise {
        case .everythingIsGivenBack where plan.attack == .abandonedDeadlines:
            """
            who has hung up is taken for one who has closed its direction and waits for answers, until the system has \
            asked (KeepAlive), which takes a minute
            """
        case .memoryIsGivenBack where variant == .everything:
            """
            after all attacks together, some memory that was freed lies in pieces that the C library cannot give back: \
            it is used again
            """
        default: nil
        }
    }

    static func openPromises(_ plan: AttackPlan, _ variant: Variant) -> Set<Siege.Promise> {
        let all: [Siege.Promise] = [
            .honestClientsAreServed, .newcomersAreServed, .memoryIsAccountedFor, .everythingIsGivenBack,
            .memoryIsGivenBack, .idleConnectionsAreCheap,
        ]
        return Set(all.filter { Self.finding($0, plan, variant) != nil })
    }
}
#endif
