// SPDX-License-Identifier: Apache-2.0
#if Outbox
import HHSocketRPC
import HHSocketServer
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketOutbox

/// An outbox with a real client and real servers.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ClientTests {
    private func client(_ endpoint: Endpoint, hello: Bool = true) -> SocketClient {
        var configuration = SocketClient.Configuration(servers: [endpoint])
        if hello { configuration.hello = HelloPolicy() }
        configuration.socket.backoff = Backoff(base: .milliseconds(5), cap: .milliseconds(50))
        return SocketClient(configuration: configuration)
    }

    private var limits: OutboxConfiguration {
        var limits = OutboxConfiguration()
        limits.backoff = Backoff(base: .milliseconds(5), cap: .milliseconds(50))
        return limits
    }

    @Test func messagesAreSentOnceConnectedAndAfterEachReconnect() async throws {
        let folder = try TemporaryFolder()
        let server = try await MockServer(.echo)
        server.acceptHello()
        let client = self.client(server.endpoint)
        let outbox = try await Outbox(at: folder.outbox, client: client, configuration: self.limits)
        try await outbox.enqueue(OutboxMessage(type: 130, body: "before", topic: "a"))
        #expect(server.acceptedCount == 0)
        client.connect()
        try await eventually("it is empty") { outbox.snapshot.count == 0 }

        try await server.refuseConnections()
        await server.perform(.close)
        try await eventually("it is gone") { !outbox.snapshot.isConnected }
        for number in 0..<5 { try await outbox.enqueue(OutboxMessage(type: 130, body: "\(number)", topic: "a")) }
        #expect(outbox.snapshot.count == 5)
        try await server.acceptConnections()
        try await eventually("it is empty") { outbox.snapshot.count == 0 }
        let bodies = server.received.filter { $0.type == 130 }.map { String(buffer: $0.body) }
        #expect(bodies == ["before"] + (0..<5).map { "\($0)" })
    }

    @Test func nothingIsSentWithoutAnAgreementOnKeys() async throws {
        let folder = try TemporaryFolder()
        let server = try await MockServer(.echo)
        let client = self.client(server.endpoint, hello: false)
        let outbox = try await Outbox(at: folder.outbox, client: client, configuration: self.limits)
        let record = EventRecord(outbox)
        client.connect()
        try await outbox.enqueue(OutboxMessage(type: 130, body: "x", topic: "a"))
        try await eventually("the event") { record.all.contains("retrying 1 featureNotAgreed") }
        #expect(outbox.snapshot.count == 1)
        #expect(server.received.allSatisfy { $0.type != 130 })
    }

    @Test func aMessageWhoseAnswerWasLostIsExecutedOnce() async throws {
        let folder = try TemporaryFolder()
        let runs = NIOLockedValueBox<[String]>([])
        var router = Router()
        router.handle(130) { request, context in
            let count = runs.withLockedValue { runs in
                runs.append(String(buffer: request.body))
                return runs.count
            }
            if count == 1 { context.session.close(reason: "the answer is lost") }
            return ByteBuffer()
        }
        let server = SocketServer(router: router)
        try await server.start()
        let client = self.client(try #require(server.address))
        let outbox = try await Outbox(at: folder.outbox, client: client, configuration: self.limits)
        let record = EventRecord(outbox)
        client.connect()
        try await outbox.enqueue(OutboxMessage(type: 130, body: "1", topic: "a"))
        try await outbox.enqueue(OutboxMessage(type: 130, body: "2", topic: "a"))
        try await eventually("both are delivered") { record.all.contains("delivered 2") }
        #expect(runs.withLockedValue { $0 } == ["1", "2"])
        #expect(record.all.contains("retrying 1 connectionLost"))
        await server.shutdown(gracePeriod: .zero)
    }

    /// One table determines which answers the server keeps for a key, and which ones the outbox considers final.
    @Test func brieflyUnavailableDatabaseLosesNothing() async throws {
        struct Outage: Error {}
        let folder = try TemporaryFolder()
        let runs = Watched(0)
        var router = Router()
        router.handle(130) { _, _ in
            if runs.increment() < 3 { throw Outage() }
            return ByteBuffer()
        }
        let server = SocketServer(router: router)
        try await server.start()
        let client = self.client(try #require(server.address))
        let outbox = try await Outbox(at: folder.outbox, client: client, configuration: self.limits)
        let record = EventRecord(outbox)
        client.connect()
        try await outbox.enqueue(OutboxMessage(type: 130, body: "1", topic: "a"))
        try await eventually("its delivery") { record.all.contains("delivered 1") }
        #expect(record.all.filter { $0 == "retrying 1 unknown" }.count == 2)
        #expect(runs.current == 3)
        await server.shutdown(gracePeriod: .zero)
    }

    /// An app that signs in by a request is rejected until then, after every reconnect.
    @Test func messagesWaitUntilTheUserHasSignedIn() async throws {
        let folder = try TemporaryFolder()
        var router = Router()
        router.use(AuthenticationMiddleware(except: [110]))
        router.handle(110) { _, context in
            context.session.authenticate(as: "ann")
            return ByteBuffer()
        }
        let bodies = Watched<[String]>([])
        router.handle(130) { request, _ in
            bodies.withLockedValue { $0.append(String(buffer: request.body)) }
            return ByteBuffer()
        }
        let server = SocketServer(router: router)
        try await server.start()
        let client = self.client(try #require(server.address))
        var configuration = self.limits
        // Waits are so short here that a hundred attempts may be over before a slow machine signs in.
        configuration.maximumAttempts = .max
        let outbox = try await Outbox(at: folder.outbox, client: client, configuration: configuration)
        let record = EventRecord(outbox)
        client.connect()
        try await outbox.enqueue(OutboxMessage(type: 130, body: "1", topic: "a"))
        try await outbox.enqueue(OutboxMessage(type: 130, body: "2", topic: "a"))
        try await eventually("a refusal") { record.all.contains("retrying 1 noPermission") }
        _ = try await client.data(for: SocketRequest(type: 110))
        try await eventually("both are delivered") { record.all.contains("delivered 2") }
        #expect(bodies.current == ["1", "2"])
        await server.shutdown(gracePeriod: .zero)
    }

    @Test func aReleasedOutboxReleasesItsClient() async throws {
        let folder = try TemporaryFolder()
        let server = try await MockServer(.echo)
        server.acceptHello()
        let reference = WeakReference<SocketClient>()
        do {
            let client = self.client(server.endpoint)
            reference.set(client)
            client.connect()
            let outbox = try await Outbox(at: folder.outbox, client: client, configuration: self.limits)
            try await outbox.enqueue(OutboxMessage(type: 130, body: "x", topic: "a"))
            try await eventually("it is empty") { outbox.snapshot.count == 0 }
            await outbox.close()
        }
        try await eventually("the client's end") { reference.object == nil }
    }
}
#endif
