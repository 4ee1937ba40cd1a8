#if os(Linux)
import HHSocketTesting
import Testing

/// What attacks are known to break, by the names of the review of the server (`Docs/Reviews/2026-11.md`).
///
/// A promise that is mended loses its line here.
enum AttackFindings {
    typealias Variant = ServerUnderAttack.Variant

    /// What may be wrong with a promise; nil if it must be kept.
    static func finding(_ promise: Siege.Promise, _ plan: AttackPlan, _ variant: Variant) -> Comment? {
        switch promise {
        case .honestClientsAreServed: Self.ofHonestClients(plan, variant)
        case .newcomersAreServed:
            variant == .fewDescriptors ? "H9: whoever takes all descriptors keeps them" : nil
        case .memoryIsAccountedFor: Self.ofMemory(plan, variant)
        case .everythingIsGivenBack where plan.attack == .abandonedDeadlines:
            "who has hung up is taken for one who has closed its direction and waits for answers"
        case .everythingIsGivenBack: nil
        case .memoryIsGivenBack: "H2: freed memory does not go back to the system"
        case .idleConnectionsAreCheap: "H2: the memory of a connection only grows"
        }
    }

    static func openPromises(_ plan: AttackPlan, _ variant: Variant) -> Set<Siege.Promise> {
        let all: [Siege.Promise] = [
            .honestClientsAreServed, .newcomersAreServed, .memoryIsAccountedFor, .everythingIsGivenBack,
            .memoryIsGivenBack, .idleConnectionsAreCheap,
        ]
        return Set(all.filter { Self.finding($0, plan, variant) != nil })
    }

    /// What ends the server's process or stops it, so that nothing else can be said.
    static func fatal(_ variant: Variant) -> Comment? {
        switch variant {
        case .fewDescriptors: "H9: a process without descriptors dies"
        case .unreadDebugLog: "M9: lines of the level debug are written on event loops"
        default: nil
        }
    }

    private static func ofHonestClients(_ plan: AttackPlan, _ variant: Variant) -> Comment? {
        switch plan.attack {
        case .tricklingReaders where plan.type == ServerUnderAttack.largeAnswer, .hoardingReaders:
            "C1: slow readers take the whole byte budget, and others are refused"
        case .largeHello, .helloCrowd: "H3: a hello may have 16 MiB, and is read on the event loop"
        case .keptAnswers: "H4: anybody can make the server forget everybody's answers"
        case .compressionBombs: "H6: bodies are decompressed for anybody, on the threads of all handlers"
        case .compressibleAnswers: "H7: one connection's synchronous requests have no budget of time"
        case .slowCalls where plan.type == ServerUnderAttack.slowBlockingEcho:
            "H8: blocking threads serve one connection's requests before all others'"
        case .slowCalls where variant == .adaptive: "M6: a slow type closes the server to all others"
        case .deafListeners: "M8: a broadcast is counted once for each client that is behind"
        default: nil
        }
    }

    private static func ofMemory(_ plan: AttackPlan, _ variant: Variant) -> Comment? {
        switch plan.attack {
        case .pinnedSlices: "H1: what is counted of a request is its length, not the buffer that it keeps"
        case .callFlood, .distantDeadlines, .repeatedKey, .requestAndCancel, .emptyRequests, .abandonedDeadlines,
            .hoardingReaders:
            "H1: the task and the tables of a request are not counted"
        case .largeHello, .helloCrowd: "H3: a hello may have 16 MiB, and is not counted"
        case .compressionBombs: "H6: bodies are decompressed for anybody, one on each thread beyond the account"
        case .keptAnswers: "H4: kept answers are in no account"
        case .onceBusy: "H2: the memory of a connection only grows"
        case .hugeMessages, .deflateBombs:
            "the messages of WebSockets are not in the account: neither those that are unfinished nor those unread"
        default: nil
        }
    }
}
#endif
