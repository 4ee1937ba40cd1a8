// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketMessage
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

private let hang: UInt32 = 100
private let signIn: UInt32 = 101
private let closeMe: UInt32 = 102

private enum Room: ServerSessionKey { typealias Value = String }

/// The admission of connections, and its observers.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ConnectionEventTests {
    private let events = Watched<[String]>([])

    private func makeConfiguration() -> SocketServer.Configuration {
        var configuration = SocketServer.Configuration()
        let events = self.events
        configuration.connections.onConnect = { session in
            session[Room.self] = "kitchen"
            events.withLockedValue { $0.append("connect \(session.id)") }
        }
        configuration.connections.onClose = { session, reason in
            let (room, identity) = (session[Room.self] ?? "-", session.identity ?? "-")
            events.withLockedValue { $0.append("close \(session.id) \(reason) \(room) \(identity)") }
        }
        return configuration
    }

    private func makeRouter() -> Router {
        var router = Router()
        router.handle(hang) { _, _ in
            try await untilCancelled()
            return ByteBuffer()
        }
        router.handleSynchronously(signIn) { request, context in
            context.session.authenticate(as: String(buffer: request.body))
            return ByteBuffer()
        }
        router.handleSynchronously(closeMe) { _, context in
            context.session.close(reason: "bye")
            return ByteBuffer()
        }
        return router
    }

    private func signedIn(_ server: SocketServer, as identity: String) async throws -> HostileClient {
        let client = try await HostileClient.connect(to: server.address)
        await client.perform(.request(signIn, serial: 50, identity))
        #expect(try await client.response().status == .ok)
        return client
    }

    // MARK: Events

    @Test func eachConnectionHasABeginningAndAnEndWithItsReason() async throws {
        var configuration = self.makeConfiguration()
        configuration.limits.cancelRate = RequestRate(perSecond: 0.001, burst: 1)
        try await withServer(configuration, self.makeRouter()) { server in
            let first = try await self.signedIn(server, as: "ann")
            await first.perform(.close)
            try await self.events.wait("the end of the first") { $0.count == 2 }
            let second = try await self.signedIn(server, as: "bob")
            await second.perform(.request(closeMe, serial: 51))
            try await second.ended()
            try await self.events.wait("the end of the second") { $0.count == 4 }
            let third = try await self.signedIn(server, as: "eve")
            await third.perform(.raw(ByteBuffer(repeating: 0xFF, count: 64)))
            try await self.events.wait("the end of the third") { $0.count == 6 }
            let fourth = try await self.signedIn(server, as: "dan")
            for serial in 60..<62 as Range<UInt32> {
                await fourth.perform(.request(hang, serial: serial))
                await fourth.perform(.cancel(serial))
            }
            try await self.events.wait("the end of the fourth") { $0.count == 8 }
            #expect(server.statistics[.cancelFloods] == 1)
            let fifth = try await self.signedIn(server, as: "leo")
            await server.shutdown(gracePeriod: .zero)
            try await fifth.ended()
        }
        #expect(
            self.events.current == [
                "connect 1", "close 1 closedByClient kitchen ann", "connect 2", "close 2 closedByServer kitchen bob",
                "connect 3", "close 3 protocolError kitchen eve", "connect 4", "close 4 limit kitchen dan",
                "connect 5", "close 5 shutdown kitchen leo",
            ]
        )
    }

    @Test func presenceCanBeBuiltWithThem() async throws {
        var configuration = SocketServer.Configuration()
        let present = Watched<Set<UInt64>>([])
        configuration.connections.onConnect = { session in present.withLockedValue { _ = $0.insert(session.id) } }
        configuration.connections.onClose = { session, _ in present.withLockedValue { _ = $0.remove(session.id) } }
        try await withServer(configuration, self.makeRouter()) { server in
            var clients: [HostileClient] = []
            for number in 0..<20 { clients.append(try await self.signedIn(server, as: "\(number)")) }
            #expect(Set(server.sessions.map(\.id)) == present.current && present.current.count == 20)
            for client in clients.prefix(15) { await client.perform(.reset) }
            try await present.wait("five clients") { $0.count == 5 }
            #expect(Set(server.sessions.map(\.id)) == present.current)
            #expect(Set(server.sessions.compactMap(\.identity)) == Set((15..<20).map { "\($0)" }))
        }
        #expect(present.current.isEmpty)
    }

    @Test func webSocketsOfMessagesHaveEventsOfTheirOwn() async throws {
        var configuration = SocketServer.Configuration(listeners: [try ServerListener(url: "ws://127.0.0.1:0/rpc")])
        let events = self.events
        configuration.connections.admit = { client in client.address == nil ? .refuse(reason: "who?") : .admitAs("ann")
        }
        configuration.connections.onWebSocketConnect = { connection in
            events.withLockedValue { $0.append("connect \(connection.identity ?? "-")") }
        }
        configuration.connections.onWebSocketClose = { connection, reason in
            events.withLockedValue { $0.append("close \(reason)") }
        }
        try await withServer(
            configuration,
            self.makeRouter(),
            { server in
                try server.webSocket("/echo") { connection in
                    for await message in connection.messages { connection.post(message) }
                }
            }
        ) { server in
            let port = try #require(server.address).port
            let link = WebSocketLink(configuration: try .init(url: "ws://127.0.0.1:\(port)/echo"))
            link.connect()
            try await link.send(WebSocketMessage("hello"))
            for await message in link.messages {
                #expect(message.text == "hello")
                break
            }
            #expect(server.webSockets.map(\.identity) == ["ann"])
            try link.disconnect(code: 1_000)
            try await events.wait("the end") { $0.count == 2 }
            #expect(server.webSockets.isEmpty)
        }
        #expect(events.current == ["connect ann", "close closedByClient"])
    }

    // MARK: Admission

    @Test func aConnectionMayBeRefusedOrKnownFromTheBeginning() async throws {
        var configuration = self.makeConfiguration()
        let isOpen = Watched(false)
        configuration.connections.admit = { client in
            guard client.address != nil, client.listener != nil, client.certificate == nil else { return .admit }
            return isOpen.current
                ? .admitAs("ann") : .refuse(reason: "this address is not welcome", retryAfter: .seconds(9))
        }
        var router = self.makeRouter()
        router.use(AuthenticationMiddleware())
        try await withServer(configuration, router) { server in
            let refused = try await HostileClient.connect(to: server.address)
            let goAway: WireGoAway = try await refused.response().payload.message()
            #expect(goAway.reason == "this address is not welcome" && goAway.retryAfter == 9_000)
            try await refused.ended()
            #expect(server.statistics[.connectionsRefusedByAdmission] == 1)
            #expect(self.events.current.isEmpty && server.sessions.isEmpty)
            isOpen.withLockedValue { $0 = true }
            // The identity is known without a request or a hello.
            let ann = try await self.signedIn(server, as: "ann")
            #expect(server.sessions(of: "ann").count == 1)
            await ann.perform(.close)
        }
    }
}
