// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore

extension HostileClient.Attack {
    private typealias Act = HostileClient.Act

    /// Runs an attack on a resource that a server must limit: memory, requests, keys, hellos, time.
    func attackLimits(
        _ target: Target,
        _ type: UInt32,
        _ strength: Int,
        _ seed: UInt64
    ) async throws -> [HostileClient] {
        /// That many serials for one connection.
        func serials(_ count: Int) -> Range<UInt32> { 1_000..<(1_000 + UInt32(min(count * strength, 65_000))) }
        var deaf = target
        deaf.reads = false
        switch self {
        case .hoardingReaders:
            let requests = Act.requests(type, serials: serials(10_000))
            let act = Act.glued(
                .readSlowly(bytes: 8 << 10, every: .seconds(1)),
                requests,
                .keepSending(.ping(), every: .milliseconds(100))
            )
            return try await self.crowd(of: 20, deaf, receiveBuffer: 4 << 10) { _ in act }
        case .emptyRequests:
            let requests = Act.requests(type, serials: serials(4_000))
            return try await self.crowd(of: 16, target) { _ in requests }
        case .abandonedDeadlines:
            var metadata = WireMetadata()
            metadata.deadline = 3_600_000
            let sealed = try Envelope.seal(type: type, body: ByteBuffer(), metadata: metadata)
            let requests = Act.requests(sealed.type, serials: serials(4_000), sealed.payload)
            let attackers = try await self.crowd(of: 8, target) { _ in
                .hello(.metadata).then(requests)
            }
            for (number, attacker) in attackers.enumerated() {
                await attacker.perform(number % 2 == 0 ? .close : .reset, within: .milliseconds(500))
            }
            return attackers
        case .helloCrowd:
            let hello = Act.frame(Self.largeHello(features: 50_000 * strength))
            return try await self.crowd(of: min(16 * strength, 64), target, atOnce: 16) { _ in hello }
        case .repeatedHello:
            let hello = Act.hello(.metadata, .compression, .idempotency).times(5_000 * strength)
            return try await self.crowd(of: 2, target) { _ in hello }
        case .abandonedHellos:
            return try await self.crowd(of: 200 * strength, target, stays: false) { number in
                .hello(.metadata, token: Array("token \(number)".utf8)).then(.close)
            }
        case .compressibleAnswers:
            let requests = Act.requests(type, serials: serials(2_000), ByteBuffer(repeating: 0x61, count: 16))
            return try await self.crowd(of: 2, target) { _ in .hello(.compression).then(requests) }
        case .barelyMovingFrames:
            let quarter = ByteBuffer(repeating: 0x61, count: Frame.defaultMaximumPayloadLength / 4)
            let beginning = Act.request(type, serial: 50, quarter)
                .announcing(length: UInt32(Frame.defaultMaximumPayloadLength))
                .cut(after: quarter.readableBytes)
            // In the middle of a frame they are arbitrary bytes.
            let more = Act.request(type, serial: 51, ByteBuffer(repeating: 0x61, count: 134))
            return try await self.crowd(of: 8 * strength, target) { _ in
                beginning.then(.keepSending(more, every: .seconds(1)))
            }
        case .freeFrames:
            let round = Act.glued(
                .ping(),
                .cancel(77_777),
                .request(FrameType.application.upperBound, serial: 50),
                .request(type, serial: 7),
                .request(type, serial: 51, "wrong").corrupted().times(2),
                .request(type, serial: 52, "right")
            )
            let rounds = Act.glued(Array(repeating: round, count: 2_000 * strength))
            return try await self.crowd(of: 2, target) { _ in rounds }
        case .deafListeners:
            let listeners = try await self.crowd(of: 300 * strength, deaf, receiveBuffer: 4 << 10) { _ in .ping() }
            // Their pushes are 16 MiB.
            return try await self.crowd(of: 1, target) { _ in .requests(type, serials: 50..<306) } + listeners
        case .slowCalls:
            let body = ByteBuffer(string: "slow")
            let calls = ([1_000, 1_100, 1_200] as [UInt32]).map { first -> Act in
                .requests(type, serials: first..<(first + 100), body).delayed(by: .milliseconds(300))
            }
            return try await self.crowd(of: 4 * strength, target) { _ in .glued(calls) }
        case .keptAnswers:
            let acts = try (0..<4).map { connection in
                try Self.keyed(type, connection, count: 2_500 * strength, large: 8, seed)
            }
            return try await self.crowd(of: acts.count, target) { acts[$0] }
        case .onceBusy:
            let burst = Act.glued(
                .requests(type, serials: 1_000..<1_064, ByteBuffer(repeating: 0x61, count: 16 << 10)),
                .requests(type, serials: 2_000..<2_500),
                .ping().times(1_000)
            )
            return try await self.crowd(of: 100 * strength, target, atOnce: 8, within: .seconds(5)) { _ in burst }
        default:
            return []
        }
    }

    /// Returns a hello and requests, each with its own key: `count` small ones, and then `large` ones with 4 MiB.
    private static func keyed(
        _ type: UInt32,
        _ connection: Int,
        count: Int,
        large: Int,
        _ seed: UInt64
    ) throws -> Act {
        let (small, body) = (ByteBuffer(string: "kept"), ByteBuffer(repeating: 0x61, count: 4 << 20))
        let requests = try (0..<(count + large)).map { number in
            var metadata = WireMetadata()
            metadata.idempotencyKey = "\(seed), \(connection), \(number)"
            let sealed = try Envelope.seal(type: type, body: number < count ? small : body, metadata: metadata)
            return Act.request(sealed.type, serial: UInt32(1_000 + number), sealed.payload)
        }
        return .hello(.metadata, .idempotency).then(.glued(requests))
    }
}
