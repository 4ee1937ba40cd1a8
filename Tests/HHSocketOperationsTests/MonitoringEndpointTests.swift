// SPDX-License-Identifier: Apache-2.0
import Dispatch
import HHSocket
import HHSocketServer
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TestSupport
import Testing

@testable import HHSocketOperations

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct MonitoringEndpointTests {
    /// Collects received bytes until the connection is closed.
    private final class Collector: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer

        private var received = ByteBuffer()
        private let promise: EventLoopPromise<String>

        init(_ promise: EventLoopPromise<String>) { self.promise = promise }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            self.received.writeImmutableBuffer(self.unwrapInboundIn(data))
        }

        func channelInactive(context: ChannelHandlerContext) {
            self.promise.succeed(String(buffer: self.received))
        }
    }

    /// Sends bytes, and returns all bytes that the endpoint sends until it closes.
    private func exchange(
        _ text: String,
        _ endpoint: MonitoringEndpoint,
        closesOutput: Bool = false
    ) async throws -> String {
        let address = try #require(endpoint.address)
        let group = MultiThreadedEventLoopGroup.singleton
        let promise = group.next().makePromise(of: String.self)
        let channel = try await ClientBootstrap(group: group)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(Collector(promise))
                }
            }
            .connect(host: address.host, port: address.port).get()
        try? await channel.writeAndFlush(ByteBuffer(string: text))
        if closesOutput { try? await channel.close(mode: .output) }
        return try await promise.futureResult.get()
    }

    private func get(_ path: String, _ endpoint: MonitoringEndpoint) async throws -> (status: String, body: String) {
        let answer = try await self.exchange("GET \(path) HTTP/1.1\r\nHost: here\r\n\r\n", endpoint)
        let parts = answer.components(separatedBy: "\r\n\r\n")
        return (String(answer.prefix { $0 != "\r\n" }), parts.dropFirst().joined(separator: "\r\n\r\n"))
    }

    private func withEndpoint(
        _ configuration: SocketServer.Configuration = .init(),
        _ router: Router = Router(),
        metrics: PrometheusMetrics? = nil,
        isReady: (@Sendable () async -> Bool)? = nil,
        _ body: (MonitoringEndpoint, SocketServer) async throws -> Void
    ) async throws {
        let server = SocketServer(configuration: configuration, router: router)
        let endpoint = MonitoringEndpoint(port: 0, server: server, metrics: metrics, isReady: isReady)
        try await endpoint.start()
        do {
            try await body(endpoint, server)
        } catch {
            await endpoint.shutdown()
            await server.shutdown(gracePeriod: .zero)
            throw error
        }
        await endpoint.shutdown()
        await server.shutdown(gracePeriod: .zero)
    }

    @Test func aServerIsReadyFromItsStartToItsShutdown() async throws {
        try await self.withEndpoint { endpoint, server in
            let refusal = (status: "HTTP/1.1 503 Service Unavailable", body: "the server accepts no connections\n")
            #expect(try await self.get("/readyz", endpoint) == refusal)
            try await server.start()
            #expect(try await self.get("/readyz?from=balancer", endpoint) == ("HTTP/1.1 200 OK", "ready\n"))
            // While a client stays that has received a go-away.
            let client = try await HostileClient.connect(to: server.address)
            try await eventually("the server has a client") { server.connectionCount == 1 }
            async let drained: Void = server.shutdown(gracePeriod: .seconds(60))
            try await eventually("the server drains") { !server.isAccepting }
            #expect(try await self.get("/readyz", endpoint) == refusal)
            #expect(try await self.get("/livez", endpoint) == ("HTTP/1.1 200 OK", "alive\n"))
            await client.perform(.close)
            await drained
            #expect(try await self.get("/livez", endpoint).status == "HTTP/1.1 200 OK")
        }
    }

    @Test func theProgramMayHaveConditionsOfItsOwn() async throws {
        let hasDatabase = NIOLockedValueBox(false)
        try await self.withEndpoint(isReady: { hasDatabase.withLockedValue { $0 } }) { endpoint, server in
            try await server.start()
            #expect(try await self.get("/readyz", endpoint).body == "the program is not ready\n")
            hasDatabase.withLockedValue { $0 = true }
            #expect(try await self.get("/readyz", endpoint).body == "ready\n")
        }
    }

    /// With a handler that blocks an event loop the server is not alive.
    @Test func aBlockedEventLoopIsNotAlive() async throws {
        let gate = DispatchSemaphore(value: 0)
        var router = Router()
        router.handleSynchronously(101) { _, _ in
            gate.wait()
            return ByteBuffer()
        }
        var configuration = SocketServer.Configuration()
        configuration.eventLoops = 1
        try await self.withEndpoint(configuration, router) { endpoint, server in
            try await server.start()
            let client = try await HostileClient.connect(to: server.address)
            await client.perform(.request(101, serial: 50))
            let isAlive = Watched(false)
            let probe = Task {
                _ = try await self.get("/livez", endpoint)
                isAlive.withLockedValue { $0 = true }
            }
            // Another thread answers.
            for _ in 0..<3 { #expect(try await self.get("/readyz", endpoint).body == "ready\n") }
            #expect(!isAlive.current)
            gate.signal()
            try await probe.value
            #expect(isAlive.current)
            await client.perform(.close)
        }
    }

    @Test func metricsAreThoseOfTheServerAndItsHandlers() async throws {
        let metrics = PrometheusMetrics()
        var configuration = SocketServer.Configuration()
        configuration.metricsFactory = metrics
        var router = Router()
        router.use(MetricsMiddleware(factory: metrics))
        router.handle(101) { request, _ in request.body }
        try await self.withEndpoint(configuration, router, metrics: metrics) { endpoint, server in
            try await server.start()
            let client = try await HostileClient.connect(to: server.address)
            await client.perform(.request(101, serial: 50))
            let answer = #"hhsocket_server_answers_total{status="200",type="101"} 1"#
            try await eventually("the answer is counted") {
                let text = try await self.get("/metrics", endpoint).body
                return text.contains("\nhhsocket_server_requests_total 1\n") && text.contains("\n\(answer)\n")
                    && text.contains("\nhhsocket_server_connections 1\n")
                    && text.contains(#"hhsocket_server_answer_time_seconds_count{type="101"} 1"#)
            }
            await client.perform(.close)
        }
    }

    @Test func otherRequestsAreRefused() async throws {
        try await self.withEndpoint { endpoint, _ in
            #expect(try await self.get("/metrics", endpoint).status == "HTTP/1.1 404 Not Found")
            #expect(try await self.get("/", endpoint).body == "paths: /metrics /readyz /livez\n")
            let post = try await self.exchange(
                "POST /readyz HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\n\r\nhi",
                endpoint
            )
            #expect(post.hasPrefix("HTTP/1.1 405 Method Not Allowed\r\n"))
            #expect(post.contains("\r\nallow: GET, HEAD\r\n"))
            #expect(try await self.exchange("no HTTP\r\n\r\n", endpoint).hasPrefix("HTTP/1.1 400 Bad Request\r\n"))
            // HAProxy and others check like this.
            let head = try await self.exchange("HEAD /livez HTTP/1.0\r\n\r\n", endpoint)
            #expect(head.hasPrefix("HTTP/1.0 200 OK\r\n") && head.hasSuffix("\r\n\r\n"))
            // One request for each connection.
            let one = "GET /livez HTTP/1.1\r\nHost: here\r\n\r\n"
            #expect(try await self.exchange(one + one, endpoint).components(separatedBy: "alive").count == 2)
        }
    }

    /// Silent connections do not shut out the probes, whose failure restarts the program.
    @Test func theOldestWithoutARequestIsClosedForAnother() async throws {
        try await self.withEndpoint { endpoint, server in
            try await server.start()
            var clients: [HostileClient] = []
            for _ in 0..<MonitoringEndpoint.maximumConnections {
                clients.append(try await HostileClient.connect(to: endpoint.address))
            }
            for _ in 0..<3 { #expect(try await self.get("/readyz", endpoint).body == "ready\n") }
            try await clients[0].ended()
            for client in clients { await client.perform(.close) }
        }
    }

    /// Neither do clients whose answers hang, or that do not read theirs.
    @Test func theOldestIsClosedForAnotherWhereAllHaveAsked() async throws {
        let gate = Gate()
        try await self.withEndpoint(isReady: { (try? await gate.wait()) != nil }) { endpoint, server in
            try await server.start()
            var clients: [HostileClient] = []
            for _ in 0..<MonitoringEndpoint.maximumConnections {
                let client = try await HostileClient.connect(to: endpoint.address)
                await client.perform(.raw(ByteBuffer(string: "GET /readyz HTTP/1.1\r\nHost: here\r\n\r\n")))
                clients.append(client)
            }
            try await eventually("all have asked") { gate.count == MonitoringEndpoint.maximumConnections }
            for _ in 0..<3 { #expect(try await self.get("/livez", endpoint).body == "alive\n") }
            try await clients[0].ended()
            gate.open()
            for client in clients { await client.perform(.close) }
        }
    }

    @Test func aConditionThatHangsIsCancelledWithItsConnection() async throws {
        let (time, gate, isCancelled) = (ManualTime(), Gate(), Watched(false))
        var configuration = SocketServer.Configuration()
        configuration.time = SocketTime(time)
        let isReady: @Sendable () async -> Bool = {
            try? await gate.wait()
            isCancelled.withLockedValue { $0 = Task.isCancelled }
            return false
        }
        try await self.withEndpoint(configuration, isReady: isReady) { endpoint, server in
            try await server.start()
            let client = try await HostileClient.connect(to: endpoint.address)
            await client.perform(.raw(ByteBuffer(string: "GET /readyz HTTP/1.1\r\nHost: here\r\n\r\n")))
            try await eventually("the condition") { gate.count == 1 }
            try await time.advance(by: .seconds(11), until: "the cancellation") { isCancelled.current }
            try await client.ended()
        }
    }

    @Test(arguments: [true, false])
    func aClientThatClosesItsDirectionGetsItsAnswer(hasAsked: Bool) async throws {
        try await self.withEndpoint { endpoint, server in
            try await server.start()
            let text = "GET /livez HTTP/1.1\r\nHost: here\r\n" + (hasAsked ? "\r\n" : "")
            let answer = try await self.exchange(text, endpoint, closesOutput: true)
            #expect(answer.hasSuffix("\r\n\r\nalive\n") == hasAsked)
        }
    }

    @Test func itIsStartedOnceAndAtAFreePort() async throws {
        try await self.withEndpoint { endpoint, server in
            let again = await #expect(throws: SocketError.self) { try await endpoint.start() }
            #expect(again?.code == .invalidArgument)
            let port = try #require(endpoint.address?.port)
            let other = MonitoringEndpoint(port: port, server: server)
            let taken = await #expect(throws: SocketError.self) { try await other.start() }
            #expect(taken?.code == .bindFailed)
        }
    }

    @Test func inAServiceGroupItEndsAfterTheServer() async throws {
        let server = SocketServer(router: Router())
        let endpoint = MonitoringEndpoint(port: 0, server: server)
        let group = ServiceGroup(
            services: [endpoint, server],
            logger: Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })
        )
        async let running: Void = group.run()
        try await eventually("both run") { server.isAccepting && endpoint.address != nil }
        try await eventually("it is ready") { try await self.get("/readyz", endpoint).body == "ready\n" }
        await group.triggerGracefulShutdown()
        try await running
        #expect(endpoint.address == nil)
        #expect(!server.isAccepting)
    }
}
