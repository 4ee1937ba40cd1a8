// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage
import HHSocketTesting
import InMemoryTracing
import MetricsTestKit
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing
import Tracing

@testable import HHSocket
@testable import HHSocketRPC

/// Servers that are about to end, over real TCP: no call is lost.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct GoAwayTests {
    /// Makes calls continuously, and counts their outcomes.
    private struct Load {
        struct Tally: Sendable {
            var answered = 0
            var failures: [SocketError] = []
            var servers: Set<Endpoint> = []
            var isOver = false
        }

        let tally = NIOLockedValueBox(Tally())
        private let callers: [Task<Void, Never>]

        init(_ client: SocketClient, callers: Int = 8) {
            let tally = self.tally
            self.callers = (0..<callers).map { _ in
                Task {
                    while !tally.withLockedValue({ $0.isOver }) {
                        do throws(SocketError) {
                            let response = try await client.data(for: SocketRequest(type: 101, body: "on and on"))
                            tally.withLockedValue {
                                $0.answered += 1
                                $0.servers.insert(response.endpoint)
                            }
                        } catch {
                            tally.withLockedValue { $0.failures.append(error) }
                        }
                    }
                }
            }
        }

        /// Returns when `count` more calls have been answered by this server, or by any.
        func continues(_ count: Int = 20, by server: Endpoint? = nil) async throws {
            let before = self.tally.withLockedValue { tally in
                tally.servers = []
                return tally.answered
            }
            let tally = self.tally
            try await eventually("\(count) more answers") {
                tally.withLockedValue { tally in
                    tally.answered >= before + count && (server.map { tally.servers.contains($0) } ?? true)
                }
            }
        }

        func end() async -> Tally {
            self.tally.withLockedValue { $0.isOver = true }
            for caller in self.callers { await caller.value }
            return self.tally.withLockedValue { $0 }
        }
    }

    /// Does the steps of a server that shuts down.
    private func endBegins(_ server: MockServer, retryAfter: Duration) async throws {
        try await server.refuseConnections()
        server.onAnyOther(.draining)
        await server.sendGoAway(reason: "restart", retryAfter: retryAfter)
    }

    private func restart(_ server: MockServer) async throws {
        server.onAnyOther(.echo)
        try await server.acceptConnections()
    }

    @Test func serversThatAreRestartedOneAfterTheOtherLoseNoCall() async throws {
        let servers = [try await MockServer(.echo), try await MockServer(.echo)]
        let client = SocketClient.connecting(to: servers[0].endpoint, servers[1].endpoint)
        let load = Load(client)
        try await load.continues()
        for round in 0..<6 {
            try await self.endBegins(servers[round % 2], retryAfter: .milliseconds(50))
            try await load.continues(by: servers[1 - round % 2].endpoint)
            try await self.restart(servers[round % 2])
        }
        let tally = await load.end()
        #expect(tally.failures.isEmpty, "\(tally.failures.first?.description ?? "")")
        // A 504 may make the client leave before the go-away is sent.
        #expect(client.statistics.goAways + client.statistics.resentCalls >= 6)
    }

    @Test func onlyServerThatIsRestartedLosesNoCall() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint)
        let load = Load(client)
        for round in 0..<3 {
            try await load.continues()
            let accepted = server.acceptedCount
            try await self.endBegins(server, retryAfter: .milliseconds(20 * round))
            try await eventually("an attempt that fails") {
                client.history.entries.contains { if case .connectFailed = $0.kind { true } else { false } }
            }
            try await self.restart(server)
            try await load.continues()
            #expect(server.acceptedCount > accepted)
        }
        let tally = await load.end()
        #expect(tally.failures.isEmpty, "\(tally.failures.first?.description ?? "")")
    }

    @Test func callAnswered504IsSentToTheNextServerEvenWithoutGoAwayAndRetries() async throws {
        let servers = [try await MockServer(.draining), try await MockServer(.echo)]
        let metrics = TestMetrics()
        let tracer = InMemoryTracer()
        let client = SocketClient.connecting(to: servers[0].endpoint, servers[1].endpoint) {
            $0.socket.metricsFactory = metrics
            $0.tracer = tracer
        }
        let task = client.dataTask(with: SocketRequest(type: 101, body: "again"))
        task.resume()
        try await eventually("the answer") { task.state == .completed }
        #expect(task.response?.endpoint == servers[1].endpoint)
        #expect(task.response?.string == "again")
        #expect(task.metrics?.attempts == 2)
        #expect(client.statistics.resentCalls == 1)
        #expect(try metrics.expectCounter("hhsocket.resent_calls").totalValue == 1)
        #expect(metrics.counters.allSatisfy { $0.label != "hhsocket.retries" })
        try await eventually("the span") { tracer.finishedSpans.count == 1 }
        #expect(tracer.finishedSpans.first?.events.map(\.name) == ["resend"])
        #expect(client.state.description == "ready, \(servers[1].endpoint)")
        try await servers[0].ended(connection: 0)
    }

    @Test func callThatEveryServerAnswers504FailsAfterThreeMore() async throws {
        let server = try await MockServer(.draining)
        let client = SocketClient.connecting(to: server.endpoint)
        let task = client.dataTask(with: SocketRequest(type: 101))
        task.resume()
        try await eventually("the end") { task.state == .completed }
        #expect(task.error?.code == .draining)
        #expect(task.error?.notExecuted == true)
        #expect(task.metrics?.attempts == 4)
        #expect(server.received.map(\.connection) == [0, 1, 2, 3])
    }

    @Test func retriesByPolicyAndInterceptorsSeeNothingOfIt() async throws {
        struct Counting: SocketInterceptor {
            let asked: NIOLockedValueBox<Int>

            func intercept(_ request: SocketRequest, next: Next) async throws -> SocketResponse {
                self.asked.withLockedValue { $0 += 1 }
                return try await next(request)
            }
        }
        let servers = [try await MockServer(.draining), try await MockServer(.echo)]
        servers[1].once(101, .status(.overloaded))
        let asked = NIOLockedValueBox(0)
        let client = SocketClient.connecting(to: servers[0].endpoint, servers[1].endpoint) {
            $0.interceptors = [Counting(asked: asked)]
            // It allows one retry, which is for the overload.
            $0.retryPolicy = RetryPolicy(maximumAttempts: 2, backoff: Backoff(base: .milliseconds(1)))
            $0.retryBudget = RetryBudget(capacity: 1, deposit: 0)
        }
        #expect(try await client.data(for: SocketRequest(type: 101, body: "x")).string == "x")
        #expect(asked.withLockedValue { $0 } == 1)
        #expect(servers[1].received.count == 2)
    }

    // MARK: While a call waits

    private func waiting() async throws -> (
        MockServer, SocketClient, SocketTask, Watched<[SocketError.Code?]>
    ) {
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint)
        _ = try await client.data(for: SocketRequest(type: 101))
        try await server.refuseConnections()
        server.onAnyOther(.draining)
        let ends = Watched<[SocketError.Code?]>([])
        let task = client.dataTask(with: SocketRequest(type: 101)) { result in
            ends.withLockedValue { ends in
                if case .failure(let error) = result { ends.append(error.code) } else { ends.append(nil) }
            }
        }
        task.resume()
        try await eventually("the wait") { client.statistics.resentCalls == 1 }
        return (server, client, task, ends)
    }

    @Test func waitForTheNextConnectionCanBeCancelled() async throws {
        let (_, client, task, ends) = try await self.waiting()
        task.cancel()
        try await ends.wait("the end") { $0 == [.cancelled] }
        #expect(task.error?.delivery == .notSent)
        client.disconnect()
        #expect(ends.current == [.cancelled])
    }

    @Test func clientThatIsReleasedEndsTheWait() async throws {
        let ends: Watched<[SocketError.Code?]>
        do { ends = try await self.waiting().3 }
        try await ends.wait("the end") { $0 == [.cancelled] }
    }

    @Test func callThatFindsNoOtherServerInTimeSaysWhatItWaitedFor() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint)
        _ = try await client.data(for: SocketRequest(type: 101))
        try await server.refuseConnections()
        await server.sendGoAway(retryAfter: .seconds(60))
        try await eventually("the go-away") { client.statistics.goAways == 1 }
        let error = try await socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 101, timeout: .milliseconds(100)))
        }
        #expect(error.code == .timeout)
        #expect(error.delivery == .notSent)
        #expect(error.message.contains("no successor of the connection to \(server.endpoint)"))
        #expect(server.received.count == 1)
    }

    @Test func callInFlightIsAnsweredByTheConnectionThatIsLeft() async throws {
        let clock = VirtualClock()
        let servers = [try await MockServer(.echo.delayed(by: .seconds(1)), clock: clock), try await MockServer(.echo)]
        let client = SocketClient.connecting(to: servers[0].endpoint, servers[1].endpoint)
        let task = client.dataTask(with: SocketRequest(type: 101, body: "slow"))
        task.resume()
        try await servers[0].received(1)
        await servers[0].sendGoAway()
        try await eventually("the next server") { client.state.description == "ready, \(servers[1].endpoint)" }
        #expect(try await client.data(for: SocketRequest(type: 102)).endpoint == servers[1].endpoint)
        #expect(task.state == .running)
        try await eventually("the answer") {
            clock.advance(by: .seconds(1))
            return task.state == .completed
        }
        #expect(task.response?.endpoint == servers[0].endpoint)
        try await servers[0].ended(connection: 0)
    }

    enum InFlight: CaseIterable { case nothing, call, stream }

    /// Of a server that drains and accepts nobody. What is in flight on the old connection may not make the client try
    /// more often than its back-off allows.
    @Test(arguments: InFlight.allCases) func backoffHoldsWhileAServerDrainsAndEachFailureCountsOnce(
        inFlight: InFlight
    ) async throws {
        let server = try await MockServer(.drop)
        server.acceptHello(streams: StreamPolicy())
        let (time, metrics) = (ManualTime(), TestMetrics())
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.hello = HelloPolicy()
            $0.streams = StreamPolicy()
            $0.timeout = .seconds(3_600)
            $0.socket.heartbeat = nil
            $0.socket.networkMonitor = nil
            $0.socket.metricsFactory = metrics
            $0.socket.time = SocketTime(time)
            // Calls never shorten it: it begins with a quarter of its cap.
            $0.socket.backoff = Backoff(base: .seconds(5), cap: .seconds(20), jitter: 0)
        }
        try await client.connected()
        var stream: SocketStream?
        var call: Task<Void, any Error>?
        switch inFlight {
        case .nothing: break
        case .call: call = Task { _ = try await client.data(for: SocketRequest(type: 101)) }
        case .stream: stream = try await client.stream(for: SocketRequest(type: 101))
        }
        if inFlight != .nothing { try await server.received(1, ofType: 101) }
        let (events, start) = (client.events, time.now())
        let failures = Watched<[NIODeadline]>([])
        let watching = Task {
            for await event in events {
                guard case .connectFailed = event else { continue }
                failures.withLockedValue { $0.append(time.now()) }
            }
        }
        try await server.refuseConnections()
        await server.sendGoAway(retryAfter: .milliseconds(461))
        try await eventually("the go-away") { client.statistics.goAways == 1 }
        try await time.advance(by: .milliseconds(500), until: "four attempts") { failures.current.count >= 4 }
        // They are seen at their time or later, after waits of 5, 10 and 20 seconds.
        for (failure, earliest) in zip(failures.current, [0, 5, 15, 35] as [Int64]) {
            #expect(failure - start >= .seconds(earliest), "\(failures.current.map { $0 - start })")
        }
        // Those that the clock has reached meanwhile have failed, too.
        try await eventually("one entry of the history and one count for each") {
            let recorded = client.history.entries.map { entry in
                if case .connectFailed(let count) = entry.kind { count } else { 0 }
            }
            let counters = metrics.counters.filter { $0.label == "hhsocket.connect_failures" }
            let counted = counters.map { Int($0.totalValue) }
            let count = failures.current.count
            return recorded.reduce(0, +) == count && counted.reduce(0, +) == count
        }
        watching.cancel()
        call?.cancel()
        stream?.cancel()
    }

    @Test func callMadeWhileTheOnlyServerIsAwayWaitsForIt() async throws {
        let server = try await MockServer(.echo)
        server.onOpen(number: 0, .goAway(retryAfter: .milliseconds(500)).then(.close))
        let (client, events) = SocketClient.connectingWithEvents(to: server.endpoint)
        _ = try await first(of: events, "the loss") { if case .disconnected = $0 { true } else { false } }
        // Between connections, and without `waitsForConnectivity`.
        #expect(try await client.data(for: SocketRequest(type: 101, body: "x")).string == "x")
        #expect(server.acceptedCount == 2)
    }

    @Test func unsentCallsAreSentOnTheNextConnection() async throws {
        let servers = [try await MockServer(.echo), try await MockServer(.echo)]
        servers[0].onOpen(.stopReading)
        let client = SocketClient.connecting(to: servers[0].endpoint, servers[1].endpoint)
        let body = ByteBuffer(repeating: 7, count: 1 << 20)
        let tasks = (0..<24).map { _ in client.dataTask(with: SocketRequest(type: 101, body: body)) }
        for task in tasks { task.resume() }
        try await servers[0].connection(0)
        try await eventually("a full connection") { tasks.contains { $0.countOfBytesSent > 0 } }
        await servers[0].sendGoAway()
        try await eventually("answers by the next server") { tasks.contains { $0.state == .completed } }
        await servers[0].perform(.wakeUp)
        try await eventually("all answers") { tasks.allSatisfy { $0.state == .completed } }
        #expect(tasks.allSatisfy { $0.error == nil && $0.metrics?.attempts == 1 })
        #expect(servers[0].received.count + servers[1].received.count == 24, "each was sent once")
        #expect(servers[1].received.count > 0)
    }

    // MARK: Hostile servers

    @Test func goAwayThatCannotBeReadIsOneWithoutDetails() async throws {
        let servers = [try await MockServer(.echo), try await MockServer(.echo)]
        let client = SocketClient.connecting(to: servers[0].endpoint, servers[1].endpoint)
        _ = try await client.data(for: SocketRequest(type: 101))
        let garbage = ByteBuffer(bytes: [0x0A, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0x41])
        await servers[0].perform(.frame(Frame(type: FrameType.goAway, serial: FrameSerial.goAway, payload: garbage)))
        try await eventually("the go-away") { client.statistics.malformedGoAways == 1 }
        #expect(client.statistics.goAways == 1)
        #expect(try await client.data(for: SocketRequest(type: 101)).endpoint == servers[1].endpoint)
    }

    @Test func floodOfGoAwaysIsCountedAndDoesNothingMore() async throws {
        let servers = [try await MockServer(.echo), try await MockServer(.echo)]
        let (client, events) = SocketClient.connectingWithEvents(to: servers[0].endpoint, servers[1].endpoint)
        _ = try await client.data(for: SocketRequest(type: 101))
        await servers[0].perform(.goAway(reason: "go", retryAfter: .seconds(60)).times(20_000))
        try await eventually("all of them") { client.statistics.goAways == 20_000 }
        #expect(try await client.data(for: SocketRequest(type: 101)).endpoint == servers[1].endpoint)
        client.disconnect()
        var goAways = 0
        for await event in events {
            if case .goAway(servers[0].endpoint, "go", .seconds(60)) = event { goAways += 1 }
            if case .closed = event { break }
        }
        #expect(goAways == 1)
    }

    @Test func serverThatIsFullIsLeftAloneForAsLongAsItSays() async throws {
        let server = try await MockServer(.echo)
        let start = ContinuousClock.now
        server.onOpen(.goAway(reason: "full", retryAfter: .milliseconds(400)).then(.close))
        let client = SocketClient.connecting(to: server.endpoint)
        let task = client.dataTask(with: SocketRequest(type: 101, isPatient: true))
        task.resume()
        try await server.connection(2)
        #expect(ContinuousClock.now - start >= .milliseconds(800))
        client.disconnect()
    }

    @Test(arguments: [false, true]) func serversThatAreNotInTheListAreUsedOnlyIfAllowed(isAllowed: Bool) async throws {
        let servers = [try await MockServer(.echo), try await MockServer(.echo), try await MockServer(.echo)]
        let client = SocketClient.connecting(to: servers[0].endpoint, servers[1].endpoint) {
            $0.socket.serverPolicy.acceptsOtherEndpoints = isAllowed
        }
        _ = try await client.data(for: SocketRequest(type: 101))
        await servers[0].sendGoAway(retryAfter: .seconds(60), endpoints: [servers[2].endpoint])
        try await eventually("the go-away") { client.statistics.goAways == 1 }
        let response = try await client.data(for: SocketRequest(type: 101))
        #expect(response.endpoint == servers[isAllowed ? 2 : 1].endpoint)
        #expect(servers[2].acceptedCount == (isAllowed ? 1 : 0))
    }

    // MARK: The frame

    /// The go-away that Docs/Protocol.md shows.
    @Test func goAwayOnTheWire() throws {
        let hex = """
            00000004 00000004 000000C8 0000001B 0A0772657374617274 10DC0B 1A0D31302E302E302E323A37303030 682806B3
            """
        var message = WireGoAway()
        message.reason = "restart"
        message.retryAfter = 1_500
        message.endpoints = ["10.0.0.2:7000"]
        let frame = Frame(type: 4, serial: 4, payload: try ByteBuffer(message: message))
        var bytes = ByteBuffer()
        FrameEncoder(direction: .response).encode(frame, into: &bytes)
        let digits = bytes.readableBytesView.map { ($0 < 16 ? "0" : "") + String($0, radix: 16, uppercase: true) }
        #expect(digits.joined() == hex.filter { !$0.isWhitespace })
        #expect(try DocumentationPage("Docs/Protocol.md").text.contains(hex))
        #expect(WireFormat.standard.isGoAway(frame))
        let departure = GoAway(try frame.payload.message(as: WireGoAway.self))
        #expect(
            departure
                == GoAway(
                    reason: "restart",
                    retryAfter: .milliseconds(1_500),
                    endpoints: [Endpoint(host: "10.0.0.2", port: 7_000)]
                )
        )
    }

    @Test func invalidPartsOfAGoAwayAreLeftOut() {
        var message = WireGoAway()
        message.reason = "line\nbreak " + String(repeating: "long", count: 1_000)
        message.retryAfter = .max
        message.endpoints =
            [
                "", "nothing", "unix:/var/run/secret", "a b:1", "a:0", "[::1]:7000",
                String(repeating: "a", count: 300) + ":1",
            ]
            + (1...100).map { "x:\($0)" }
        let departure = GoAway(message)
        #expect(departure.reason.hasPrefix("line break long"))
        #expect(departure.reason.unicodeScalars.count == 256)
        #expect(
            departure.endpoints == [Endpoint(host: "::1", port: 7_000)] + (1...9).map { Endpoint(host: "x", port: $0) }
        )
    }

    @Test func typeFourIsTheApplicationsWhereTheFormatSaysSo() {
        let frame = Frame(type: 4, serial: 4)
        #expect(WireFormat.plain.isGoAway(frame))
        #expect(!WireFormat.mars.isGoAway(frame))
        #expect(!WireFormat.standard.isGoAway(Frame(type: 4, serial: 5)))
        #expect(!WireFormat.standard.isGoAway(Frame(type: 4, serial: 4, status: .draining)))
    }
}

extension SocketRequest {
    fileprivate init(type: UInt32, isPatient: Bool) {
        self.init(type: type)
        self.waitsForConnectivity = isPatient
    }
}
