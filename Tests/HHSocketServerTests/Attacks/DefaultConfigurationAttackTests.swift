#if os(Linux)
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// Each attack against the configuration that users get, in a process of its own: `SocketServer.Configuration()` as it
/// is, with attackers that come over TLS, and with answers in order.
///
/// Three things are asserted of each attack, and printed:
/// - Honest clients are answered, within ``longestRoundTrip``, with what they have asked for.
/// - The process gains at most twice the memory that the server says it holds, and ``slack``.
/// - When the attackers have gone, everything is given back.
///
/// A test that is known to find a fault says which, by its name in the review of the server
/// (`Docs/Reviews/2026-11.md`). With `HHSOCKET_EFFORT` attacks are stronger.
@Suite(.tags(.io, .exclusive), .serialized, .timeLimit(.minutes(15))) struct DefaultConfigurationAttackTests {
    typealias Attack = HostileClient.Attack
    typealias Variant = ServerUnderAttack.Variant

    /// Much more than it should be, because attackers, server and clients may share two slow cores in debug builds. A
    /// loop that is stuck for good is found by ``patience``, not by this.
    private static let longestRoundTrip = Duration.seconds(5) * Self.strength
    /// The bytes that the process may gain beyond twice what the server says it holds.
    private static let slack = 64 << 20

    /// One attack.
    struct Plan: Sendable, CustomStringConvertible {
        var attack: Attack
        var type = ServerUnderAttack.echo
        var strength = 1

        var description: String { "\(self.attack), type \(self.type), strength \(self.strength)" }
    }

    /// What is asserted.
    enum Promise: Hashable {
        case honestClientsAreServed
        case memoryIsAccountedFor
        case everythingIsGivenBack
    }

    private static let strength = min(4, max(1, Int(effort.squareRoot())))

    private static func plans(_ variant: Variant) -> [Plan] {
        let all = Attack.allCases.filter { variant.isWebSocket || !Attack.onWebSockets.contains($0) }
        let attacks = effort > 1 ? all : Self.attacks(variant)
        var plans = attacks.map { attack in
            Plan(
                attack: attack,
                type: Self.attacksOnWaiting.contains(attack) ? ServerUnderAttack.hang : ServerUnderAttack.echo,
                strength: Self.strength * (attack == .pinnedSlices ? 2 : 1)
            )
        }
        if effort > 1 {
            // As many as it takes to hold all that the server may hold.
            plans.append(Plan(attack: .tricklingReaders, type: ServerUnderAttack.largeAnswer, strength: 6))
        }
        return plans
    }

    /// Those that do something else to a variant than to the plain one; with more effort there are all.
    private static func attacks(_ variant: Variant) -> [Attack] {
        switch variant {
        case .plain: Attack.allCases.filter { !Attack.onWebSockets.contains($0) }
        case .framesOverWebSocket: [.slowBody, .callFlood, .neverReads, .tricklingReaders] + Attack.onWebSockets
        case .messages: [.neverReads, .tricklingReaders] + Attack.onWebSockets
        case .tls: [.neverReads, .tricklingReaders, .largeHello, .pinnedSlices, .pingFlood]
        case .answersInOrder: [.callFlood, .neverReads, .tricklingReaders, .requestAndCancel]
        }
    }

    private static let attacksOnWaiting: Set<Attack> = [
        .repeatedKey, .distantDeadlines, .pinnedSlices, .requestAndCancel,
    ]

    /// The findings by which a promise may be broken.
    private static func finding(_ promise: Promise, _ plan: Plan) -> Comment? {
        switch (promise, plan.attack) {
        case (.honestClientsAreServed, .tricklingReaders) where plan.type == ServerUnderAttack.largeAnswer:
            "C1: slow readers take the whole byte budget, and others are refused"
        case (.memoryIsAccountedFor, .pinnedSlices):
            "H1: what is counted of a request is its length, not the buffer that it keeps"
        case (.memoryIsAccountedFor, .callFlood), (.memoryIsAccountedFor, .distantDeadlines),
            (.memoryIsAccountedFor, .repeatedKey), (.memoryIsAccountedFor, .requestAndCancel):
            "H1: the task and the tables of a request are not counted"
        case (.memoryIsAccountedFor, .compressionBombs), (.honestClientsAreServed, .compressionBombs):
            "H6: bodies are decompressed for anybody, on the threads of all handlers, and one on each beyond the account"
        case (.memoryIsAccountedFor, .hugeMessages), (.memoryIsAccountedFor, .deflateBombs):
            "the messages of WebSockets are not in the account: neither those that are unfinished nor those unread"
        default: nil
        }
    }

    private static func expect(
        _ promise: Promise,
        _ plan: Plan,
        _ isKept: Bool,
        _ comment: Comment,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        guard let finding = Self.finding(promise, plan) else {
            #expect(isKept, comment, sourceLocation: sourceLocation)
            return
        }
        withKnownIssue(finding, isIntermittent: true) {
            #expect(isKept, comment, sourceLocation: sourceLocation)
        }
    }

    private static func run(
        _ plan: Plan,
        _ variant: Variant,
        _ control: ServerUnderAttack.Control,
        _ honest: HonestClients,
        _ webSockets: HonestWebSockets?
    ) async throws {
        let addresses = try await control.addresses()
        var address = try #require(addresses.last)
        if let path = variant.path { address = try Endpoint(url: "ws://\(address)\(path)") }
        var tls: ClientTLS?
        if variant == .tls {
            tls = ClientTLS()
            tls?.trust = try TestAuthority().trust
        }
        try await control.mark()
        _ = honest.takeRecord()
        let begun = ContinuousClock.now

        let attackers = try await plan.attack.run(
            against: address,
            type: plan.type,
            strength: plan.strength,
            tls: tls
        )
        #expect(!attackers.isEmpty)
        // Among them, and while they leave.
        try await honest.areAnswered(times: 20)
        let longest = try await webSockets?.areAnswered(times: 20) ?? .zero
        for attacker in attackers { await attacker.perform(.reset) }
        try await honest.areAnswered(times: 20)
        try await webSockets?.areAnswered(times: 5)

        let count = honest.count + (webSockets?.count ?? 0)
        let isGivenBack: Void? = try? await eventually("the end of \(plan)", within: .seconds(60)) {
            let figures = try await control.figures()
            // Honest calls come and go meanwhile.
            return figures.connections == count && figures.requestsInFlight <= count && figures.bufferedBytes < 1_024
        }
        var record = honest.takeRecord()
        record.longestRoundTrip = max(record.longestRoundTrip, longest)
        if let losses = webSockets?.losses, losses > 0 { record.faults["lost WebSockets"] = losses }
        let figures = try await control.figures()
        print("\(variant): \(plan): \(ContinuousClock.now - begun), \(record); \(figures)")

        Self.expect(
            .honestClientsAreServed,
            plan,
            record.longestRoundTrip < Self.longestRoundTrip && record.faults.isEmpty,
            "\(variant), \(plan): \(record)"
        )
        let allowed = 2 * figures.held + Self.slack
        Self.expect(.memoryIsAccountedFor, plan, figures.growth <= allowed, "\(variant), \(plan): \(figures)")
        Self.expect(.everythingIsGivenBack, plan, isGivenBack != nil, "\(variant), \(plan): \(figures)")
    }

    private static func serve(_ variant: Variant, _ path: String) async {
        await #expect(processExitsWith: .success) { [variant = variant.rawValue as String, path = path as String] in
            let variant = try #require(ServerUnderAttack.Variant(rawValue: variant))
            try await ServerUnderAttack.run(variant, control: path)
        }
    }

    @Test(arguments: Variant.allCases)
    func honestClientsAreServedAndMemoryIsAccountedFor(variant: Variant) async throws {
        let folder = try TemporaryFolder()
        let path = folder.file("control")
        async let process: Void = Self.serve(variant, path)
        let control = try await ServerUnderAttack.Control(path)
        do {
            let address = try #require(try await control.addresses().first)
            let honest = try await HonestClients(
                to: address,
                // On every event loop.
                count: max(4, System.coreCount),
                types: (ServerUnderAttack.synchronousEcho, ServerUnderAttack.echo)
            )
            try await honest.areAnswered(times: 50)
            let webSockets = try variant.isWebSocket ? HonestWebSockets(to: address, type: ServerUnderAttack.echo) : nil
            do {
                try await webSockets?.areAnswered(times: 50)
                for plan in Self.plans(variant) { try await Self.run(plan, variant, control, honest, webSockets) }
            } catch {
                await webSockets?.close()
                await honest.close()
                throw error
            }
            await webSockets?.close()
            await honest.close()
        } catch {
            await control.end()
            throw error
        }
        await control.end()
        await process
    }
}
#endif
