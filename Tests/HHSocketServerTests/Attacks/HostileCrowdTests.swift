// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import Foundation
import HHSocketTesting
import TestSupport
import Testing

/// Every attack at once, again and again, against the default configuration, beside clients that do nothing wrong: over
/// TCP, TLS and WebSocket. For `HHSOCKET_HOSTILE_SECONDS`, 10 by default.
@Suite(.tags(.io, .exclusive), .serialized, .timeLimit(.minutes(30))) struct HostileCrowdTests {
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
                        // One that cannot connect has been one too many.
                        standing = (try? await siege.attack(AttackPlan(attack, strength: 1), round: round)) ?? []
                        // They stay for a while, as those do who mean it.
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
            // The first to return is the last of them.
            _ = await tasks.next()
            tasks.cancelAll()
            return await tasks.reduce(into: []) { $0 += $1 }
        }
    }
}
#endif
