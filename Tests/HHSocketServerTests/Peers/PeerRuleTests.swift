// SPDX-License-Identifier: Apache-2.0
import Dispatch
import HHSocket
import HHSocketTesting
import NIOCore
import NIOPosix
import TestSupport
import Testing

@testable import HHSocketServer

/// The rules by which the server judges a peer, whatever it speaks: one test each, for every language for which there
/// can be such a rule. ``EchoOfLines`` is a language of these tests, which names none of them.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct PeerRuleTests {
    /// What a peer speaks.
    enum Language: CaseIterable, Sendable {
        case frames, messages, lines
        /// Nothing yet: the opening of a WebSocket is awaited.
        case opening

        /// Those in which units are exchanged. An opening is left out where a rule cannot concern it: it has neither
        /// units nor an identity, its head is too short to be read slowly or to be closed for its memory, its answer
        /// fits into the system's buffers, and it is over before it could rest.
        static let open: [Self] = [.frames, .messages, .lines]

        /// The number of peers that the statistics count where time ends one: an opening's is counted nowhere.
        var countOfEnds: Int { self == .opening ? 0 : 1 }

        /// The length of the longest beginning.
        var longestBeginning: Int { self == .opening ? 14_000 : .max }

        /// The beginning of a unit, of this many bytes or hardly more.
        func beginning(_ count: Int) -> HostileClient.Act {
            let bytes = ByteBuffer(repeating: 1, count: count)
            return switch self {
            case .frames:
                .request(101, serial: 50, ByteBuffer(repeating: 1, count: count + 100_000)).cut(after: count)
            case .messages: .webSocketFrame(.binary(bytes).unfinished())
            case .lines: .raw(bytes)
            case .opening: .opening(headers: ["X-Padding": String(repeating: "x", count: count)]).cut(after: count)
            }
        }

        /// A byte more of the same unit.
        var continuation: HostileClient.Act {
            switch self {
            case .messages: .webSocketFrame(.continuation(ByteBuffer(bytes: [1])).unfinished())
            case .frames, .lines, .opening: .raw([0x78])
            }
        }

        /// A unit that is echoed; for an opening, its beginning.
        func unit(_ count: Int) -> HostileClient.Act {
            let bytes = ByteBuffer(repeating: 1, count: count)
            return switch self {
            case .frames: .request(101, serial: 60, bytes)
            case .messages: .binary(bytes)
            case .lines: .raw([UInt8](repeating: 1, count: count) + [0x0A])
            case .opening: self.beginning(count)
            }
        }

        /// Waits until units of these lengths, and no others, have been echoed.
        func echoes(_ lengths: [Int], to client: HostileClient) async throws {
            switch self {
            case .frames:
                _ = try await client.responses(lengths.count)
            case .messages:
                for _ in lengths { _ = try await client.message() }
            case .lines, .opening:
                let count = lengths.reduce(lengths.count, +)
                try await eventually("the echoes") { try await client.receivedBytes.count >= count }
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
        var isReadingHeld: Bool { get async throws { try await self.ask { $0.isReadingHeld } } }

        /// Asks the peer that has an ``identity``, on its event loop.
        func ask<Answer: Sendable>(_ question: @escaping @Sendable (ServerPeer) -> Answer) async throws -> Answer {
            let registry = self.parts.books.registry
            let port: PeerPort = try await eventually("the peer") {
                registry.connections(of: PeerRuleTests.identity).first as? PeerPort
            }
            let answer = Watched<Answer?>(nil)
            port.onLoop { peer, _ in
                let given = (peer as? ServerPeer).map { question($0) }
                answer.withLockedValue { $0 = given }
            }
            return try await answer.value("the peer's answer") { $0 }
        }

        func client(reads: Bool = true, receiveBuffer: Int? = nil) async throws -> HostileClient {
            try await HostileClient(
                to: self.endpoint,
                opensWebSocket: self.opensWebSocket,
                reads: reads,
                receiveBuffer: receiveBuffer
            )
        }
    }

    private static let identity = "ann"

    private let time = ManualTime()

    /// Gives all peers one identity.
    private static func identify(_ configuration: inout SocketServer.Configuration) {
        configuration.connections.admit = { _ in .admitAs(Self.identity) }
    }

    /// - Parameters:
    ///   - change: Changes the default configuration.
    ///   - work: Done for each unit before it is echoed, with its length.
    private func with(
        _ language: Language,
        change: (inout SocketServer.Configuration) -> Void = { _ in },
        work: @escaping @Sendable (Int) -> Void = { _ in },
        _ body: (Host) async throws -> Void
    ) async throws {
        let isWebSocket = language == .messages || language == .opening
        let listener = isWebSocket ? try ServerListener(url: "ws://127.0.0.1:0/rpc") : ServerListener()
        var configuration = SocketServer.Configuration(listeners: [listener])
        configuration.time = SocketTime(self.time)
        // All peers share its turns.
        configuration.eventLoops = 1
        change(&configuration)
        guard language != .lines else { return try await self.withLines(configuration, work: work, body) }
        var router = Router()
        router.handleSynchronously(101) { request, _ in
            work(request.body.readableBytes)
            return request.body
        }
        try await withServer(configuration, router) { server in
            try server.webSocket("/messages") { message, connection in
                work(message.payload.readableBytes)
                connection.post(message)
            }
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
        work: @escaping @Sendable (Int) -> Void,
        _ body: (Host) async throws -> Void
    ) async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let eventLoop = group.next()
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
        let listener = try await Acceptor.withOptionsOfPeers(ServerBootstrap(group: group))
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    if let bytes {
                        try channel.syncOptions?.setOption(.socketOption(.so_sndbuf), value: .init(bytes))
                    }
                    let peer = ServerPeer(on: channel, loop, parts: parts, listener: settings)
                    channel.closeFuture.assumeIsolated().whenComplete { _ in peer.channelClosed() }
                    peer.arrived(from: channel.remoteAddress, refusal: nil)
                    try EchoOfLines(peer, work: work).add(to: channel.pipeline.syncOperations)
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
        try await group.shutdownGracefully()
        try result.get()
    }

    // MARK: Progress

    /// A byte now and then is no progress.
    @Test(arguments: Language.allCases) func unitThatTricklesInIsAStall(language: Language) async throws {
        try await self.with(language) { host in
            let client = try await host.client()
            let count = min(100_000, language.longestBeginning)
            await client.perform(language.beginning(count))
            try await eventually("the beginning") { host.ledger.bytes > count }
            for _ in 1...5 where host.statistics[.readStalls] == 0 {
                await self.time.advance(by: .seconds(14))
                await client.perform(language.continuation)
            }
            #expect(host.statistics[.readStalls] == language.countOfEnds)
            try await client.ended()
            try await eventually("the end") { host.ledger.bytes == 0 }
        }
    }

    @Test(arguments: Language.open) func peerThatDoesNotReadIsClosed(language: Language) async throws {
        try await self.with(language, change: { $0.limits.kernelSendBuffer = 64 << 10 }) { host in
            let client = try await host.client(reads: false, receiveBuffer: 4_096)
            await client.perform(language.unit(900_000))
            try await eventually("the echo") { host.ledger.bytes > 300_000 }
            for _ in 1...20 where host.statistics[.writeStalls] == 0 {
                await self.time.advance(by: .seconds(14))
                await client.perform(language.unit(1))
            }
            #expect(host.statistics[.writeStalls] == 1)
            try await eventually("the end") { host.connectionCount == 0 }
        }
    }

    @Test(arguments: Language.allCases) func idlePeerIsClosed(language: Language) async throws {
        try await self.with(language) { host in
            let client = try await host.client()
            await client.perform(language.unit(10))
            try await eventually("the connection") { host.ledger.connectionBytes > 0 }
            for _ in 1...10 where host.statistics[.idleEvictions] == 0 { await self.time.advance(by: .seconds(100)) }
            #expect(host.statistics[.idleEvictions] == language.countOfEnds)
            try await client.ended()
            try await eventually("the end") { host.ledger.bytes == 0 }
        }
    }

    /// A client of frames is a stranger before its hello, where that is required, and one that opens a WebSocket before
    /// its request is whole. Messages follow such a request, and lines need no introduction.
    @Test(arguments: [Language.frames, .opening]) func strangerHasLittleTime(language: Language) async throws {
        try await self.with(language, change: { $0.hello.isRequired = true }) { host in
            let client = try await host.client()
            await client.perform(language.beginning(14_000))
            try await eventually("the beginning") { host.ledger.bytes > 14_000 }
            await self.time.advance(by: .seconds(9))
            #expect(host.ledger.bytes > 14_000)
            try await self.time.advance(by: .seconds(1), until: "the end") { host.ledger.bytes == 0 }
            #expect(host.statistics[.strangerTimeouts] == language.countOfEnds)
            try await client.ended()
        }
    }

    // MARK: Turns

    private static func occupyLoop() {
        let end = ContinuousClock.now + .milliseconds(1)
        while ContinuousClock.now < end {}
    }

    /// Sends many units of a millisecond at once, then an act, and meanwhile the units of another peer, one after the
    /// other.
    private func crowd(_ language: Language, length: Int, then end: HostileClient.Act? = nil) async throws {
        let (slow, quick, count) = (Watched(0), Watched(0), 1_000)
        try await self.with(
            language,
            work: { length in
                guard length < 2 else {
                    quick.increment()
                    return
                }
                Self.occupyLoop()
                slow.increment()
            }
        ) { host in
            let other = try await host.client()
            let busy = try await host.client()
            // They arrive in about one read.
            let units = language.unit(length).times(count)
            await busy.perform(end.map { units.then($0) } ?? units)
            try await slow.wait("the first unit") { $0 > 0 }
            while slow.current < count {
                let before = quick.current
                await other.perform(language.unit(2))
                try await quick.wait("another's unit") { $0 > before }
            }
            // If all were handled in one turn, there would be only one.
            #expect(quick.current >= 10, "\(quick.current)")
            guard end == nil else { return try await eventually("the end") { host.connectionCount == 1 } }
            try await language.echoes(Array(repeating: length, count: count), to: busy)
        }
    }

    @Test(arguments: Language.open, [0, 1])
    func manyUnitsLeaveTurnsToOthers(language: Language, length: Int) async throws {
        try await self.crowd(language, length: length)
    }

    /// Half-closed, a peer may still read; its end is reported after its units.
    @Test(arguments: Language.open)
    func unitsBeforeTheEndOfTheInputLeaveTurnsToOthers(language: Language) async throws {
        try await self.crowd(language, length: 1, then: .halfClose)
    }

    /// What had arrived before a connection was lost is handled for a short time only.
    @Test(arguments: Language.open) func unitsOfALostPeerDoNotOccupyTheLoop(language: Language) async throws {
        let (isBlocked, end, handled) = (Watched(false), DispatchSemaphore(value: 0), Watched(0))
        try await self.with(
            language,
            work: { length in
                guard length < 2 else {
                    isBlocked.withLockedValue { $0 = true }
                    end.wait()
                    return
                }
                Self.occupyLoop()
                handled.increment()
            }
        ) { host in
            defer { end.signal() }
            let other = try await host.client()
            let lost = try await host.client()
            await lost.perform(language.unit(1))
            try await handled.wait("the lost peer is served") { $0 == 1 }
            await other.perform(language.unit(2))
            try await isBlocked.wait("the loop is blocked") { $0 }
            // Everything has arrived before the loop goes on.
            await lost.perform(language.unit(1).times(2_000).then(.reset))
            try await lost.ended()
            end.signal()
            try await eventually("the end of the lost peer") { host.connectionCount == 1 }
            #expect(handled.current < 500, "\(handled.current)")
        }
    }

    // MARK: Identities

    /// The oldest one beyond the limit is closed.
    @Test(arguments: Language.open) func identityHasAFewPeers(language: Language) async throws {
        let handled = Watched(0)
        try await self.with(
            language,
            change: { configuration in
                Self.identify(&configuration)
                configuration.limits.maximumSessionsPerIdentity = 2
            },
            work: { _ in handled.increment() }
        ) { host in
            var clients: [HostileClient] = []
            for number in 1...3 {
                clients.append(try await host.client())
                await clients.last?.perform(language.unit(1))
                try await handled.wait("peer \(number) is served") { $0 == number }
            }
            try await self.time.advance(by: .seconds(1), until: "the end of one") { host.connectionCount == 2 }
            #expect(host.statistics[.sessionsDismissed] == 1)
            // The address, and the identity.
            #expect(host.ledger.principals.count == 2)
            for client in clients.dropFirst() { await client.perform(language.unit(1)) }
            try await handled.wait("the others are served") { $0 == 5 }
        }
    }

    // MARK: Units of no use

    /// An opening has no such units, and each line is echoed.
    @Test(arguments: [Language.frames, .messages])
    func peerWithTooManyUnitsOfNoUseIsClosed(language: Language) async throws {
        let handled = Watched(0)
        let ping: HostileClient.Act = language == .frames ? .ping() : .webSocketFrame(.ping())
        try await self.with(
            language,
            change: { $0.limits.unproductiveFrameRate = RequestRate(perSecond: 0.001, burst: 1_000) },
            work: { _ in handled.increment() }
        ) { host in
            let client = try await host.client()
            await client.perform(ping.times(900).then(language.unit(1)))
            try await handled.wait("the unit after them") { $0 == 1 }
            await self.time.advance(by: .seconds(2))
            #expect(host.statistics[.frameFloods] == 0)
            await client.perform(ping.times(200))
            try await self.time.advance(by: .seconds(1), until: "the end") { host.ledger.bytes == 0 }
            #expect(host.statistics[.frameFloods] == 1)
            try await client.ended()
        }
    }

    // MARK: Costs

    /// While about 1 MiB waits for the peer. Once it has read, it is served again.
    @Test(arguments: Language.open) func nothingIsReadBehindMuchOutput(language: Language) async throws {
        let (handled, count) = (Watched(0), 1_000)
        try await self.with(language, change: Self.identify, work: { _ in handled.increment() }) { host in
            let client = try await host.client(reads: false, receiveBuffer: 256 << 10)
            async let sending = client.perform(language.unit(10_000).times(count))
            try await eventually("reading is held") { try await host.isReadingHeld }
            client.discardWhatComes()
            await client.perform(.startReading)
            #expect(await sending == .done)
            try await handled.wait("the rest") { $0 == count }
            #expect(host.ledger.takePeak() < 4 << 20)
        }
    }

    /// The buffer in which its link gathers short units is free by then.
    @Test(arguments: Language.open) func quietPeerCostsLittle(language: Language) async throws {
        let (handled, lengths) = (Watched(0), [50_000, 2_000, 2_000])
        try await self.with(language, change: Self.identify, work: { _ in handled.increment() }) { host in
            let client = try await host.client()
            for (index, length) in lengths.enumerated() {
                await client.perform(language.unit(length))
                try await handled.wait("unit \(index)") { $0 > index }
            }
            try await language.echoes(lengths, to: client)
            await self.time.advance(by: .seconds(10))
            #expect(host.ledger.bytes <= 32 << 10)
            let left = try await host.ask { $0.rest() }
            #expect(left == 0)
        }
    }

    @Test(arguments: Language.open) func peersThatHoldTooMuchAreClosed(language: Language) async throws {
        try await self.with(language, change: { $0.limits.maximumBufferedBytes = 2 << 20 }) { host in
            var clients: [HostileClient] = []
            for _ in 1...4 {
                clients.append(try await host.client())
                await clients.last?.perform(language.beginning(700_000))
            }
            try await self.time.advance(by: .milliseconds(200), until: "an eviction") {
                host.statistics[.memoryEvictions] > 0
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
        try await self.with(language, change: { $0.limits.maximumBufferedBytes = maximum }) { host in
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
            try await eventually("an eviction") { host.statistics[.memoryEvictions] > 0 }
            try await eventually("the end of evictions") { !host.ledger.isClosingConnections }
            #expect(host.statistics[.memoryEvictions] == 1)
            #expect(host.ledger.bytes < maximum * 3 / 4)
            host.ledger.add(held - maximum * 15 / 16, shard: 0)
            withExtendedLifetime((others, hoarder)) {}
        }
    }

    /// Otherwise the units of peers that are being closed would fill the rest, and requests of others be refused.
    @Test(arguments: Language.open) func unitsAreReadSlowlyWhileMemoryIsShort(language: Language) async throws {
        let maximum = 8 << 20
        try await self.with(language, change: { $0.limits.maximumBufferedBytes = maximum }) { host in
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
        try await self.with(.frames, change: { $0.limits.maximumBufferedBytes = maximum }) { host in
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
            #expect(host.statistics[.silentEvictions] == language.countOfEnds)
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
