// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketTesting
import NIOCore
import NIOPosix
import TestSupport
import Testing

/// The decisions of `ConnectionMachine`, over real sockets.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ConnectionLifeTests {
    private func client(
        _ servers: [Endpoint],
        _ change: (inout SocketConfiguration) -> Void = { _ in }
    ) -> SocketClient {
        var configuration = SocketClient.Configuration(servers: servers)
        configuration.socket.backoff.base = .milliseconds(10)
        configuration.timeout = .seconds(60)
        change(&configuration.socket)
        return SocketClient(configuration: configuration)
    }

    private func text(_ text: String) -> ByteBuffer { ByteBuffer(string: text) }

    // MARK: The gate

    @Test func nothingIsSentBeforeTheGateReturnsAndItRunsAtEveryReconnect() async throws {
        let server = try await MockServer(.echo)
        server.once(101, .close)
        let client = self.client([server.endpoint]) {
            $0.gate = HandshakeGate { handshake in
                let answer = try await handshake.exchange(type: 17, payload: ByteBuffer(string: "token"))
                guard answer.payload == ByteBuffer(string: "token") else { throw HandshakeRefusal(.stop, "no") }
            }
        }
        client.connect()
        let calls = (0..<10).map { _ in client.dataTask(with: SocketRequest(type: 102)) }
        for call in calls { call.resume() }
        try await eventually("the calls") { calls.allSatisfy { $0.state == .completed } }
        #expect(calls.allSatisfy { $0.response != nil })
        #expect(server.received.first?.type == 17)
        _ = try? await client.data(for: SocketRequest(type: 101))
        try await eventually("the next connection's call") {
            (try? await client.data(for: SocketRequest(type: 103))) != nil
        }
        let second = server.received.filter { $0.connection == 1 }
        #expect(second.first?.type == 17)
        #expect(server.received.filter { $0.type == 17 }.count == server.acceptedCount)
    }

    @Test func framesThatTheGateDoesNotTakeAreDeliveredOnceItHasReturned() async throws {
        let server = try await MockServer(.echo)
        server.on(17, .echo.then(.push(2001, "early")))
        let gate = Gate()
        let client = self.client([server.endpoint]) {
            $0.gate = HandshakeGate { handshake in
                _ = try await handshake.exchange(type: 17)
                try await gate.wait()
            }
            // Its answer would be another read.
            $0.heartbeat = nil
        }
        let pushes = client.pushes(ofType: 2001)
        client.connect()
        try await server.received(1, ofType: 17)
        gate.open()
        #expect(try await first(of: pushes, "the push").body == self.text("early"))
    }

    @Test func gateThatRefusesFinallyStopsTheAttemptsAndGivesTheReason() async throws {
        let server = try await MockServer(.echo)
        let client = self.client([server.endpoint]) {
            $0.gate = HandshakeGate { _ in throw HandshakeRefusal(.stop, "the token is not valid") }
        }
        let events = client.events
        client.connect()
        let event = try await first(of: events, "giving up") { if case .gaveUp = $0 { true } else { false } }
        guard case .gaveUp(let error) = event else { return }
        #expect(error.code == .handshakeRefused)
        #expect(error.message.contains("\(server.endpoint)") && error.message.contains("the token is not valid"))
        #expect(client.state.description == "closed")
        // The client may have closed the connection before the server has accepted it.
        try await server.connection(0)
        #expect(server.acceptedCount == 1)
    }

    @Test func gateThatWaitsForWhatNeverComesEndsInTimeAndTheNextServerIsTried() async throws {
        let silent = try await MockServer(.drop)
        let good = try await MockServer(.echo)
        let goodEndpoint = good.endpoint
        let ended = Watched<[SocketError.Code?]>([])
        let client = self.client([silent.endpoint, good.endpoint]) {
            $0.gate = HandshakeGate(timeout: .milliseconds(100)) { handshake in
                do {
                    _ = try await handshake.exchange(type: 17)
                } catch {
                    ended.withLockedValue { $0.append((error as? SocketError)?.code) }
                    throw error
                }
            }
        }
        let events = client.events
        client.connect()
        _ = try await first(of: events, "the good server") {
            if case .connected(goodEndpoint) = $0 { true } else { false }
        }
        try await ended.wait("the end of the first gate") { !$0.isEmpty }
        // The gate gets the reason why it was ended.
        #expect(ended.current.first == .handshakeTimeout)
        #expect(client.history.entries.contains { $0.error?.code == .handshakeTimeout })
    }

    // MARK: Servers

    @Test func resolverFindsTheServers() async throws {
        let server = try await MockServer(.echo)
        let client = self.client([]) { $0.resolver = ServerResolver { [endpoint = server.endpoint] in [endpoint] } }
        client.connect()
        #expect(try await client.data(for: SocketRequest(type: 101)).endpoint == server.endpoint)
    }

    @Test func addressesOfANameAreServersOfTheirOwn() async throws {
        let server = try await MockServer(.echo)
        let client = self.client([]) { $0.resolver = .dns(host: "127.0.0.1", port: server.endpoint.port) }
        client.connect()
        #expect(try await client.data(for: SocketRequest(type: 101)).endpoint == server.endpoint)
    }

    @Test func nameThatDoesNotExistIsDistinguished() async throws {
        let client = self.client([]) { $0.resolver = .dns(host: "no-such-host.invalid", port: 1) }
        let events = client.events
        client.connect(attempts: 1)
        let event = try await first(of: events, "giving up") { if case .gaveUp = $0 { true } else { false } }
        guard case .gaveUp(let error) = event else { return }
        #expect((error.underlying as? UnreachableServers)?.errors.first?.code == .hostNotFound)
    }

    /// Errors name the server to which a call was sent, although the client has switched since.
    @Test func errorsOfCallsByAConnectionThatDrainsNameItsServer() async throws {
        #expect(
            try await withGrowingTimeout {
                try await self.timeoutThatNamesTheServerThatDrains($0)
            } until: {
                $0
            }
        )
    }

    /// Returns whether the call that times out was sent before.
    private func timeoutThatNamesTheServerThatDrains(_ timeout: Duration) async throws -> Bool {
        let (old, new) = (try await MockServer(.echo), try await MockServer(.echo))
        old.on(102, .drop)
        let client = self.client([old.endpoint, new.endpoint])
        let events = client.events
        client.connect()
        let outcomes = Watched<[SocketError?]>([])
        func begin(_ timeout: Duration) -> SocketTask {
            let task = client.dataTask(with: SocketRequest(type: 102, timeout: timeout)) { result in
                let error: SocketError?
                if case .failure(let failure) = result { error = failure } else { error = nil }
                outcomes.withLockedValue { $0.append(error) }
            }
            task.resume()
            return task
        }
        _ = try await client.data(for: SocketRequest(type: 101))
        let cancelled = begin(patience)
        let late = begin(timeout)
        try await eventually("two requests, or the timeout") {
            old.received.count { $0.type == 102 } == 2 || late.state == .completed
        }
        guard old.received.count(where: { $0.type == 102 }) == 2 else {
            #expect(late.error?.code == .timeout)
            cancelled.cancel()
            return false
        }
        client.switchServer(to: new.endpoint)
        _ = try await first(of: events, "the switch") { if case .switched = $0 { true } else { false } }
        cancelled.cancel()
        try await outcomes.wait("both") { $0.count == 2 }
        for error in outcomes.current { #expect(error?.endpoint == old.endpoint, "\(error?.message ?? "none")") }
        let timeout = try #require(outcomes.current.compactMap { $0 }.first { $0.code == .timeout })
        #expect(timeout.message.contains("no answer from \(old.endpoint)"))
        return true
    }

    @Test func connectionIsWaitedFor() async throws {
        let server = try await MockServer(.echo)
        let client = self.client([server.endpoint])
        // `connected()` connects the client; the second call returns immediately.
        try await client.connected()
        try await client.connected()
        guard case .ready = client.state else {
            Issue.record("\(client.state)")
            return
        }
        // The client recovers from a loss.
        try await server.connection(0)
        await server.perform(.close)
        try await server.connection(1)
        try await client.connected()

        let lonely = self.client([try await MockServer.closedEndpoint()]) { $0.backoff.maximumRounds = 1 }
        let error = try await socketError { () throws(SocketError) in try await lonely.connected() }
        #expect(error.code == .noServerReachable)

        let waiting = self.client([try await MockServer.closedEndpoint()])
        let task = Task { try await waiting.connected() }
        task.cancel()
        await #expect(throws: SocketError.self) { try await task.value }
    }

    @Test func newListMovesTheConnection() async throws {
        let (old, new) = (try await MockServer(.echo), try await MockServer(.echo))
        let client = self.client([old.endpoint])
        let events = client.events
        client.connect()
        _ = try await client.data(for: SocketRequest(type: 101))
        client.setServers([new.endpoint])
        _ = try await first(of: events, "the switch") { if case .switched = $0 { true } else { false } }
        #expect(try await client.data(for: SocketRequest(type: 101)).endpoint == new.endpoint)
        try await old.ended(connection: 0)
    }

    @Test func oneOfThreeServersDeadIsSkippedAndAllDeadThenOneBackIsFound() async throws {
        let servers = [try await MockServer(.echo), try await MockServer(.echo), try await MockServer(.echo)]
        try await servers[0].refuseConnections()
        let client = self.client(servers.map(\.endpoint)) { $0.backoff.cap = .milliseconds(50) }
        let events = client.events
        client.connect()
        #expect(try await client.data(for: SocketRequest(type: 101)).endpoint == servers[1].endpoint)
        for server in servers { try await server.refuseConnections() }
        for server in servers { await server.perform(.close) }
        _ = try await first(of: events, "the wait") { if case .waiting = $0 { true } else { false } }
        let third = servers[2].endpoint
        try await servers[2].acceptConnections()
        _ = try await first(of: events, "the server that is back") {
            if case .connected(third) = $0 { true } else { false }
        }
        #expect(try await client.data(for: SocketRequest(type: 101)).endpoint == servers[2].endpoint)
    }

    @Test func raceIsWonByWhoAnswersFirst() async throws {
        // A listener that accepts no connection, with its backlog full: the kernel does not answer further connections.
        let group = MultiThreadedEventLoopGroup.singleton
        let listener = try await ServerBootstrap(group: group)
            .serverChannelOption(.backlog, value: 0)
            .serverChannelOption(.autoRead, value: false)
            .bind(host: "127.0.0.1", port: 0).get()
        let port = try #require(listener.localAddress?.port)
        for _ in 0..<8 {
            let filler = ClientBootstrap(group: group).connectTimeout(.milliseconds(50))
            _ = try? await filler.connect(host: "127.0.0.1", port: port).get()
        }
        let server = try await MockServer(.echo)
        let client = self.client([Endpoint(host: "127.0.0.1", port: port), server.endpoint]) {
            $0.racing = RacingPolicy(stagger: .milliseconds(20))
            $0.connectTimeout = .seconds(300)
        }
        client.connect()
        #expect(try await client.data(for: SocketRequest(type: 101)).endpoint == server.endpoint)
        try await listener.close()
    }

    // MARK: The network and the app's life

    @Test func withoutANetworkNothingIsAttempted() async throws {
        let server = try await MockServer(.echo)
        let client = self.client([server.endpoint.asIfElsewhere])
        let events = client.events
        try await server.refuseConnections()
        client.connect()
        _ = try await first(of: events, "a failure") { if case .connectFailed = $0 { true } else { false } }
        client.networkDidChange(isReachable: false)
        try await server.acceptConnections()
        let error = try await socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 101))
        }
        #expect(error.code == .networkUnreachable)
        #expect(error.delivery == .notSent)
        #expect(server.acceptedCount == 0)
        client.networkDidChange(isReachable: true, name: "wifi")
        try await server.connection(0)
        try await eventually("a call") { (try? await client.data(for: SocketRequest(type: 101))) != nil }
    }

    @Test func userWhoAsksGetsAnAttemptWhateverTheMonitorSays() async throws {
        let server = try await MockServer(.echo)
        let client = self.client([server.endpoint.asIfElsewhere]) {
            $0.networkMonitor = ManualNetworkMonitor(.init(isReachable: false))
        }
        client.connect()
        try await server.connection(0)
        try await eventually("a call") { (try? await client.data(for: SocketRequest(type: 101))) != nil }
    }

    @Test func foregroundFindsADeadConnectionAndMakesANewOneAtOnce() async throws {
        let server = try await MockServer(.echo)
        server.on(0, .drop)
        let client = self.client([server.endpoint]) {
            $0.heartbeat = HeartbeatPolicy(interval: .seconds(600), replyTimeout: .milliseconds(50), misses: 5)
        }
        let events = client.events
        client.connect()
        _ = try await client.data(for: SocketRequest(type: 101))
        server.onAnyOther(.drop)
        client.applicationDidEnterBackground()
        client.applicationWillEnterForeground()
        _ = try await first(of: events, "the loss") { if case .disconnected = $0 { true } else { false } }
        try await server.connection(1)
        #expect(!client.history.description.contains("waiting"))
    }
}
