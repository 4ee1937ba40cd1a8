// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import Foundation
import HHSocketTesting
import TestSupport
import Testing

/// All attacks at once, repeatedly, against the default configuration, beside clients that follow the protocol: over
/// TCP, TLS and WebSocket. For `HHSOCKET_HOSTILE_SECONDS`, 10 by default.
@Suite(.tags(.io, .exclusive, .nightly), .serialized, .timeLimit(.minutes(30))) struct HostileCrowdTests {
    private static var seconds: Double {
        ProcessInfo.processInfo.environment["HHSOCKET_HOSTILE_SECONDS"].flatMap(Double.init) ?? 10
    }

    @Test func promisesAreKept() async throws {
        try await Siege.lay(to: .everything) { siege in
            let plan = AttackPlan(.callFlood)
            let figures = try await siege.measure(
                plan,
                named: "everything",
                open: [.everythingIsGivenBack, .memoryIsGivenBack]
            ) {
                try await Self.attack(siege)
            }
            figures.expectPromises { AttackFindings.finding($0, AttackPlan(.abandonedDeadlines), .everything) }
        }
    }

    /// - Returns: The attackers of the last rounds.
    private static func attack(_ siege: Siege) async throws -> [HostileClient] {
        let time = Duration.seconds(self.seconds)
        return await withTaskGroup { tasks in
            for attack in HostileClient.Attack.allCases {
                tasks.addTask {
                    var (round, standing) = (0, [HostileClient]())
                    while !Task.isCancelled {
                        // An attacker that cannot connect was over a limit.
                        standing = (try? await siege.attack(AttackPlan(attack, strength: 1), round: round)) ?? []
                        // The attackers stay for a while, like real ones.
                        try? await Task.sleep(for: .milliseconds(300))
                        round += 1
                    }
                    return standing
                }
            }
            tasks.addTask {
                try? await Task.sleep(for: time)
                return []
            }
            // The last task, which sleeps, is the first to return.
            _ = await tasks.next()
            tasks.cancelAll()
            return await tasks.reduce(into: []) { $0 += $1 }
        }
    }
}
#endif
