// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Faults of networks and servers, over real sockets.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct NetworkFaultTests {
    private func configuration(_ servers: [Endpoint]) -> SocketConfiguration {
        var configuration = SocketConfiguration(servers: servers)
        configuration.backoff = Backoff(base: .milliseconds(10), cap: .milliseconds(200))
        return configuration
    }

    /// Records frames and events in order.
    private final class Recorder: SocketDelegate {
        let lines = Watched<[String]>([])

        private func record(_ line: String) { self.lines.withLockedValue { $0.append(line) } }

        func socket(_ socket: Socket, didDisconnectWith error: SocketError) { self.record("lost \(error.code)") }
        func socket(_ socket: Socket, didReceive frame: Frame) { self.record("frame \(frame.serial)") }
    }

    /// Waits for the loss of a connection, which must name the server.
    private func loss(_ events: AsyncStream<SocketEvent>, of endpoint: Endpoint) async throws -> SocketError {
        let event = try await first(of: events, "the loss") { if case .disconnected = $0 { true } else { false } }
        guard case .disconnected(let error) = event else { throw Unexpected(description: "\(event)") }
        #expect(error.code == .connectionLost)
        #expect(error.endpoint == endpoint)
        #expect(error.message.contains("\(endpoint.host):\(endpoint.port)"))
        return error
    }

    /// Waits for a connection to `endpoint`.
    private func connection(_ events: AsyncStream<SocketEvent>, to endpoint: Endpoint) async throws {
        _ = try await first(of: events, "a connection to \(endpoint)") {
            if case .connected(endpoint) = $0 { true } else { false }
        }
    }

    // MARK: Silence

    @Test(arguments: [HeartbeatPolicy.Mode.ping, .expectPings])
    func blackHoleIsNoticedAfterTheStatedTimeAndNotBefore(mode: HeartbeatPolicy.Mode) async throws {
        let server = try await MockServer(.echo)
        server.once(101, .echo.then(.goSilent))
        var configuration = self.configuration([server.endpoint])
        let policy = HeartbeatPolicy(
            interval: .milliseconds(300),
            replyTimeout: .milliseconds(150),
            misses: 2,
            mode: mode
        )
        configuration.heartbeat = policy
        let socket = Socket(configuration: configuration)
        let events = socket.events
        socket.connect()
        try await self.connection(events, to: server.endpoint)
        // All bytes before the silence arrived after this time.
        let start = ContinuousClock.now
        try await socket.send(Frame(type: 101, serial: 50))
        try await server.received(1, ofType: 101)
        let error = try await self.loss(events, of: server.endpoint)
        let time = ContinuousClock.now - start
        #expect(time >= .milliseconds(300) + policy.replyTimeout * (policy.misses + 1))
        #expect(error.message.contains("no heartbeat, silent for"))
        // The connection was neither closed nor reset.
        #expect(error.underlying == nil)

        try await self.connection(events, to: server.endpoint)
        let lost = socket.history.entries.filter { if case .lost = $0.kind { true } else { false } }
        #expect(lost.count == 1)
        #expect(lost.first?.error?.message == error.message)
        try await socket.send(Frame(type: 102, serial: 51))
        #expect(try await server.received(1, ofType: 102).first?.connection == 1)
    }

    // MARK: Ends

    @Test func peerThatShutsItsSideDownIsLeft() async throws {
        let server = try await MockServer(.echo)
        server.onOpen(number: 0, .halfClose)
        let socket = Socket(configuration: self.configuration([server.endpoint]))
        let events = socket.events
        socket.connect()
        let error = try await self.loss(events, of: server.endpoint)
        #expect(error.message.contains("the server closed it"))
        try await self.connection(events, to: server.endpoint)
        // The client has closed it too, although the peer could still read.
        try await server.ended(connection: 0)
        #expect(socket.state.description == "ready, \(server.endpoint)")
    }

    /// The frames exceed one read, and the bytes that the kernel takes at once.
    @Test(arguments: [MockServer.Reaction.halfClose, .close])
    func everyFrameSentBeforeTheEndIsDeliveredBeforeTheLoss(end: MockServer.Reaction) async throws {
        let server = try await MockServer(.drop)
        let payload = ByteBuffer(repeating: 7, count: 20_000)
        let frames = (50..<550 as Range<UInt32>).map {
            MockServer.Reaction.frame(Frame(type: 16, serial: $0, payload: payload))
        }
        server.onOpen(number: 0, .glued(frames).then(end))
        let socket = Socket(configuration: self.configuration([server.endpoint]))
        let recorder = Recorder()
        socket.delegate = recorder
        socket.connect()
        try await recorder.lines.wait("the loss") { $0.last == "lost connectionLost" }
        let expected = (50..<550).map { "frame \($0)" } + ["lost connectionLost"]
        #expect(recorder.lines.current == expected)
        try await server.connection(1)
    }

    @Test func resetIsReportedWithTheSystemsReason() async throws {
        let server = try await MockServer(.drop)
        let socket = Socket(configuration: self.configuration([server.endpoint]))
        let events = socket.events
        socket.connect()
        try await self.connection(events, to: server.endpoint)
        try await server.connection(0).perform(.reset)
        let error = try await self.loss(events, of: server.endpoint)
        let reason = try #require(error.underlying as? IOError)
        #expect(reason.errnoCode == ECONNRESET)
        #expect(error.message.hasSuffix("was lost: Connection reset by peer"), "\(error.message)")
        try await self.connection(events, to: server.endpoint)
        try await server.connection(1)
    }

    @Test(arguments: [MockServer.Reaction.close, .reset, .halfClose])
    func listenerThatAcceptsAndEndsAtOnceIsNotMetByATightLoop(end: MockServer.Reaction) async throws {
        let server = try await MockServer(.drop)
        server.onOpen(end)
        var configuration = self.configuration([server.endpoint])
        // The policy with the shortest waits.
        configuration.backoff = .immediate
        let socket = Socket(configuration: configuration)
        let start = ContinuousClock.now
        socket.connect()
        // Counted before the time is measured, which can only lower the count.
        try await server.connection(7)
        let accepted = server.acceptedCount
        let time = ContinuousClock.now - start
        // The first attempt and the first wait take no time; all others take some.
        #expect(time >= Backoff.minimumRepeatedWait * (accepted - 2), "\(accepted) connections in \(time)")
        socket.disconnect()
        try await eventually("the end") { socket.state.description == "closed" }
        // A reset may arrive while the connection is still being made; equal failed attempts are one entry.
        var ends = 0
        for entry in socket.history.entries {
            switch entry.kind {
            case .lost: ends += 1
            case .connectFailed(let count): ends += count
            default: continue
            }
            #expect(entry.endpoint == server.endpoint)
            #expect(entry.error?.message.contains("\(server.endpoint)") == true)
        }
        #expect(ends >= 7, "\(socket.history)")
    }

    // MARK: Servers that die

    /// Stops listening, and closes open connections.
    private func kill(_ server: MockServer) async throws {
        try await server.refuseConnections()
        await server.perform(.close)
    }

    @Test(arguments: 0..<3)
    func oneOfThreeServersIsDeadAndAnotherDiesWhicheverItIs(dead: Int) async throws {
        let servers = [try await MockServer(.echo), try await MockServer(.echo), try await MockServer(.echo)]
        try await self.kill(servers[dead])
        let living = servers.indices.filter { $0 != dead }
        let socket = Socket(configuration: self.configuration(servers.map(\.endpoint)))
        let events = socket.events
        socket.connect()
        try await self.connection(events, to: servers[living[0]].endpoint)
        try await servers[living[0]].connection(0)
        try await self.kill(servers[living[0]])
        _ = try await self.loss(events, of: servers[living[0]].endpoint)
        try await self.connection(events, to: servers[living[1]].endpoint)
        try await socket.send(Frame(type: 101, serial: 50))
        try await servers[living[1]].received(1, ofType: 101)
        #expect(servers[dead].acceptedCount == 0)
    }

    @Test(arguments: 0..<3)
    func allServersAreDeadAndTheOneThatComesBackIsFound(back: Int) async throws {
        let servers = [try await MockServer(.echo), try await MockServer(.echo), try await MockServer(.echo)]
        let socket = Socket(configuration: self.configuration(servers.map(\.endpoint)))
        let events = socket.events
        socket.connect()
        try await self.connection(events, to: servers[0].endpoint)
        try await servers[0].connection(0)
        for server in servers { try await server.refuseConnections() }
        await servers[0].perform(.close)
        _ = try await self.loss(events, of: servers[0].endpoint)
        // A whole round in which each server was tried.
        var refusing: Set<Endpoint> = []
        while refusing.count < 3 {
            let event = try await first(of: events, "a refusal") {
                if case .connectFailed = $0 { true } else { false }
            }
            guard case .connectFailed(let error) = event else { return }
            #expect(error.code == .connectionRefused)
            if let endpoint = error.endpoint { refusing.insert(endpoint) }
        }
        try await servers[back].acceptConnections()
        try await self.connection(events, to: servers[back].endpoint)
        try await socket.send(Frame(type: 101, serial: 50))
        try await servers[back].received(1, ofType: 101)
    }
}
