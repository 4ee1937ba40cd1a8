// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// Streams of the real client over each kind of link.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct StreamLinkTests {
    private static let count = 2_000

    /// Has many items echoed while it sends others.
    private func echo(_ client: SocketClient, _ server: SocketServer) async throws {
        let stream = try await client.stream(for: SocketRequest(type: StreamCall.echo))
        async let sent: Void = {
            for number in 0..<Self.count { try await stream.send(ByteBuffer(string: "item \(number)")) }
            // An item in pieces.
            try await stream.send(ByteBuffer(repeating: 120, count: 150_000))
            stream.finish()
        }()
        var number = 0
        for try await item in stream.items {
            if number < Self.count {
                #expect(String(buffer: item) == "item \(number)")
            } else {
                #expect(item == ByteBuffer(repeating: 120, count: 150_000))
            }
            number += 1
        }
        try await sent
        #expect(number == Self.count + 1)
        #expect(try await stream.response.body.readableBytes == 0)
        try await server.becomesIdle()
    }

    private func endpoint(_ server: SocketServer) throws -> Endpoint { try #require(server.address) }

    @Test func tcp() async throws {
        try await withServer(.init(), makeStreamRouter()) { server in
            let client = SocketClient.connecting(to: try self.endpoint(server)) { $0.streams = StreamPolicy() }
            try await self.echo(client, server)
        }
    }

    @Test func tls() async throws {
        var configuration = SocketServer.Configuration()
        configuration.listeners[0].tls = ServerTLS(identity: try TestCertificate(.server).identity)
        var tls = ClientTLS()
        tls.trust = try TestAuthority().trust
        try await withServer(configuration, makeStreamRouter()) { [tls] server in
            let client = SocketClient.connecting(to: try self.endpoint(server)) {
                $0.streams = StreamPolicy()
                $0.socket.tls = tls
            }
            try await self.echo(client, server)
        }
    }

    @Test func webSocket() async throws {
        var configuration = SocketServer.Configuration()
        configuration.listeners = [try ServerListener(url: "ws://127.0.0.1:0/rpc")]
        try await withServer(configuration, makeStreamRouter()) { server in
            let client = SocketClient.connecting(to: try self.endpoint(server)) { $0.streams = StreamPolicy() }
            try await self.echo(client, server)
        }
    }
}
