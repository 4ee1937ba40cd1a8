// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import Foundation
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// A server under attack, its honest clients, and the measurements.
struct Siege: Sendable {
    /// A promise of a server.
    enum Promise: Hashable, Sendable {
        /// None of the honest calls is refused, and each is answered in time.
        case honestClientsAreServed
        case newcomersAreServed
        /// The process grows by at most twice the bytes that the server reports to hold, and 64 MiB.
        case memoryIsAccountedFor
        /// Once the attackers have left, their connections, requests and bytes are released.
        case everythingIsGivenBack
        /// Once the attackers have left, the process returns the memory to the system.
        case memoryIsGivenBack
        /// A connection that has been quiet for ten seconds takes little memory.
        case idleConnectionsAreCheap
    }

    /// The time that a test waits for any answers to honest clients.
    private static let patience = Duration.seconds(60)
    static let honestCount = 10

    let variant: ServerUnderAttack.Variant
    private let control: ServerUnderAttack.Control
    private let addresses: [Endpoint]
    private let honest: [HonestClients]
    private let calm: HonestClients.Record
    private let calmBytes: Int

    /// Runs `body` with a server in a separate process.
    static func lay(
        to variant: ServerUnderAttack.Variant,
        _ body: @Sendable (Siege) async throws -> Void
    ) async throws {
        try limitDescriptors(nil)
        let folder = try TemporaryFolder()
        let path = folder.file("control")
        async let process: Void = Self.serve(variant, path)
        let control = try await ServerUnderAttack.Control(path)
        do {
            let siege = try await Siege(variant, control)
            do {
                try await body(siege)
            } catch {
                await siege.end()
                throw error
            }
            await siege.end()
        } catch {
            await control.end()
            await process
            throw error
        }
        await control.end()
        await process
    }

    private static func serve(_ variant: ServerUnderAttack.Variant, _ path: String) async {
        // Its log, or the backtrace of a trap. Observed output would occupy one of the few threads of Swift's tasks.
        let log = "\(path).log"
        let result = await #expect(processExitsWith: .success) {
            [variant = variant.rawValue as String, path = path as String, log = log as String] in
            let file = open(log, O_WRONLY | O_CREAT | O_APPEND, 0o600)
            dup2(file, STDERR_FILENO)
            close(file)
            let variant = try #require(ServerUnderAttack.Variant(rawValue: variant))
            try await ServerUnderAttack.run(variant, control: path)
        }
        guard result?.exitStatus != .exitCode(EXIT_SUCCESS) else { return }
        print((try? String(contentsOfFile: log, encoding: .utf8))?.suffix(64 << 10) ?? "no log")
    }

    private init(_ variant: ServerUnderAttack.Variant, _ control: ServerUnderAttack.Control) async throws {
        self.variant = variant
        self.control = control
        self.addresses = try await control.addresses()
        var honest: [HonestClients] = []
        for (address, transport, count) in try Self.ways(variant, self.addresses) {
            honest.append(
                try await HonestClients(
                    to: address,
                    over: transport,
                    count: count,
                    types: ServerUnderAttack.honestTypes,
                    token: variant.token
                )
            )
        }
        self.honest = honest
        // The first requests take longer.
        for clients in honest { try await clients.areAnswered(times: 20, within: .seconds(20)) }
        for clients in honest { _ = clients.takeRecord() }
        try await control.mark()
        for clients in honest { try await clients.areAnswered(times: 50, within: .seconds(20)) }
        self.calm = Self.takeRecord(honest)
        self.calmBytes = try await control.figures().highestBufferedBytes
    }

    /// Returns the transports of honest clients to the server.
    private static func ways(
        _ variant: ServerUnderAttack.Variant,
        _ addresses: [Endpoint]
    ) throws -> [(Endpoint, HonestClients.Transport, count: Int)] {
        let first = try #require(addresses.first)
        let last = try #require(addresses.last)
        guard variant == .everything else { return [(last, try variant.transport(), Self.honestCount)] }
        return [
            (first, .tcp, 4), (last, .tls(try ServerUnderAttack.Variant.clientTLS()), 3),
            (first, .framesOverWebSocket(path: ServerUnderAttack.framesPath), 3),
        ]
    }

    private func end() async {
        for clients in self.honest { await clients.close() }
    }

    private static func takeRecord(_ honest: [HonestClients]) -> HonestClients.Record {
        honest.reduce(into: HonestClients.Record()) { total, clients in
            let record = clients.takeRecord()
            total.roundTrips += record.roundTrips
            total.waiting += record.waiting
            total.faults.merge(record.faults, uniquingKeysWith: +)
        }
    }

    // MARK: Attacking

    /// Runs an attack, over the transport of the variant.
    ///
    /// - Parameter round: Selects the attacked address and path, if there are several; and the seed.
    func attack(_ plan: AttackPlan, round: Int = 0) async throws -> [HostileClient] {
        let first = try #require(self.addresses.first)
        let last = try #require(self.addresses.last)
        var (address, tls) = (last, self.variant == .tls ? try ServerUnderAttack.Variant.clientTLS() : nil)
        if let path = self.variant.path { address = try Endpoint(url: "ws://\(last)\(path)") }
        if self.variant == .everything {
            let paths = [ServerUnderAttack.framesPath, ServerUnderAttack.messagesPath]
            if AttackPlan.Attack.onWebSockets.contains(plan.attack) || round % 3 == 1 {
                address = try Endpoint(url: "ws://\(first)\(paths[round % 2])")
            } else if AttackPlan.Attack.onTLS.contains(plan.attack) || round % 3 == 2 {
                tls = try ServerUnderAttack.Variant.clientTLS()
            } else {
                address = first
            }
        }
        return try await plan.attack.run(
            against: address,
            type: plan.type,
            strength: plan.strength,
            seed: UInt64(round),
            tls: tls,
            from: AttackPlan.sources
        )
    }

    /// Measures the effect of an attack.
    ///
    /// - Parameters:
    ///   - open: The promises that are known to be broken, for which the test does not wait.
    ///   - attack: Runs the attack, and returns when it is at its height.
    func measure(
        _ plan: AttackPlan,
        named name: String? = nil,
        open: Set<Promise>,
        attack: @Sendable () async throws -> [HostileClient]
    ) async throws -> AttackFigures {
        var figures = AttackFigures(
            variant: self.variant.rawValue,
            attack: name ?? "\(plan.attack)",
            type: plan.type,
            strength: plan.strength
        )
        figures.calmP99 = self.calm.p99.milliseconds
        figures.calmLongest = self.calm.longest.milliseconds
        try await self.control.mark()
        let before = try await self.control.figures()
        _ = Self.takeRecord(self.honest)
        let keeper = plan.attack == .keptAnswers ? try await AnswerKeeper(self.addresses[0], self.variant) : nil
        let begun = ContinuousClock.now

        let attackers = try await attack()
        if attackers.isEmpty { figures.faults["no attackers"] = 1 }
        // Honest clients are answered during the attack, and while the attackers leave.
        await self.areAnswered(times: 20, &figures)
        figures.newcomer = await self.newcomer()
        if plan.attack == .onceBusy {
            figures.idleConnections = attackers.count
            figures.idleConnection = try await self.idleConnection(attackers.count, open)
        }
        if let keeper, try await !keeper.isAnswerKeptToTheEnd {
            figures.faults["an honest client's answer was forgotten"] = 1
        }
        for attacker in attackers { await attacker.perform(.reset, within: .seconds(1)) }
        let left = ContinuousClock.now
        figures.seconds = (left - begun) / .seconds(1)
        await self.areAnswered(times: 20, &figures)
        let record = Self.takeRecord(self.honest)

        if try await self.isGivenBack(open, before) { figures.givenBack = (ContinuousClock.now - left) / .seconds(1) }
        if !open.contains(.memoryIsGivenBack) { _ = try await self.isMemoryGivenBack() }
        let memory = try await self.control.figures()
        figures.answers = record.answers
        figures.p99 = record.p99.milliseconds
        figures.longest = record.longest.milliseconds
        figures.faults.merge(record.faults, uniquingKeysWith: +)
        (figures.held, figures.growth) = (memory.held, memory.growth)
        (figures.stillHeld, figures.left) = (memory.bufferedBytes, memory.gained)
        (figures.stillConnected, figures.stillInFlight) = (memory.connections, memory.requestsInFlight)
        figures.report()
        return figures
    }

    private func areAnswered(times: Int, _ figures: inout AttackFigures) async {
        do {
            for clients in self.honest { try await clients.areAnswered(times: times, within: Self.patience) }
        } catch {
            figures.faults["honest clients were not answered for \(Self.patience)", default: 0] += 1
        }
    }

    /// Connects one more client, repeatedly if it is rejected, as clients do.
    ///
    /// - Returns: The time until it was served, in milliseconds; nil if it was not.
    private func newcomer() async -> Double? {
        let begun = ContinuousClock.now
        while ContinuousClock.now - begun < AttackFigures.recovery {
            if await self.isNewcomerServed() { return (ContinuousClock.now - begun).milliseconds }
            try? await Task.sleep(for: .milliseconds(100))
        }
        return nil
    }

    private func isNewcomerServed() async -> Bool {
        guard let (address, transport, _) = try? Self.ways(self.variant, self.addresses).first,
            let newcomer = try? await HonestClients(
                to: address,
                over: transport,
                count: 1,
                types: ServerUnderAttack.honestTypes,
                token: self.variant.token
            )
        else { return false }
        let answered: Void? = try? await newcomer.areAnswered(times: 1, within: .seconds(2))
        await newcomer.close()
        return answered != nil
    }

    /// - Returns: The resident memory of each of the attackers' connections, when it has fallen below the limit or the
    ///   time has ended.
    private func idleConnection(_ count: Int, _ open: Set<Promise>) async throws -> Int {
        let patience = open.contains(.idleConnectionsAreCheap) ? Duration.seconds(1) : AttackFigures.recovery
        let allowed = AttackFigures.idleConnectionBytes(self.variant.rawValue) * count + AttackFigures.idleProcessBytes
        let control = self.control
        try? await eventually("\(count) idle connections in \(allowed) bytes", within: patience) {
            try await control.figures().gained <= allowed
        }
        return try await control.figures().gained / max(1, count)
    }

    private func isGivenBack(_ open: Set<Promise>, _ before: MemoryMeter.Figures) async throws -> Bool {
        let patience = open.contains(.everythingIsGivenBack) ? Duration.seconds(1) : AttackFigures.recovery
        let control = self.control
        // Honest calls are in flight meanwhile.
        let requests = before.requestsInFlight + Self.honestCount
        let bytes = max(before.bufferedBytes, self.calmBytes) + 64 << 10
        let isGivenBack: Void? = try? await eventually("the end of an attack", within: patience) {
            let figures = try await control.figures()
            return figures.connections <= before.connections && figures.requestsInFlight <= requests
                && figures.bufferedBytes <= bytes
        }
        return isGivenBack != nil
    }

    private func isMemoryGivenBack() async throws -> Bool {
        let control = self.control
        let isGivenBack: Void? = try? await eventually("memory", within: AttackFigures.recovery) {
            let figures = try await control.figures()
            return figures.gained <= 2 * figures.bufferedBytes + AttackFigures.slack
        }
        return isGivenBack != nil
    }
}

/// An honest client that was answered, and repeats its request with the same idempotency key.
private struct AnswerKeeper {
    private let client: HostileClient
    private let request: Envelope.Sealed
    private let answer: ByteBuffer

    init(_ address: Endpoint, _ variant: ServerUnderAttack.Variant) async throws {
        let tls = variant == .tls ? try ServerUnderAttack.Variant.clientTLS() : nil
        var url = address
        if variant == .framesOverWebSocket {
            url = try Endpoint(url: "ws://\(address)\(ServerUnderAttack.framesPath)")
        }
        self.client = try await HostileClient(to: url, tls: tls)
        var metadata = WireMetadata()
        metadata.idempotencyKey = "an honest client's \(UInt64.random(in: 0 ..< .max))"
        self.request = try Envelope.seal(type: ServerUnderAttack.counter, body: ByteBuffer(), metadata: metadata)
        var hello = WireHello()
        hello.version = 1
        hello.features = ["metadata", "idempotency"]
        if let token = variant.token { hello.sessionToken = .init(token.utf8) }
        let payload = try ByteBuffer(message: hello)
        await self.client.perform(
            .frame(Frame(type: FrameType.hello, serial: FrameSerial.hello, payload: payload))
        )
        _ = try await self.client.response()
        self.answer = try await Self.ask(self.client, self.request)
    }

    private static func ask(_ client: HostileClient, _ request: Envelope.Sealed) async throws -> ByteBuffer {
        await client.perform(.request(request.type, serial: 50, request.payload))
        while true {
            let answer = try await client.response()
            if answer.serial == 50 { return answer.payload }
        }
    }

    /// Whether a repeat gets the first answer. Then the client disconnects.
    var isAnswerKeptToTheEnd: Bool {
        get async throws {
            let answer = try await Self.ask(self.client, self.request)
            await self.client.perform(.close)
            return answer == self.answer
        }
    }
}
#endif
