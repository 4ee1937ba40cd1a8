// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// The memory of WebSockets in the ledger: that of TLS, and that of zlib as long as it is allocated.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct WebSocketChargeTests {
    private let time = ManualTime()
    /// Compressible, and longer than what is never compressed.
    private let text = String(repeating: "compress ", count: 1_000)
    /// At least what zlib takes for a window of 32 KiB in both directions.
    private let contexts = 300 << 10

    private func server(
        _ scheme: String,
        tls: ServerTLS? = nil,
        _ change: (inout ServerListener) -> Void = { _ in }
    ) throws -> SocketServer {
        var listener = try ServerListener(url: "\(scheme)://127.0.0.1:0/rpc", tls: tls)
        change(&listener)
        var configuration = SocketServer.Configuration(listeners: [listener])
        configuration.time = SocketTime(self.time)
        var router = Router()
        router.handle(100) { request, _ in request.body }
        let server = SocketServer(configuration: configuration, router: router)
        var options = WebSocketRouteOptions()
        options.compression = WebSocketCompression()
        try server.webSocket("/chat", options: options, onMessage: { message, connection in connection.post(message) })
        return server
    }

    /// Waits until the contexts have been freed, but for the window that the client may refer to.
    private func expectRest(_ server: SocketServer, _ before: Int) async throws {
        for _ in 0..<3 { await self.time.advance(by: .seconds(6)) }
        try await eventually("memory is freed") { server.heldBytes < before + (48 << 10) }
    }

    @Test func compressionOfMessagesIsCharged() async throws {
        let server = try self.server("ws")
        try await server.start()
        let before = server.heldBytes
        var configuration = try WebSocketLink.Configuration(
            url: "ws://127.0.0.1:\(try #require(server.address).port)/chat"
        )
        configuration.compression = WebSocketCompression()
        let link = WebSocketLink(configuration: configuration)
        var messages = link.messages.makeAsyncIterator()
        link.connect()
        try await link.send(WebSocketMessage(self.text))
        #expect(await messages.next(isolation: nil)?.text == self.text)
        try await eventually("it is charged") { server.heldBytes >= before + self.contexts }
        try await self.expectRest(server, before)
        link.disconnect()
        await server.shutdown(gracePeriod: .zero)
    }

    @Test func compressionOfFramesIsCharged() async throws {
        let server = try self.server("ws") { $0.webSocket?.compression = WebSocketCompression() }
        try await server.start()
        let before = server.heldBytes
        let client = SocketClient.connecting(to: try #require(server.address)) {
            $0.socket.webSocket.compression = WebSocketCompression()
        }
        #expect(try await client.data(for: SocketRequest(type: 100, body: self.text)).string == self.text)
        try await eventually("it is charged") { server.heldBytes >= before + self.contexts }
        try await self.expectRest(server, before)
        await client.close()
        try await eventually("nothing is held") { server.heldBytes <= before }
        await server.shutdown(gracePeriod: .zero)
    }

    @Test func aWebSocketOverTLSCostsAsMuchAsAnyConnectionOverTLS() async throws {
        let server = try self.server("wss", tls: ServerTLS(identity: try TestCertificate(.server).identity))
        try await server.start()
        let before = server.heldBytes
        var configuration = try WebSocketLink.Configuration(
            url: "wss://127.0.0.1:\(try #require(server.address).port)/chat"
        )
        var tls = ClientTLS()
        tls.trust = try TestAuthority().trust
        configuration.socket.tls = tls
        let link = WebSocketLink(configuration: configuration)
        link.connect()
        try await link.send(WebSocketMessage("x"))
        try await eventually("it is there") { server.webSockets.count == 1 }
        #expect(server.heldBytes >= before + ConnectionCost.tls)
        link.disconnect()
        await server.shutdown(gracePeriod: .zero)
    }

    /// They have neither a place nor a descriptor any more, and nothing bounds their handlers' time.
    @Test func messagesThatOutliveTheirConnectionAreCharged() async throws {
        let (gate, handled) = (Gate(), NIOLockedValueBox(0))
        let configuration = SocketServer.Configuration(listeners: [try ServerListener(url: "ws://127.0.0.1:0/rpc")])
        try await withServer(configuration, Router()) { server in
            try server.webSocket("/messages") { connection in
                // Not cancelled with the connection.
                await Task { try? await gate.wait() }.value
                for await _ in connection.messages { handled.withLockedValue { $0 += 1 } }
            }
        } _: { server in
            let port = try #require(server.address?.port)
            let client = try await HostileClient(to: try Endpoint(url: "ws://127.0.0.1:\(port)/messages"))
            try await eventually("its handler") { gate.count == 1 }
            await client.perform(.webSocketFrames(Array(repeating: .binary([]), count: 5_000)).then(.halfClose))
            try await client.ended()
            try await eventually("the end") { server.connectionCount == 0 }
            let held = server.heldBytes
            gate.open()
            try await eventually("they are handled") { server.heldBytes == 0 }
            // Those of the last read are taken although the inbox is full. Charges are passed on in steps of 4 KiB.
            let count = handled.withLockedValue { $0 }
            #expect(count > 256 && held + 4_096 >= count * 128, "\(count) messages, \(held) bytes")
        }
    }
}
