// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// The rules of progress and identities for messages, beyond those for any peer (`PeerRuleTests`).
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct WebSocketProgressTests {
    private let time = ManualTime()

    private func with(
        prepare: (SocketServer) throws -> Void = { server in
            try server.webSocket("/messages") { message, connection in connection.post(message) }
        },
        _ body: (Endpoint, SocketServer) async throws -> Void
    ) async throws {
        var configuration = SocketServer.Configuration(listeners: [try ServerListener(url: "ws://127.0.0.1:0/rpc")])
        configuration.time = SocketTime(self.time)
        try await withServer(configuration, .echo, prepare) { server in
            let port = try #require(server.address?.port)
            try await body(try Endpoint(url: "ws://127.0.0.1:\(port)/messages"), server)
        }
    }

    /// Registers a handler that answers nothing, and keeps its connection for the test.
    private static func keep(_ connection: Watched<WebSocketConnection?>, _ server: SocketServer) throws {
        try server.webSocket("/messages") { opened in
            connection.withLockedValue { $0 = opened }
            for await _ in opened.messages {}
        }
    }

    /// Waits until the server has taken these bytes of an incomplete message.
    private func eventuallyHeld(_ count: Int, _ server: SocketServer) async throws {
        try await eventually("\(count) bytes") { server.heldBytes > count }
    }

    /// They do not complete a message, of which a byte comes now and then.
    @Test func pingsWithinAMessageAreNoProgress() async throws {
        try await self.with { endpoint, server in
            let client = try await HostileClient(to: endpoint)
            let piece = ByteBuffer(repeating: 1, count: 100_000)
            await client.perform(.webSocketFrame(.binary(piece).unfinished()))
            try await self.eventuallyHeld(100_000, server)
            for _ in 1...5 where server.statistics[.readStalls] == 0 {
                await self.time.advance(by: .seconds(14))
                let byte = WebSocketFrame.continuation(ByteBuffer(bytes: [1])).unfinished()
                await client.perform(.webSocketFrames([.ping(), byte]))
                if server.statistics[.readStalls] == 0 { _ = try await client.message() }
            }
            #expect(server.statistics[.readStalls] == 1)
            var last = try await client.message()
            while case .pong = last { last = try await client.message() }
            #expect(last.closeCode == 1_008)
        }
    }

    @Test func messageThatArrivesAtTheLeastRateIsWhole() async throws {
        try await self.with { endpoint, server in
            let client = try await HostileClient(to: endpoint)
            let piece = ByteBuffer(repeating: 1, count: 20_000)
            await client.perform(.webSocketFrame(.binary(piece).unfinished()))
            for number in 2...20 {
                try await self.eventuallyHeld(20_000 * (number - 1), server)
                await self.time.advance(by: .seconds(10))
                let next = WebSocketFrame.continuation(piece)
                await client.perform(.webSocketFrame(number == 20 ? next : next.unfinished()))
            }
            #expect(try await client.message() == .binary(ByteBuffer(repeating: 1, count: 400_000)))
            #expect(server.statistics[.readStalls] == 0)
        }
    }

    /// The server posts messages meanwhile, whose bytes are no progress of the client's.
    @Test func clientThatReadsDoesNotThereforeSend() async throws {
        let connection = Watched<WebSocketConnection?>(nil)
        try await self.with(prepare: { try Self.keep(connection, $0) }) { endpoint, server in
            let client = try await HostileClient(to: endpoint)
            await client.perform(.webSocketFrame(.binary(ByteBuffer(repeating: 1, count: 100_000)).unfinished()))
            try await self.eventuallyHeld(100_000, server)
            for number in 1...5 where server.statistics[.readStalls] == 0 {
                connection.current?.post(WebSocketMessage("\(number)"))
                #expect(try await client.message().text == "\(number)")
                await self.time.advance(by: .seconds(14))
            }
            #expect(server.statistics[.readStalls] == 1)
        }
    }

    @Test func clientThatOnlyListensIsNotIdle() async throws {
        let connection = Watched<WebSocketConnection?>(nil)
        try await self.with(prepare: { try Self.keep(connection, $0) }) { endpoint, server in
            let client = try await HostileClient(to: endpoint)
            try await connection.wait("the connection") { $0 != nil }
            for number in 1...5 {
                connection.current?.post(WebSocketMessage("\(number)"))
                #expect(try await client.message().text == "\(number)")
                await self.time.advance(by: .seconds(400))
            }
            #expect(server.statistics[.idleEvictions] == 0)
            await self.time.advance(by: .seconds(400))
            #expect(try await client.message().closeCode == 1_001)
            #expect(server.statistics[.idleEvictions] == 1)
        }
    }

    // MARK: Identities

    @Test func connectionsOfOneIdentityAreCountedWhateverTheyCarry() async throws {
        var configuration = SocketServer.Configuration(
            listeners: [try ServerListener(url: "tcp+ws://127.0.0.1:0/rpc")]
        )
        configuration.limits.maximumSessionsPerIdentity = 2
        configuration.connections.admit = { _ in .admitAs("ann") }
        try await withServer(configuration, .echo) { server in
            try server.webSocket("/messages") { message, connection in connection.post(message) }
        } _: { server in
            let port = try #require(server.address?.port)
            let endpoint = try Endpoint(url: "ws://127.0.0.1:\(port)/messages")
            let first = try await HostileClient(to: endpoint)
            let frames = try await HostileClient.connect(to: server.address)
            await frames.perform(.ping())
            _ = try await frames.response()
            #expect(server.sessions(of: "ann").count == 1)
            let third = try await HostileClient(to: endpoint)
            #expect(try await first.message().closeCode == 1_008)
            #expect(server.statistics[.sessionsDismissed] == 1)
            // The oldest one is now that of frames.
            let fourth = try await HostileClient(to: endpoint)
            try await frames.ended()
            try await eventually("the end") { server.sessions(of: "ann").isEmpty }
            for client in [third, fourth] {
                await client.perform(.text("served"))
                #expect(try await client.message().text == "served")
            }
        }
    }

    /// Otherwise another of its connections could be taken for the older one.
    @Test func connectionIsRegisteredBeforeItsClientReadsTheResponse() async throws {
        var configuration = SocketServer.Configuration(listeners: [try ServerListener(url: "ws://127.0.0.1:0/rpc")])
        configuration.connections.admit = { _ in .admitAs("ann") }
        let isRegistered = Watched(false)
        configuration.connections.onWebSocketConnect = { _ in
            // Really waits, so that a response that was sent before would be read meanwhile.
            Thread.sleep(forTimeInterval: 0.1)
            isRegistered.withLockedValue { $0 = true }
        }
        try await withServer(configuration, .echo) { server in
            try server.webSocket("/messages") { message, connection in connection.post(message) }
        } _: { server in
            let port = try #require(server.address?.port)
            _ = try await HostileClient(to: try Endpoint(url: "ws://127.0.0.1:\(port)/messages"))
            #expect(isRegistered.current)
        }
    }
}
