// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import Foundation
import HHSocketTesting
import TestSupport

/// One attack, and its target.
struct AttackPlan: Sendable, CustomStringConvertible {
    typealias Attack = HostileClient.Attack
    typealias Variant = ServerUnderAttack.Variant

    var attack: Attack
    var type = ServerUnderAttack.echo
    var strength = 1

    var description: String { "\(self.attack), type \(self.type), strength \(self.strength)" }

    /// The factor by which attacks are stronger than usual: with `HHSOCKET_EFFORT`, up to four.
    static let strength = min(4, max(1, Int(effort.squareRoot())))

    /// Many clients of as many principals: none of them is an honest client's address.
    static let sources = (2...9).map { "127.0.0.\($0)" }

    init(_ attack: Attack, type: UInt32? = nil, strength: Int = Self.strength) {
        self.attack = attack
        self.type = type ?? Self.types[attack] ?? ServerUnderAttack.echo
        self.strength = strength
    }

    /// The types of requests of attacks that require a particular one.
    private static let types: [Attack: UInt32] = [
        .repeatedKey: ServerUnderAttack.hang, .distantDeadlines: ServerUnderAttack.hang,
        .pinnedSlices: ServerUnderAttack.hang, .requestAndCancel: ServerUnderAttack.hang,
        .emptyRequests: ServerUnderAttack.hang, .abandonedDeadlines: ServerUnderAttack.hang,
        .hoardingReaders: ServerUnderAttack.lateAnswer,
        .compressibleAnswers: ServerUnderAttack.compressibleAnswer,
        .deafListeners: ServerUnderAttack.broadcast,
        .slowCalls: ServerUnderAttack.slowEcho,
    ]

    /// The attacks that a variant is tested with; `HHSOCKET_ATTACKS` may name some of them, separated by commas.
    static func plans(_ variant: Variant) -> [AttackPlan] {
        let plans = Self.allPlans(variant)
        guard let names = ProcessInfo.processInfo.environment["HHSOCKET_ATTACKS"]?.split(separator: ",") else {
            return plans
        }
        return plans.filter { names.contains(Substring($0.attack.rawValue)) }
    }

    private static func allPlans(_ variant: Variant) -> [AttackPlan] {
        guard variant.isWholeSuite, effort > 1 else {
            return Self.attacks(variant).map { AttackPlan($0) } + Self.furtherPlans(variant)
        }
        let all = Attack.allCases.filter { attack in
            if Attack.onWebSockets.contains(attack) { return variant.isWebSocket }
            if Attack.onTLS.contains(attack) { return variant == .tls }
            return true
        }
        return all.map { AttackPlan($0) } + Self.furtherPlans(variant)
    }

    /// The plans with another type or strength than the attack's usual one.
    private static func furtherPlans(_ variant: Variant) -> [AttackPlan] {
        switch variant {
        case .plain where effort > 1:
            [
                // Enough attackers to reach the server's limit of held bytes.
                AttackPlan(.tricklingReaders, type: ServerUnderAttack.largeAnswer, strength: 6),
                AttackPlan(.hoardingReaders, strength: 6),
                AttackPlan(.slowCalls, type: ServerUnderAttack.slowBlockingEcho),
                AttackPlan(.callFlood, type: ServerUnderAttack.synchronousEcho),
            ]
        case .plain:
            [AttackPlan(.slowCalls, type: ServerUnderAttack.slowBlockingEcho)]
        default: []
        }
    }

    /// The attacks whose effect on a variant differs from that on the plain one; with more effort all of them.
    private static func attacks(_ variant: Variant) -> [Attack] {
        switch variant {
        case .plain:
            Attack.allCases.filter { !Attack.onWebSockets.contains($0) && !Attack.onTLS.contains($0) }
        case .tls:
            [.neverReads, .tricklingReaders, .largeHello, .pinnedSlices, .pingFlood, .connectionStorm, .onceBusy]
                + Attack.onTLS
        case .answersInOrder: [.callFlood, .neverReads, .tricklingReaders, .requestAndCancel]
        case .framesOverWebSocket:
            [.slowBody, .callFlood, .neverReads, .tricklingReaders, .barelyMovingFrames] + Attack.onWebSockets
        case .messages: [.neverReads, .tricklingReaders, .idleCrowd] + Attack.onWebSockets
        case .strangers:
            [
                .compressionBombs, .helloCrowd, .repeatedHello, .abandonedHellos, .hoardingReaders, .emptyRequests,
                .barelyMovingFrames, .keptAnswers,
            ]
        case .adaptive: [.slowCalls]
        case .fewDescriptors: [.idleCrowd, .connectionStorm]
        case .unreadLog: [.protocolErrors, .garbage]
        case .unreadDebugLog: [.connectionStorm]
        case .everything: []
        }
    }
}

extension ServerUnderAttack.Variant {
    /// Whether each attack is run against the variant if there is time.
    fileprivate var isWholeSuite: Bool {
        switch self {
        case .plain, .tls, .answersInOrder, .framesOverWebSocket, .messages: true
        case .strangers, .adaptive, .fewDescriptors, .unreadLog, .unreadDebugLog, .everything: false
        }
    }
}
#endif
