// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TestSupport
import Testing

@testable import HHSocketServer

/// The threads of asynchronous handlers.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct HandlerExecutorTests {
    private let eventLoop = MultiThreadedEventLoopGroup.singleton.next()

    private func configuration() -> SocketServer.Configuration {
        var configuration = SocketServer.Configuration()
        configuration.eventLoopGroup = self.eventLoop
        return configuration
    }

    /// A handler that answers whether it always ran on the connection's thread.
    private func handler(awaiting wait: @escaping @Sendable () async throws -> Void = {}) -> Router.Handler {
        { [eventLoop] _, _ in
            var seen = "\(eventLoop.inEventLoop)"
            try await wait()
            seen += " \(eventLoop.inEventLoop)"
            return ByteBuffer(string: seen)
        }
    }

    /// A router whose handlers report their beginning and end.
    private func router(
        _ begun: Watched<Int>,
        _ ended: Watched<Int>,
        awaiting wait: @escaping @Sendable () async throws -> Void
    ) -> Router {
        var router = Router()
        router.handle(100, on: .connection) { request, _ in
            begun.increment()
            defer { ended.increment() }
            try await wait()
            return request.body
        }
        return router
    }

    /// A client whose ten requests, from serial 50 on, have begun.
    private func beginTen(_ server: SocketServer, _ begun: Watched<Int>) async throws -> HostileClient {
        let client = try await HostileClient.connect(to: server.address)
        for serial in 50..<60 as Range<UInt32> { await client.perform(.request(100, serial: serial)) }
        try await begun.wait("ten handlers") { $0 == 10 }
        return client
    }

    private func answers(_ client: HostileClient, _ types: [UInt32]) async throws -> [String] {
        var answers: [String] = []
        for (index, type) in types.enumerated() {
            await client.perform(.request(type, serial: 50 + UInt32(index)))
            answers.append(String(buffer: try await client.response().payload))
        }
        return answers
    }

    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
    @Test func handlersRunWhereTheirRouteOrTheRouterSays() async throws {
        for (setting, byDefault) in [(nil, "false false"), (.global, "false false"), (.connection, "true true")]
            as [(HandlerExecutor?, String)]
        {
            var router = Router()
            router.handle(100, self.handler())
            router.handle(101, on: .global, self.handler())
            router.handle(102, on: .connection, self.handler())
            // The setting applies to earlier routes, too.
            if let setting { router.handlerExecutor = setting }
            try await withServer(self.configuration(), router) { server in
                let client = try await HostileClient.connect(to: server.address)
                #expect(try await self.answers(client, [100, 101, 102]) == [byDefault, "false false", "true true"])
            }
        }
    }

    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
    @Test func handlerThatWaitsElsewhereComesBack() async throws {
        var router = Router()
        router.handle(100, on: .connection, self.handler { try await Task.sleep(for: .milliseconds(1)) })
        router.handle(101, on: .connection, self.handler { await Task.yield() })
        router.handle(102, on: .connection, self.handler { await Task.detached {}.value })
        try await withServer(self.configuration(), router) { server in
            let client = try await HostileClient.connect(to: server.address)
            #expect(try await self.answers(client, [100, 101, 102]) == ["true true", "true true", "true true"])
        }
    }

    private struct Passing: ServerMiddleware {
        func handle(
            _ request: ServerRequest,
            _ context: ServerContext,
            next: Router.Handler
        ) async throws -> ByteBuffer {
            try await next(request, context)
        }
    }

    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
    @Test func middlewareAndSynchronousHandlersWithinRunWhereTheRouterSays() async throws {
        var router = Router()
        router.handlerExecutor = .connection
        router.use(Passing())
        router.handle(100, self.handler())
        router.handle(101, on: .global, self.handler())
        router.handleSynchronously(102) { [eventLoop] _, _ in ByteBuffer(string: "\(eventLoop.inEventLoop)") }
        try await withServer(self.configuration(), router) { server in
            let client = try await HostileClient.connect(to: server.address)
            #expect(try await self.answers(client, [100, 101, 102]) == ["true true", "false false", "true"])
        }
    }

    /// Requests of one read are answered in one write, although each has a task.
    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
    @Test func burstOfRequestsIsAnsweredOnTheThread() async throws {
        let count: UInt32 = 3_000
        var router = Router()
        router.handle(100, on: .connection) { request, context in
            #expect(context.session.isOpen)
            return request.body
        }
        try await withServer(self.configuration(), router) { server in
            let client = try await HostileClient.connect(to: server.address)
            let encoder = FrameEncoder(direction: .request)
            var bytes = ByteBuffer()
            for number in 0..<count {
                encoder.encode(
                    Frame(type: 100, serial: 50 + number, payload: ByteBuffer(string: "\(number)")),
                    into: &bytes
                )
            }
            await client.perform(.raw(bytes))
            let answers = try await client.responses(Int(count))
            #expect(Set(answers.map(\.serial)) == Set(50..<50 + count))
            for answer in answers { #expect(String(buffer: answer.payload) == "\(answer.serial - 50)") }
            #expect(server.requestsInFlight == 0)
        }
    }

    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
    @Test func handlersOnTheThreadAreCancelledWithTheirRequestAndAtTheServersEnd() async throws {
        let (begun, ended) = (Watched(0), Watched(0))
        let router = self.router(begun, ended) { try await Task.sleep(for: patience) }
        try await withServer(self.configuration(), router) { server in
            let client = try await self.beginTen(server, begun)
            await client.perform(.cancel(55))
            try await ended.wait("the end of one") { $0 == 1 }
        }
        try await ended.wait("the end of all") { $0 == 10 }
    }

    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
    @Test func handlersOnTheThreadOfAServerThatIsReleasedEnd() async throws {
        let (begun, ended) = (Watched(0), Watched(0))
        let router = self.router(begun, ended) {
            // The handler ignores its cancellation, and returns after the end of the server's threads.
            await Task.detached { try? await Task.sleep(for: .seconds(1)) }.value
        }
        // The server has its own threads, which end with it.
        var server: SocketServer? = SocketServer(configuration: .init(), router: router)
        try await server?.start()
        let client = try await self.beginTen(try #require(server), begun)
        server = nil
        try await ended.wait("the end of all") { $0 == 10 }
        withExtendedLifetime(client) {}
    }

    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
    @Test func sessionOffersItsThread() async throws {
        var router = Router()
        router.handle(100) { [eventLoop] _, context in
            let isThere = await Task(executorPreference: context.session.executor) { eventLoop.inEventLoop }.value
            return ByteBuffer(string: "\(eventLoop.inEventLoop) \(isThere)")
        }
        try await withServer(self.configuration(), router) { server in
            let client = try await HostileClient.connect(to: server.address)
            #expect(try await self.answers(client, [100]) == ["false true"])
        }
    }

    /// Compressing and decompressing take time, so they run elsewhere; the handler does not.
    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
    @Test func largeBodiesAreCompressedElsewhere() async throws {
        var router = Router()
        router.handle(100, on: .connection) { [eventLoop] request, _ in
            #expect(eventLoop.inEventLoop)
            return request.body
        }
        try await withServer(self.configuration(), router) { server in
            let greeter = try await Greeter(server)
            _ = try await greeter.greet()
            for length in [1_000, 1 << 20] {
                let body = ByteBuffer(repeating: 7, count: length)
                try await greeter.call(100, serial: 50 + UInt32(length), body, compression: CompressionPolicy())
                let answer = try await greeter.answer()
                #expect(answer.frame.payload == body)
            }
        }
    }
}
