// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// The attack ``HostileClient/Attack/pinnedSlices`` on each place that keeps received bytes: a few bytes share the
/// buffer of a read with a large frame that is answered at once, and a slice that is kept keeps 256 KiB.
///
/// In a separate process, whose memory only the server and the attackers use.
@Suite(.tags(.io), .serialized, .timeLimit(.minutes(10))) struct PinnedSliceTests {
    private static let echo: UInt32 = 101
    private static let hang: UInt32 = 102
    private static let stream: UInt32 = 103
    private static let subscribe: UInt32 = 104
    private static let publish: UInt32 = 105
    private static let keep: UInt32 = 106
    private static let sendBack: UInt32 = 107
    private static let useUpCredit: UInt32 = 108
    /// The messages of a client that fill its inbox, and one more.
    private static let messages = 257
    /// The largest growth of a server whose account does not grow.
    private static let allowance = 24 << 20

    private static let filler = HostileClient.Act.request(
        FrameType.application.upperBound,
        serial: 49,
        ByteBuffer(repeating: 0x61, count: 254_000)
    )

    private static func piece(_ type: UInt32, _ serial: UInt32, length: Int) -> HostileClient.Act {
        .request(type | FrameType.continuesFlag, serial: serial, ByteBuffer(repeating: 0x30, count: length))
    }

    /// The frames that the server keeps, each of which is followed by a large frame.
    private static func kept(_ keeper: Keeper) throws -> [HostileClient.Act] {
        let serials = 1_000..<1_250 as Range<UInt32>
        let streams = 1_000..<1_009 as Range<UInt32>
        let item = ByteBuffer(repeating: 0x30, count: 1 << 16)
        switch keeper {
        case .requests: return serials.map { .request(Self.hang, serial: $0, "a") }
        case .pieces: return serials.map { Self.piece(Self.echo, $0, length: 1) }
        case .secondPieces:
            return serials.prefix(150).flatMap { serial in
                [20_000, 20_000].map { Self.piece(Self.echo, serial, length: $0) }
            }
        case .answersInOrder: return serials.map { .request(Self.echo, serial: $0, "a") }
        case .unreadAnswers:
            return serials.map { .request(Self.echo, serial: $0, ByteBuffer(repeating: 0x30, count: 16_400)) }
        case .items:
            return streams.flatMap { serial in (0..<7).map { _ in .request(FrameType.item, serial: serial, item) } }
        case .itemsWithoutCredit: return Self.streamsWithoutCredit.map { .request(FrameType.item, serial: $0, item) }
        case .unfinishedItems: return streams.map { Self.piece(FrameType.item, $0, length: 1) }
        case .heldPushes:
            return serials.map { .request(Self.publish, serial: $0, ByteBuffer(repeating: 0x30, count: 16_400)) }
        case .keptAnswers:
            return try serials.map { serial in
                var metadata = WireMetadata()
                metadata.idempotencyKey = "\(serial)"
                let body = ByteBuffer(repeating: 0x30, count: 200_000)
                let sealed = try Envelope.seal(type: Self.keep, body: body, metadata: metadata)
                return .request(sealed.type, serial: serial, sealed.payload)
            }
        case .messages: return []
        }
    }

    private static let streamsWithoutCredit = 1_000..<1_100 as Range<UInt32>

    /// The first byte, in the memory of all.
    private static func part(of bytes: ByteBuffer) -> ByteBuffer {
        bytes.getSlice(at: bytes.readerIndex, length: 1) ?? ByteBuffer()
    }

    private static func router(_ echoes: Watched<Int>) -> Router {
        var router = Router()
        let subscribers = Watched<[ServerSession]>([])
        router.handleSynchronously(Self.subscribe) { _, context in
            subscribers.withLockedValue { $0 = [context.session] }
            return ByteBuffer()
        }
        router.handleSynchronously(Self.publish) { request, _ in
            for session in subscribers.current { session.push(type: 2_001, body: request.body) }
            return ByteBuffer()
        }
        router.handleSynchronously(Self.echo) { request, _ in
            echoes.withLockedValue { $0 += 1 }
            return request.body
        }
        router.handle(Self.keep) { request, _ in Self.part(of: request.body) }
        // An item is done with while its part waits.
        router.stream(Self.sendBack, kind: .bidirectional) { stream, _ in
            try await withThrowingTaskGroup(of: Void.self) { group in
                for try await item in stream.items {
                    group.addTask { try await stream.send(Self.part(of: item)) }
                }
                try await group.waitForAll()
            }
            return ByteBuffer()
        }
        router.stream(Self.useUpCredit, kind: .serverStreaming) { stream, _ in
            while true { try await stream.send(ByteBuffer(repeating: 0x30, count: 1 << 14)) }
        }
        router.handleUntilCancelled(Self.hang)
        router.streamUntilCancelled(Self.stream)
        return router
    }

    /// - Returns: The attacker, which stays connected.
    private static func attack(_ keeper: Keeper, _ address: Endpoint) async throws -> HostileClient {
        if keeper == .messages { return try await Self.attackWithMessages(address) }
        let reads = !keeper.isUnread
        let client = try await HostileClient(to: address, receiveBuffer: reads ? nil : 4_096)
        await client.perform(.hello(.streams, .metadata, .idempotency))
        _ = try await client.response()
        // The server uses its largest buffers for a client that fills them.
        await client.perform(Self.filler.times(12))
        _ = try await client.responses(12)
        switch keeper {
        case .answersInOrder: await client.perform(.request(Self.hang, serial: 999))
        case .unreadAnswers: await client.perform(.stopReading)
        case .heldPushes:
            await client.perform(.request(Self.subscribe, serial: 998))
            _ = try await client.response()
            await client.perform(.stopReading)
            try await Self.publish(to: address)
            return client
        case .items, .unfinishedItems:
            await client.perform(.glued((1_000..<1_009).map { .request(Self.stream, serial: $0) }))
        case .itemsWithoutCredit:
            await client.perform(.request(Self.useUpCredit, serial: 999))
            await client.perform(.glued(Self.streamsWithoutCredit.map { .request(Self.sendBack, serial: $0) }))
        case .requests, .pieces, .secondPieces, .keptAnswers, .messages: break
        }
        for act in try Self.kept(keeper) {
            guard await client.perform(act.then(Self.filler), within: .seconds(3)) == .done else { break }
            // Each pair in its own read. Answers in order wait.
            if reads, keeper != .answersInOrder {
                while try await client.response().type != FrameType.application.upperBound {}
            }
        }
        return client
    }

    /// Has the requests of another client passed on to the last subscriber.
    private static func publish(to address: Endpoint) async throws {
        let client = try await HostileClient(to: address)
        await client.perform(Self.filler.times(12))
        _ = try await client.responses(12)
        for act in try Self.kept(.heldPushes) {
            await client.perform(act.then(Self.filler))
            _ = try await client.responses(2)
        }
        await client.perform(.reset)
    }

    /// Fills the inbox of a WebSocket behind frames that are done with at once.
    private static func attackWithMessages(_ address: Endpoint) async throws -> HostileClient {
        let client = try await HostileClient(to: try Endpoint(url: "ws://127.0.0.1:\(address.port)/messages"))
        let pongs = HostileClient.Act.webSocketFrame(.pong(ByteBuffer(repeating: 0x61, count: 125))).times(1_900)
        // The server uses its largest buffers for a client that fills them.
        await client.perform(pongs.then(pongs))
        await client.perform(
            .glued(
                pongs,
                .webSocketFrame(.binary([])).times(Self.messages),
                .webSocketFrame(.binary([1, 2, 3]).unfinished())
            )
        )
        return client
    }

    private static func run(_ keeper: Keeper) async throws {
        let listener = try ServerListener(url: "tcp+ws://127.0.0.1:0/rpc")
        var configuration = SocketServer.Configuration(listeners: [keeper == .messages ? listener : ServerListener()])
        configuration.answersInOrder = keeper == .answersInOrder
        let echoes = Watched(0)
        try await withServer(configuration, Self.router(echoes)) { server in
            guard keeper == .messages else { return }
            try server.webSocket("/messages") { _ in try await untilCancelledWithoutATrace() }
        } _: { server in
            let address = try #require(server.address)
            // Code, threads and the pool of reads exist before it is measured.
            let first = try await Self.attack(keeper == .answersInOrder ? keeper : .requests, address)
            await first.perform(.reset)
            // Handlers that the end has cancelled return later.
            try await eventually("nothing is held") { server.connectionCount == 0 && server.heldBytes == 0 }
            echoes.withLockedValue { $0 = 0 }
            returnFreeMemory()
            let before = residentBytes()
            var clients: [HostileClient] = []
            for _ in 0..<keeper.attackers { clients.append(try await Self.attack(keeper, address)) }
            if keeper == .messages {
                // The last message of each is left in its read.
                let least = clients.count * (Self.messages - 1) * 128
                try await eventually("all messages have come") { server.heldBytes >= least }
            }
            if keeper == .answersInOrder {
                let count = try Self.kept(keeper).count
                try await eventually("all requests have come") { echoes.current == count }
            }
            returnFreeMemory()
            let (growth, held) = (residentBytes() - before, server.heldBytes)
            print("pinned slices, \(keeper): \(growth >> 10) KiB were gained, and \(held >> 10) KiB held")
            #expect(growth <= 2 * held + Self.allowance, "\(keeper): \(growth >> 20) MiB, \(held >> 20) MiB held")
            try await eventually("the attackers") { server.connectionCount == keeper.attackers }
            for client in clients { await client.perform(.reset) }
            let rest = keeper == .keptAnswers ? held : 0
            try await eventually("nothing else is held") { server.heldBytes <= rest }
        }
    }

    @Test(arguments: Keeper.allCases)
    func memoryIsAccountedFor(keeper: Keeper) async throws {
        await #expect(processExitsWith: .success) { [name = keeper.rawValue as String] in
            try await Self.run(try #require(Keeper(rawValue: name)))
        }
    }
}

extension Keeper {
    /// Whether the client does not read.
    fileprivate var isUnread: Bool { self == .unreadAnswers || self == .heldPushes }

    /// The number of attackers, of those that do not keep enough by themselves.
    fileprivate var attackers: Int {
        switch self {
        case .unreadAnswers, .items, .itemsWithoutCredit, .unfinishedItems, .heldPushes: 8
        case .messages: 250
        case .requests, .pieces, .secondPieces, .answersInOrder, .keptAnswers: 1
        }
    }
}
#endif
