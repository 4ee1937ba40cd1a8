// SPDX-License-Identifier: Apache-2.0
import Dispatch
import HHSocket
import HHSocketTesting
import InMemoryLogging
import Logging
import NIOConcurrencyHelpers
import NIOCore
import ServiceLifecycle
import TestSupport
import Testing

@testable import HHSocketServer

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

private struct Secret: Error, CustomStringConvertible {
    var description: String { "the password is swordfish" }
}

private enum Room: ServerSessionKey {
    typealias Value = String
}

/// Handlers that misbehave, and their middleware.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct HandlerTests {
    @Test func errorOfAHandlerIsLoggedAndNotSent() async throws {
        let log = InMemoryLogHandler()
        var configuration = SocketServer.Configuration()
        configuration.logger = Logger(label: "test", factory: { _ in log })
        var router = Router()
        router.handle(100) { _, _ in throw Secret() }
        router.handleSynchronously(101) { _, _ in throw Secret() }
        try await withServer(configuration, router) { server in
            let client = try await HostileClient.connect(to: server.address)
            for (serial, type) in [(50, 100), (51, 101)] as [(UInt32, UInt32)] {
                await client.perform(.request(type, serial: serial))
                let answer = try await client.response()
                #expect((answer.status, answer.payload) == (.unknown, ByteBuffer()))
            }
            #expect(server.statistics[.handlerErrors] == 2)
            // The log is written on a separate thread.
            try await eventually("two lines") { log.entries.count { $0.level == .error } == 2 }
            let errors = log.entries.filter { $0.level == .error }
            for (error, type) in zip(errors, ["100", "101"]) {
                #expect(error.metadata["error"] == "the password is swordfish")
                #expect(error.metadata["type"] == "\(type)")
                #expect(error.metadata["connection"] == "1")
            }
        }
    }

    @Test func anAnswerAfterTheConnectionHasEndedDoesNoHarm() async throws {
        let started = Gate()
        let release = Gate()
        let returned = Gate()
        var router = Router()
        router.handle(100) { request, _ in
            started.open()
            // The handler ignores its cancellation.
            await Task.detached { try? await release.wait() }.value
            returned.open()
            return request.body
        }
        try await withServer(.init(), router) { server in
            let client = try await HostileClient.connect(to: server.address)
            await client.perform(.request(100, serial: 50))
            try await started.wait()
            await client.perform(.reset)
            try await eventually("the end of every connection") { server.connectionCount == 0 }
            release.open()
            try await returned.wait()
            try await eventually("the end of every request") { server.requestsInFlight == 0 }
        }
    }

    @Test func handlersThatBlockDoNotHoldUpTheOthers() async throws {
        var configuration = SocketServer.Configuration()
        configuration.blockingThreads = 2
        let release = DispatchSemaphore(value: 0)
        let counter = Watched(0)
        var router = Router()
        router.handleBlocking(100) { request, _ in
            counter.increment()
            // Each handler lets the next one pass.
            release.wait()
            release.signal()
            return request.body
        }
        router.handle(101) { request, _ in request.body }
        router.handleSynchronously(102) { request, _ in request.body }
        try await withServer(configuration, router) { server in
            let client = try await HostileClient.connect(to: server.address)
            for serial in 50..<60 as Range<UInt32> { await client.perform(.request(100, serial: serial)) }
            try await eventually("ten requests in flight") { server.requestsInFlight == 10 }
            for serial in 60..<70 as Range<UInt32> {
                await client.perform(.request(serial % 2 == 0 ? 101 : 102, serial: serial))
                #expect(try await client.response().serial == serial)
            }
            // A request that waits for a thread is cancelled, and never runs.
            await client.perform(.cancel(59))
            try await eventually("the cancel") { server.statistics[.cancelledRequests] == 1 }
            release.signal()
            let answers = try await client.responses(9)
            #expect(Set(answers.map(\.serial)) == Set(50..<59))
            try await eventually("the end of every request") { server.requestsInFlight == 0 }
            #expect(counter.current == 9)
        }
    }

    @Test func aHandlerThatBlocksForEverDoesNotKeepTheServerFromItsEnd() async throws {
        let started = Gate()
        let release = DispatchSemaphore(value: 0)
        defer { release.signal() }
        var router = Router()
        router.handleBlocking(100) { request, _ in
            started.open()
            release.wait()
            return request.body
        }
        try await withServer(.init(), router) { server in
            let client = try await HostileClient.connect(to: server.address)
            await client.perform(.request(100, serial: 50))
            try await started.wait()
            await server.shutdown(gracePeriod: .milliseconds(10))
            try await client.ended()
        }
    }

    @Test func answersMayBeKeptInOrder() async throws {
        var configuration = SocketServer.Configuration()
        configuration.answersInOrder = true
        let release = Gate()
        var router = Router()
        router.handle(100) { request, _ in
            try await release.wait()
            return request.body
        }
        router.handle(101) { request, _ in request.body }
        router.handleSynchronously(102) { request, _ in request.body }
        try await withServer(configuration, router) { server in
            let client = try await HostileClient.connect(to: server.address)
            for (serial, type) in [
                (50, 100), (51, 101), (52, 102), (53, 999), (54, 100), (55, 100), (54, 101), (56, 100), (57, 101),
                (58, 102),
            ] as [(UInt32, UInt32)] {
                await client.perform(.request(type, serial: serial))
            }
            try await eventually("ten requests") { server.statistics[.requests] == 10 }
            await client.perform(.cancel(55))
            try await eventually("the cancel") { server.statistics[.cancelledRequests] == 1 }
            release.open()
            let answers = try await client.responses(9)
            #expect(answers.map(\.serial) == [50, 51, 52, 53, 54, 54, 56, 57, 58])
            #expect(
                answers.map(\.status) == [
                    .ok, .ok, .ok, .undefinedType, .ok, .illegalFormat, .ok, .ok, .ok,
                ]
            )
        }
    }

    // MARK: Middleware

    private struct Marking: ServerMiddleware {
        let name: String
        let trail: NIOLockedValueBox<[String]>

        func handle(
            _ request: ServerRequest,
            _ context: ServerContext,
            next: Router.Handler
        ) async throws -> ByteBuffer {
            self.trail.withLockedValue { $0.append("\(self.name) in") }
            defer { self.trail.withLockedValue { $0.append("\(self.name) out") } }
            return try await next(request, context)
        }
    }

    @Test(arguments: [100, 101, 102] as [UInt32])
    func firstMiddlewareIsOutermostForEveryKindOfHandler(type: UInt32) async throws {
        let trail = NIOLockedValueBox<[String]>([])
        var router = Router()
        router.handleSynchronously(100) { request, _ in request.body }
        router.use(Marking(name: "outer", trail: trail))
        router.use(Marking(name: "inner", trail: trail))
        router.handle(101) { request, _ in request.body }
        router.handleBlocking(102) { request, _ in request.body }
        try await withServer(.init(), router) { server in
            let client = try await HostileClient.connect(to: server.address)
            await client.perform(.request(type, serial: 50, "x"))
            #expect(try await client.response().payload == ByteBuffer(string: "x"))
            #expect(trail.withLockedValue { $0 } == ["outer in", "inner in", "inner out", "outer out"])
        }
    }

    // MARK: Sessions

    @Test func sessionsAreFoundByWhoseTheyAre() async throws {
        var router = Router()
        router.handleSynchronously(100) { request, context in
            context.session.authenticate(as: String(buffer: request.body))
            return ByteBuffer()
        }
        // The number of connections of ann that a handler's push has reached.
        router.handle(101) { request, context in
            ByteBuffer(string: "\(await context.push(type: 2_001, body: request.body, to: "ann"))")
        }
        try await withServer(.init(), router) { server in
            var clients: [HostileClient] = []
            for name in ["ann", "bob", "ann"] {
                let client = try await HostileClient.connect(to: server.address)
                await client.perform(.request(100, serial: 50, name))
                _ = try await client.response()
                clients.append(client)
            }
            let sessions = server.sessions(of: "ann")
            #expect(sessions.map(\.id) == [1, 3])
            #expect(sessions.allSatisfy { $0.identity == "ann" && $0.remoteAddress != nil })
            #expect(await server.push(type: 2_001, body: ByteBuffer(string: "hi ann"), to: "ann") == 2)
            for client in [clients[0], clients[2]] {
                #expect(try await client.response().payload == ByteBuffer(string: "hi ann"))
            }
            await clients[1].perform(.request(101, serial: 51, "bob says hi"))
            #expect(try await clients[1].response().payload == ByteBuffer(string: "2"))
            for client in [clients[0], clients[2]] {
                #expect(try await client.response().payload == ByteBuffer(string: "bob says hi"))
            }
            // The connection changes its name.
            await clients[2].perform(.request(100, serial: 51, "bob"))
            _ = try await clients[2].response()
            #expect(server.sessions(of: "ann").map(\.id) == [1])
            #expect(server.sessions(of: "bob").map(\.id) == [2, 3])

            sessions[0].close(reason: "signed in elsewhere")
            #expect(try await clients[0].response().type == FrameType.goAway)
            try await clients[0].ended()
            await clients[0].perform(.close)
            try await eventually("the end of ann's session") { server.sessions(of: "ann").isEmpty }
            #expect(!sessions[0].isOpen)
            #expect(await sessions[0].push(type: 2_001, body: ByteBuffer()) == false)
        }
    }

    @Test func aSessionKeepsWhatTheApplicationGivesIt() async throws {
        var router = Router()
        router.handleSynchronously(100) { request, context in
            defer { context.session[Room.self] = String(buffer: request.body) }
            return ByteBuffer(string: context.session[Room.self] ?? "none")
        }
        try await withServer(.init(), router) { server in
            let client = try await HostileClient.connect(to: server.address)
            var seen: [String] = []
            for (serial, room) in [(50, "kitchen"), (51, "hall")] as [(UInt32, String)] {
                await client.perform(.request(100, serial: serial, room))
                seen.append(String(buffer: try await client.response().payload))
            }
            #expect(seen == ["none", "kitchen"])
        }
    }

    private enum Keepsake: ServerSessionKey {
        typealias Value = Guest
    }

    /// Reads its session in `deinit`.
    private final class Guest: Sendable {
        let session: ServerSession
        let log: Watched<[String]>

        init(_ session: ServerSession, _ log: Watched<[String]>) {
            self.session = session
            self.log = log
        }

        deinit {
            let identity = self.session.identity ?? "nobody"
            self.log.withLockedValue { $0.append("\(identity), open: \(self.session.isOpen)") }
        }
    }

    @Test func valuesOfASessionMayUseItWhenTheyAreReleased() async throws {
        let log = Watched<[String]>([])
        var router = Router()
        router.handleSynchronously(100) { request, context in
            context.session[Keepsake.self] = Guest(context.session, log)
            return request.body
        }
        try await withServer(.init(), router) { server in
            let client = try await HostileClient.connect(to: server.address)
            for serial in 50..<52 as Range<UInt32> {
                await client.perform(.request(100, serial: serial))
                _ = try await client.response()
            }
            await client.perform(.reset)
            // The second value releases the first, and the connection's end the second.
            try await log.wait("both") { $0 == ["nobody, open: true", "nobody, open: false"] }
        }
    }

    @Test func aHandlerMayPushToItsOwnClient() async throws {
        var router = Router()
        router.handleSynchronously(100) { request, context in
            context.session.push(type: 2_001, body: request.body)
            return ByteBuffer(string: "answer")
        }
        try await withServer(.init(), router) { server in
            let client = try await HostileClient.connect(to: server.address)
            await client.perform(.request(100, serial: 50, "push"))
            let frames = try await client.responses(2)
            #expect(Set(frames.map { String(buffer: $0.payload) }) == ["answer", "push"])
        }
    }

    // MARK: Listeners and life

    @Test func oneServerListensAtSeveralEndpointsAndInSeveralFormats() async throws {
        var router = Router()
        router.handleSynchronously(100) { request, context in
            ByteBuffer(string: context.session.listener?.unixPath == nil ? "tcp" : "unix")
        }
        let path = "/tmp/hhsocket-\(UInt32.random(in: 0...(.max))).sock"
        let configuration = SocketServer.Configuration(
            listeners: [
                ServerListener(), ServerListener(wireFormat: .mars), ServerListener(unixPath: path),
            ]
        )
        try await withServer(configuration, router) { server in
            let addresses = server.addresses
            #expect(addresses.count == 3)
            #expect(addresses[2] == Endpoint(unixPath: path))
            var clients: [HostileClient] = []
            for (address, format) in zip(addresses, [WireFormat.standard, .mars, .standard]) {
                let client = try await HostileClient(to: address, format: format)
                await client.perform(.request(100, serial: 50))
                let answer = try await client.response()
                #expect(String(buffer: answer.payload) == (address.unixPath == nil ? "tcp" : "unix"))
                clients.append(client)
            }
            #expect(await server.push(type: 2_001, body: ByteBuffer(string: "all")) == 3)
            for client in clients { #expect(try await client.response().payload == ByteBuffer(string: "all")) }
        }
    }

    @Test func oneListenerThatCannotBindEndsAll() async throws {
        try await withServer(.init(), Router()) { other in
            let taken = try #require(other.address)
            let server = SocketServer(
                configuration: .init(listeners: [ServerListener(), ServerListener(port: taken.port)]),
                router: Router()
            )
            let error = await #expect(throws: SocketError.self) { try await server.start() }
            #expect(error?.code == .bindFailed)
            #expect(error?.endpoint == taken)
            #expect(server.addresses.isEmpty)
        }
    }

    @Test func aServiceGroupRunsItAndShutsItDownGracefully() async throws {
        let started = Gate()
        let release = Gate()
        var router = Router()
        router.handle(100) { request, _ in
            started.open()
            try await release.wait()
            return request.body
        }
        let server = SocketServer(router: router)
        let group = ServiceGroup(
            configuration: .init(services: [.init(service: server)], logger: Logger(label: "group"))
        )
        async let running: Void = group.run()
        try await eventually("the address") { server.address != nil }
        let client = try await HostileClient.connect(to: server.address)
        await client.perform(.request(100, serial: 50, "x"))
        try await started.wait()
        await group.triggerGracefulShutdown()
        #expect(try await client.response().type == FrameType.goAway)
        release.open()
        #expect(try await client.response().payload == ByteBuffer(string: "x"))
        await client.perform(.close)
        try await running
        #expect(server.address == nil)
    }

    @Test func aServiceThatIsCancelledClosesEverythingAtOnce() async throws {
        let server = SocketServer(router: Router())
        let running = Task { try await server.run() }
        try await eventually("the address") { server.address != nil }
        let client = try await HostileClient.connect(to: server.address)
        try await eventually("one connection") { server.connectionCount == 1 }
        running.cancel()
        try await running.value
        try await client.ended()
    }
}
