// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import NIOPosix
import TestSupport
import Testing

@testable import HHSocketServer

/// The rules by which the server judges a peer, whatever it speaks. ``EchoOfLines`` is a language of these tests, which
/// names none of them.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct PeerRuleTests {
    /// What a peer speaks.
    enum Language: CaseIterable, Sendable {
        case frames, messages, lines
        /// Nothing yet: the opening of a WebSocket is awaited.
        case opening

        /// Those in which units are exchanged.
        static let open: [Self] = [.frames, .messages, .lines]

        /// The beginning of a unit, of this many bytes or hardly more.
        func beginning(_ count: Int) -> HostileClient.Act {
            let bytes = ByteBuffer(repeating: 1, count: count)
            return switch self {
            case .frames:
                .request(101, serial: 50, ByteBuffer(repeating: 1, count: count + 100_000)).cut(after: count)
            case .messages: .webSocketFrame(.binary(bytes).unfinished())
            case .lines, .opening: .raw(bytes)
            }
        }

        /// A byte more of the same unit.
        var continuation: HostileClient.Act {
            switch self {
            case .messages: .webSocketFrame(.continuation(ByteBuffer(bytes: [1])).unfinished())
            case .frames, .lines, .opening: .raw([1])
            }
        }

        /// A unit that is echoed.
        func unit(_ count: Int) -> HostileClient.Act {
            let bytes = ByteBuffer(repeating: 1, count: count)
            return switch self {
            case .frames: .request(101, serial: 60, bytes)
            case .messages: .binary(bytes)
            case .lines, .opening: .raw(bytes).then(.raw([0x0A]))
            }
        }
    }

    /// A server of one language.
    private struct Host: Sendable {
        var endpoint: Endpoint
        var loops: [ServerLoop]
        var parts: ServerParts
        var opensWebSocket = true

        var ledger: Ledger { self.parts.books.ledger }
        var statistics: ServerStatistics {
            self.loops.reduce(into: ServerStatistics()) { $0 += $1.counters.statistics }
        }
        var connectionCount: Int { self.loops.reduce(0) { $0 + $1.counters.connectionCount } }

        func client(reads: Bool = true, receiveBuffer: Int? = nil) async throws -> HostileClient {
            try await HostileClient(
                to: self.endpoint,
                opensWebSocket: self.opensWebSocket,
                reads: reads,
                receiveBuffer: receiveBuffer
            )
        }
    }

    private let time = ManualTime()

    private func with(
        _ language: Language,
        limits: (inout ServerLimits) -> Void = { _ in },
        _ body: (Host) async throws -> Void
    ) async throws {
        let isWebSocket = language == .messages || language == .opening
        let listener = isWebSocket ? try ServerListener(url: "ws://127.0.0.1:0/rpc") : ServerListener()
        var configuration = SocketServer.Configuration(listeners: [listener])
        limits(&configuration.limits)
        configuration.time = SocketTime(self.time)
        guard language != .lines else { return try await self.withLines(configuration, body) }
        try await withServer(configuration, .echo) { server in
            try server.webSocket("/messages") { message, connection in connection.post(message) }
        } _: { server in
            let port = try #require(server.address?.port)
            let endpoint =
                isWebSocket
                ? try Endpoint(url: "ws://127.0.0.1:\(port)/messages") : Endpoint(host: "127.0.0.1", port: port)
            var host = Host(endpoint: endpoint, loops: server.loops, parts: try #require(server.parts))
            host.opensWebSocket = language != .opening
            try await body(host)
        }
    }

    /// Accepts connections of the test's own language.
    private func withLines(
        _ configuration: SocketServer.Configuration,
        _ body: (Host) async throws -> Void
    ) async throws {
        let eventLoop = MultiThreadedEventLoopGroup.singleton.next()
        let loop = ServerLoop(
            index: 0,
            eventLoop: eventLoop,
            logger: configuration.logger,
            maximumHandshakes: 1,
            time: configuration.time
        )
        let quota = ConnectionQuota.Limits(configuration.limits, descriptors: 1_000, loops: 1)
        let parts = ServerParts(configuration, router: .echo, quota: quota, loopCount: 1)
        let settings = try ListenerSettings(index: 0, configuration.listeners[0], configuration)
        let bytes = configuration.limits.kernelSendBuffer
        let listener = try await ServerBootstrap(group: eventLoop)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    if let bytes {
                        try channel.syncOptions?.setOption(.socketOption(.so_sndbuf), value: .init(bytes))
                    }
                    let peer = ServerPeer(on: channel, loop, parts: parts, listener: settings)
                    channel.closeFuture.assumeIsolated().whenComplete { _ in peer.channelClosed() }
                    peer.arrived(from: channel.remoteAddress, refusal: nil)
                    try EchoOfLines(peer).add(to: channel.pipeline.syncOperations)
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        let clock = SweepClock([loop], every: .seconds(1), time: configuration.time) { parts.books.ledger.check() }
        let port = try #require(listener.localAddress?.port)
        let endpoint = Endpoint(host: "127.0.0.1", port: port)
        let result = await Result { try await body(Host(endpoint: endpoint, loops: [loop], parts: parts)) }
        try await listener.close()
        let drained = loop.drain(ShutdownPolicy())
        loop.kill()
        try await drained.get()
        clock.end()
        parts.books.ledger.end()
        parts.books.peerLog.end()
        parts.services.threads.shutdown()
        try result.get()
    }

    // MARK: Progress

    /// A byte now and then is no progress.
    @Test(arguments: Language.open) func unitThatTricklesInIsAStall(language: Language) async throws {
        try await self.with(language) { host in
            let client = try await host.client()
            await client.perform(language.beginning(100_000))
            try await eventually("the beginning") { host.ledger.bytes > 100_000 }
            for _ in 1...5 where host.statistics.readStalls == 0 {
                await self.time.advance(by: .seconds(14))
                await client.perform(language.continuation)
            }
            #expect(host.statistics.readStalls == 1)
            try await client.ended()
            try await eventually("the end") { host.connectionCount == 0 }
        }
    }

    @Test(arguments: Language.open) func peerThatDoesNotReadIsClosed(language: Language) async throws {
        try await self.with(language, limits: { $0.kernelSendBuffer = 64 << 10 }) { host in
            let client = try await host.client(reads: false, receiveBuffer: 4_096)
            await client.perform(language.unit(900_000))
            try await eventually("the echo") { host.ledger.bytes > 300_000 }
            for _ in 1...20 where host.statistics.writeStalls == 0 {
                await self.time.advance(by: .seconds(14))
                await client.perform(language.unit(1))
            }
            #expect(host.statistics.writeStalls == 1)
            try await eventually("the end") { host.connectionCount == 0 }
        }
    }

    @Test(arguments: Language.open) func idlePeerIsClosed(language: Language) async throws {
        try await self.with(language) { host in
            let client = try await host.client()
            await client.perform(language.unit(10))
            try await eventually("the connection") { host.connectionCount == 1 }
            for _ in 1...10 where host.statistics.idleEvictions == 0 { await self.time.advance(by: .seconds(100)) }
            #expect(host.statistics.idleEvictions == 1)
            try await client.ended()
            try await eventually("the end") { host.connectionCount == 0 }
        }
    }

    // MARK: Costs

    @Test(arguments: Language.open) func peersThatHoldTooMuchAreClosed(language: Language) async throws {
        try await self.with(language, limits: { $0.maximumBufferedBytes = 2 << 20 }) { host in
            var clients: [HostileClient] = []
            for _ in 1...4 {
                clients.append(try await host.client())
                await clients.last?.perform(language.beginning(700_000))
            }
            try await self.time.advance(by: .milliseconds(200), until: "an eviction") {
                host.statistics.memoryEvictions > 0
            }
            // They have some time to read why.
            try await self.time.advance(by: .milliseconds(200), until: "the limit") {
                host.ledger.bytes <= 2 << 20
            }
            withExtendedLifetime(clients) {}
        }
    }

    /// The memory of a peer that is told to close is free at once, though it does not close its side and no time
    /// passes. Otherwise others would be closed in its place.
    @Test(arguments: Language.open) func onlyThosePeersAreClosedWhoseMemoryIsNeeded(language: Language) async throws {
        let maximum = 4 << 20
        try await self.with(language, limits: { $0.maximumBufferedBytes = maximum }) { host in
            var others: [HostileClient] = []
            for count in 1...3 {
                others.append(try await host.client())
                await others.last?.perform(language.beginning(40_000))
                try await eventually("the beginnings") { host.ledger.bytes >= count * 40_000 }
            }
            let before = host.ledger.bytes
            let hoarder = try await host.client()
            await hoarder.perform(language.beginning(900_000))
            try await eventually("the long one") { host.ledger.bytes - before >= 900_000 }
            let held = host.ledger.bytes
            host.ledger.add(maximum * 15 / 16 - held, shard: 0)
            try await eventually("an eviction") { host.statistics.memoryEvictions > 0 }
            try await eventually("the end of evictions") { !host.ledger.isClosingConnections }
            #expect(host.statistics.memoryEvictions == 1)
            #expect(host.ledger.bytes < maximum * 3 / 4)
            host.ledger.add(held - maximum * 15 / 16, shard: 0)
            withExtendedLifetime((others, hoarder)) {}
        }
    }

    /// Otherwise the units of peers that are being closed would fill the rest, and requests of others be refused.
    @Test(arguments: Language.open) func unitsAreReadSlowlyWhileMemoryIsShort(language: Language) async throws {
        let maximum = 8 << 20
        try await self.with(language, limits: { $0.maximumBufferedBytes = maximum }) { host in
            let client = try await host.client()
            try await eventually("the connection") { host.connectionCount == 1 }
            // Nobody is closed here.
            host.ledger.end()
            let others = maximum * 15 / 16
            host.ledger.add(others, shard: 0)
            let before = host.ledger.bytes
            async let sending = client.perform(language.beginning(900_000))
            try await eventually("the beginning") { host.ledger.bytes - before >= LinkChannel.longUnitBytes }
            // Meanwhile others are served.
            let other = try await host.client()
            await other.perform(language.unit(10))
            try await eventually("another") { host.connectionCount == 2 }
            #expect(host.ledger.takePeak() - before < 600_000)
            host.ledger.add(-others, shard: 0)
            try await eventually("the rest") { host.ledger.bytes >= 900_000 }
            #expect(await sending == .done)
        }
    }

    /// Though its bytes come one part after the other, and no time passes in which reading could go on.
    @Test func shortUnitIsReadAtOnceWhileMemoryIsShort() async throws {
        let maximum = 8 << 20
        try await self.with(.frames, limits: { $0.maximumBufferedBytes = maximum }) { host in
            let client = try await host.client()
            try await eventually("the connection") { host.connectionCount == 1 }
            host.ledger.end()
            host.ledger.add(maximum * 15 / 16, shard: 0)
            let unit = Language.frames.unit(60 << 10).dribbled(bytes: 10_000, every: .milliseconds(1))
            await client.perform(unit)
            #expect(try await client.response().payload.readableBytes == 60 << 10)
            host.ledger.add(-maximum * 15 / 16, shard: 0)
        }
    }

    @Test(arguments: Language.allCases) func connectionIsChargedFromItsAcceptanceToItsEnd(
        language: Language
    ) async throws {
        try await self.with(language) { host in
            do {
                let client = try await host.client()
                try await eventually("the charge") { host.ledger.connectionBytes >= ConnectionCost.plain }
                #expect(host.ledger.principals.count == 1)
                await client.perform(.close)
            }
            try await eventually("the end") { host.ledger.bytes == 0 }
            #expect(host.ledger.connectionBytes == 0)
            #expect(host.ledger.principals.count == 0)
        }
    }

    // MARK: The end

    @Test(arguments: Language.allCases) func silentPeerMakesRoom(language: Language) async throws {
        try await self.with(language) { host in
            let client = try await host.client()
            try await eventually("the connection") { host.ledger.connectionBytes > 0 }
            let shortage = ConnectionShortage(host.loops, minimumSilence: .seconds(5), time: SocketTime(self.time))
            #expect(!shortage.makeRoom())
            await self.time.advance(by: .seconds(6))
            #expect(shortage.makeRoom())
            try await self.time.advance(by: .milliseconds(10), until: "the end") { host.ledger.bytes == 0 }
            #expect(host.statistics.silentEvictions == (language == .opening ? 0 : 1))
            try await client.ended()
        }
    }

    @Test(arguments: Language.allCases) func shutdownEndsEveryPeer(language: Language) async throws {
        try await self.with(language) { host in
            let client = try await host.client()
            try await eventually("the connection") { host.ledger.connectionBytes > 0 }
            for loop in host.loops { loop.kill() }
            try await client.ended()
            try await eventually("the end") { host.ledger.bytes == 0 }
        }
    }
}
