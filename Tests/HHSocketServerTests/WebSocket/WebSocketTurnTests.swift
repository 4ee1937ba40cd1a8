// SPDX-License-Identifier: Apache-2.0
import Dispatch
import HHSocket
import HHSocketTesting
import NIOCore
import NIOPosix
import TestSupport
import Testing

@testable import HHSocketServer

/// The share of an event loop's turn that one WebSocket of messages takes: the same as a connection of frames.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct WebSocketTurnTests {
    private func withOneLoop<Result: Sendable>(
        _ handler: @escaping @Sendable (WebSocketMessage, WebSocketConnection) -> Void,
        _ body: (Endpoint, SocketServer) async throws -> Result
    ) async throws -> Result {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        var configuration = SocketServer.Configuration(listeners: [try ServerListener(url: "ws://127.0.0.1:0/rpc")])
        configuration.eventLoopGroup = group
        let result: Result
        do {
            result = try await withServer(configuration, Router()) { server in
                try server.webSocket("/messages", onMessage: handler)
            } _: { server in
                let port = try #require(server.address?.port)
                return try await body(try Endpoint(url: "ws://127.0.0.1:\(port)/messages"), server)
            }
        } catch {
            try? await group.shutdownGracefully()
            throw error
        }
        try await group.shutdownGracefully()
        return result
    }

    /// The work of a handler.
    private static func occupyLoop() {
        let end = ContinuousClock.now + .milliseconds(1)
        while ContinuousClock.now < end {}
    }

    /// The number of echoes that a client gets, one after the other, while others are served.
    private func echoes(to client: HostileClient, while isBusy: () -> Bool) async throws -> Int {
        var count = 0
        while isBusy() {
            await client.perform(.text("\(count)"))
            #expect(try await client.message().text == "\(count)")
            count += 1
        }
        return count
    }

    /// A handler is called after the messages of its turn have been delivered, but its time belongs to that turn, too.
    @Test(arguments: [ByteBuffer(), ByteBuffer(bytes: [1])])
    func manyMessagesYieldToOthers(payload: ByteBuffer) async throws {
        let handled = Watched(0)
        try await self.withOneLoop { message, connection in
            guard message.kind == .binary else { return connection.post(message) }
            handled.increment()
            Self.occupyLoop()
            connection.post(message)
        } _: { endpoint, _ in
            let busy = try await HostileClient(to: endpoint)
            let other = try await HostileClient(to: endpoint)
            // They arrive in about one read.
            await busy.perform(.webSocketFrames(Array(repeating: .binary(payload), count: 2_000)))
            _ = try await busy.message()
            let echoes = try await self.echoes(to: other) { handled.current < 2_000 }
            // If all messages were handled in one turn, there would be only one.
            #expect(echoes >= 10, "\(echoes)")
            for _ in 1..<2_000 { #expect(try await busy.message() == .binary(payload)) }
        }
    }

    /// What had arrived before a connection was lost is handled for a short time only.
    @Test func messagesOfALostConnectionDoNotOccupyTheLoop() async throws {
        let (isBlocked, end, handled) = (Watched(false), DispatchSemaphore(value: 0), Watched(0))
        try await self.withOneLoop { message, connection in
            guard message.kind == .binary else {
                isBlocked.withLockedValue { $0 = true }
                end.wait()
                return connection.post(message)
            }
            handled.increment()
            Self.occupyLoop()
        } _: { endpoint, server in
            let other = try await HostileClient(to: endpoint)
            let lost = try await HostileClient(to: endpoint)
            await other.perform(.text("block"))
            try await isBlocked.wait("the loop is blocked") { $0 }
            // Everything has arrived before the loop goes on.
            await lost.perform(
                .webSocketFrames(Array(repeating: .binary([1]), count: 2_000)).then(.reset)
            )
            try await lost.ended()
            end.signal()
            #expect(try await other.message().text == "block")
            try await eventually("the end of the lost connection") { server.connectionCount == 1 }
            #expect(handled.current < 500, "\(handled.current)")
        }
    }

    @Test func messagesBeforeTheEndOfTheInputYieldToOthers() async throws {
        let handled = Watched(0)
        try await self.withOneLoop { message, connection in
            guard message.kind == .binary else { return connection.post(message) }
            handled.increment()
            Self.occupyLoop()
        } _: { endpoint, _ in
            let busy = try await HostileClient(to: endpoint)
            let other = try await HostileClient(to: endpoint)
            await busy.perform(
                .webSocketFrames(Array(repeating: .binary([1]), count: 1_000)).then(.halfClose)
            )
            let echoes = try await self.echoes(to: other) { handled.current < 1_000 }
            #expect(echoes >= 10, "\(echoes)")
            try await busy.ended()
        }
    }

    @Test func messagesThatWaitForATurnAreHandledThoughTheClientHasSentItsLast() async throws {
        let handled = Watched(0)
        try await self.withOneLoop { _, _ in
            Self.occupyLoop()
            handled.increment()
        } _: { endpoint, _ in
            let client = try await HostileClient(to: endpoint)
            let frames = Array(repeating: WebSocketFrame.binary([]), count: 500)
            await client.perform(.webSocketFrames(frames + [.close(code: 1_000)]))
            #expect(try await client.message().closeCode == 1_000)
            #expect(handled.current == 500)
        }
    }
}
