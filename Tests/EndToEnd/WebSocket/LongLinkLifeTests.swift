// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

/// The life of a long link, as apps expect it: `connect()` may be called at any time and never makes a second socket;
/// losses are followed by attempts that start over after each opening, and that stop after a number of failures until a
/// message, the app's return or `connect()` asks for more; there is no attempt without a network; one heartbeat for
/// each connection; the code, the reason and the manner of each end are reported; the user's close is final.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct LongLinkLifeTests {
    typealias Server = ScriptedWebSocketServer

    // MARK: Connecting

    @Test func nothingIsConnectedBeforeItIsAskedFor() async throws {
        let server = try await Server()
        let link = try TestLink.make(server.url())
        guard case .idle = link.state else { throw Unexpected(description: "\(link.state)") }
        // Anything that another link has done since then, this one could have done too.
        let other = try TestLink.make(server.url("/other"))
        other.connect()
        try await server.wait("the other's request") { $0.request.contains("/other") }
        #expect(server.count == 1)
        other.disconnect()
        await server.close()
    }

    @Test func connectingAgainMakesNoSecondSocket() async throws {
        let isOpen = NIOLockedValueBox(false)
        let server = try await Server { _, _ in isOpen.withLockedValue { $0 } ? .accept : .silence }
        let link = try TestLink.make(server.url())
        for _ in 0..<20 { link.connect() }
        try await server.wait("the request") { !$0.request.isEmpty }
        // While it is opening, and while messages wait.
        for number in 0..<20 {
            link.connect()
            link.send(WebSocketMessage("\(number)"), completion: nil)
        }
        guard case .connecting = link.state else { throw Unexpected(description: "\(link.state)") }
        #expect(server.count == 1)
        link.disconnect()
        await link.waitUntilClosed()
        isOpen.withLockedValue { $0 = true }
        link.connect()
        try await link.send(WebSocketMessage("open"))
        for _ in 0..<20 { link.connect() }
        try await link.send(WebSocketMessage("still open"))
        try await server.wait("both messages", of: 1) { $0.texts.suffix(2) == ["open", "still open"] }
        #expect(server.count == 2)
        link.disconnect()
        await server.close()
    }

    @Test func openingThatIsNotAnsweredTimesOutAndIsTriedAgain() async throws {
        let server = try await Server { number, _ in number == 0 ? .silence : .accept }
        let link = try TestLink.make(server.url()) { $0.socket.connectTimeout = .seconds(1) }
        let events = link.events
        link.connect()
        try await TestLink.event(events, "the failed attempt") { event in
            guard case .connectFailed(let error) = event else { return false }
            return error.code == .connectTimeout
        }
        try await link.send(WebSocketMessage("hello"))
        try await server.connections.wait("the message") { $0.dropFirst().contains { $0.texts == ["hello"] } }
        link.disconnect()
        await server.close()
    }

    @Test func statesNameThePhasesOfALink() async throws {
        let server = try await Server()
        let link = try TestLink.make(server.url()) {
            $0.socket.backoff = Backoff(base: .seconds(600), cap: .seconds(600), jitter: 0)
        }
        #expect("\(link.state)" == "idle")
        let events = link.events
        link.connect()
        try await TestLink.waitForOpening(events)
        #expect("\(link.state)".hasPrefix("ready, "))
        server.cut()
        _ = try await TestLink.closure(events)
        try await eventually("the wait") { if case .waiting = link.state { true } else { false } }
        link.disconnect()
        try await eventually("the close") { if case .closed = link.state { true } else { false } }
        await server.close()
    }

    @Test func severalLinksLiveSideBySide() async throws {
        let server = try await Server { _, _ in
            .accept
        } reaction: { _, frame in
            frame.isText ? .send(Server.text("to \(frame.text)")) : .usual
        }
        let links = try (0..<8).map { try TestLink.make(server.url("/\($0)")) }
        for link in links { link.connect() }
        try await withThrowingTaskGroup { group in
            for (number, link) in links.enumerated() {
                group.addTask {
                    for round in 0..<50 { try await link.send(WebSocketMessage("\(number).\(round)")) }
                    var messages = link.messages.makeAsyncIterator()
                    for round in 0..<50 { #expect(await messages.next()?.text == "to \(number).\(round)") }
                }
            }
            try await group.waitForAll()
        }
        #expect(server.count == 8)
        // Closing one does not affect the others.
        links[0].disconnect()
        await links[0].waitUntilClosed()
        for link in links.dropFirst() { _ = try await link.ping() }
        #expect(server.count == 8)
        for link in links { link.disconnect() }
        await server.close()
    }

    // MARK: Reconnecting

    @Test func eachOpeningResetsTheBackOff() async throws {
        let server = try await Server()
        let link = try TestLink.make(server.url()) {
            $0.socket.backoff = Backoff(base: .milliseconds(1), cap: .milliseconds(1), maximumRounds: 2)
        }
        link.connect()
        // Far more losses than rounds that may fail.
        for number in 0..<12 {
            try await server.wait("connection \(number)", of: number) { !$0.request.isEmpty }
            try await link.send(WebSocketMessage("\(number)"))
            try await server.wait("the message", of: number) { $0.texts == ["\(number)"] }
            server.cut(number)
        }
        // A message that is sent before the loss is noticed may be lost.
        try await server.wait("the last connection", of: 12) { !$0.request.isEmpty }
        try await link.send(WebSocketMessage("at last"))
        try await server.wait("the last message", of: 12) { $0.texts == ["at last"] }
        link.disconnect()
        await server.close()
    }

    /// Runs `body` with a link whose attempts have all failed, and a server that has started too late.
    private func withLinkThatHasGivenUp(
        attempts: Int? = nil,
        _ body: (WebSocketLink, _ startServer: () async throws -> Server) async throws -> Void
    ) async throws {
        let port = try await TestLink.freePort()
        let link = try TestLink.make("ws://127.0.0.1:\(port)/chat") {
            $0.socket.backoff = Backoff(base: .milliseconds(1), cap: .milliseconds(1), maximumRounds: 3)
        }
        let events = link.events
        if let attempts { link.connect(attempts: attempts) } else { link.connect() }
        try await TestLink.waitUntilItGivesUp(events)
        #expect("\(link.state)" == "closed")
        let servers = NIOLockedValueBox<[Server]>([])
        let result = await Result {
            try await body(link) {
                let server = try await Server(port: port)
                servers.withLockedValue { $0.append(server) }
                return server
            }
        }
        link.disconnect()
        for server in servers.withLockedValue({ $0 }) { await server.close() }
        try result.get()
    }

    @Test func messageRestartsStoppedAttempts() async throws {
        try await self.withLinkThatHasGivenUp { link, startServer in
            let server = try await startServer()
            try await link.send(WebSocketMessage("first"))
            try await link.send(WebSocketMessage("second"))
            try await server.wait("the messages") { $0.texts == ["first", "second"] }
            #expect(server.count == 1)
        }
    }

    @Test(arguments: [nil, 2]) func messageThatRestartsAttemptsFailsIfTheServerStaysAway(
        attempts: Int?
    ) async throws {
        try await self.withLinkThatHasGivenUp(attempts: attempts) { link, _ in
            let rounds = attempts ?? 3
            for _ in 0..<2 {
                let counted = NIOLockedValueBox(0)
                let events = link.events
                let error = await #expect(throws: SocketError.self) { try await link.send(WebSocketMessage("x")) }
                #expect(error?.code == .noServerReachable)
                #expect(error?.delivery == .notSent)
                _ = try await first(of: events, "the end of the attempts") { event in
                    guard case .connection(let event) = event else { return false }
                    if case .connecting = event { counted.withLockedValue { $0 += 1 } }
                    if case .gaveUp = event { return true }
                    return false
                }
                #expect(counted.withLockedValue { $0 } == rounds)
            }
        }
    }

    @Test func returnToTheForegroundRestartsStoppedAttempts() async throws {
        try await self.withLinkThatHasGivenUp { link, startServer in
            let server = try await startServer()
            let events = link.events
            link.applicationDidEnterBackground()
            link.applicationWillEnterForeground()
            try await TestLink.waitForOpening(events)
            #expect(server.count == 1)
        }
    }

    @Test func connectStartsOverAfterAttemptsHaveStopped() async throws {
        try await self.withLinkThatHasGivenUp { link, startServer in
            let server = try await startServer()
            let events = link.events
            link.connect()
            try await TestLink.waitForOpening(events)
            #expect(server.count == 1)
        }
    }

    @Test func usersCloseIsFinalAlsoAfterAttemptsHaveStopped() async throws {
        try await self.withLinkThatHasGivenUp { link, startServer in
            let server = try await startServer()
            link.disconnect()
            link.applicationDidEnterBackground()
            link.applicationWillEnterForeground()
            let error = await #expect(throws: SocketError.self) { try await link.send(WebSocketMessage("x")) }
            #expect(error?.code == .notConnected)
            #expect(server.count == 0)
        }
    }

    @Test func verdictOfTheServerIsNotUndoneByAMessageOrTheAppsReturn() async throws {
        let server = try await Server()
        let link = try TestLink.make(server.url())
        let events = link.events
        link.connect()
        try await link.send(WebSocketMessage("hello"))
        try await server.send(Server.close(3_500, "no more"))
        try await TestLink.waitUntilItGivesUp(events)
        link.applicationDidEnterBackground()
        link.applicationWillEnterForeground()
        let error = await #expect(throws: SocketError.self) { try await link.send(WebSocketMessage("x")) }
        #expect(error?.code == .notConnected)
        #expect(error?.message.contains("closed: 3500 no more") == true)
        #expect(server.count == 1)
        await server.close()
    }

    // MARK: The network and the app

    @Test func withoutANetworkNothingIsAttemptedAndItsReturnConnectsOnce() async throws {
        let server = try await Server()
        let monitor = ManualNetworkMonitor(NetworkPath(isReachable: true, name: "wifi"))
        let outcomes = Outcomes()
        // By a spelling that does not count as this machine, which needs no network.
        let link = try TestLink.make("ws://127.1:\(server.port)/chat") { $0.socket.networkMonitor = monitor }
        let events = link.events
        link.connect()
        try await TestLink.waitForOpening(events)
        monitor.update(NetworkPath(isReachable: false))
        try await TestLink.event(events, "the loss of the network") {
            if case .networkChanged(false) = $0 { true } else { false }
        }
        server.cut()
        try await eventually("the wait without an end") {
            if case .waiting(until: .distantFuture, let reason) = link.state {
                reason.code == .networkUnreachable
            } else {
                false
            }
        }
        // A message starts neither an attempt nor a timer.
        for number in 0..<50 { outcomes.send("\(number)", on: link) }
        #expect(server.count == 1)
        monitor.update(NetworkPath(isReachable: true, name: "cellular"))
        try await outcomes.wait(for: 50)
        #expect(outcomes.sent == (0..<50).map { "\($0)" })
        try await server.wait("the messages", of: 1) { $0.texts == (0..<50).map { "\($0)" } }
        #expect(server.count == 2)
        link.disconnect()
        await server.close()
    }

    @Test(arguments: [true, false]) func otherPathIsAskedForALifeSign(isAlive: Bool) async throws {
        let server = try await Server { _, _ in
            .accept
        } reaction: { number, frame in
            frame.isPing && number == 0 && !isAlive ? .silence : .usual
        }
        let monitor = ManualNetworkMonitor(NetworkPath(isReachable: true, name: "wifi"))
        let link = try TestLink.make("ws://127.1:\(server.port)/chat") {
            $0.socket.networkMonitor = monitor
            // Only the network's change can cause the probe.
            $0.socket.heartbeat = HeartbeatPolicy(
                interval: .seconds(600),
                replyTimeout: isAlive ? .seconds(60) : .milliseconds(200),
                misses: 9
            )
            $0.socket.backoff = Backoff(base: .seconds(600), cap: .seconds(600), jitter: 0)
        }
        let events = link.events
        link.connect()
        try await TestLink.waitForOpening(events)
        #expect(server.connections.current[0].pings.isEmpty)
        monitor.update(NetworkPath(isReachable: true, name: "cellular"))
        try await server.wait("the ping") { !$0.pings.isEmpty }
        if isAlive {
            _ = try await link.ping(ByteBuffer(string: "x"))
            #expect(server.count == 1)
        } else {
            try await server.wait("another connection", of: 1) { !$0.request.isEmpty }
        }
        link.disconnect()
        await server.close()
    }

    @Test func returnToTheForegroundConnectsAtOnce() async throws {
        let server = try await Server()
        let link = try TestLink.make(server.url()) {
            $0.socket.backoff = Backoff(base: .seconds(600), cap: .seconds(600), jitter: 0)
        }
        let events = link.events
        link.connect()
        try await TestLink.waitForOpening(events)
        link.applicationDidEnterBackground()
        try await TestLink.event(events, "the background") { if case .enteredBackground = $0 { true } else { false } }
        // The connection is lost in the background, where no attempt is made.
        server.cut()
        _ = try await TestLink.closure(events)
        try await eventually("the wait without an end") {
            if case .waiting(until: .distantFuture, _) = link.state { true } else { false }
        }
        #expect(server.count == 1)
        link.applicationWillEnterForeground()
        try await server.wait("the next connection", of: 1) { !$0.request.isEmpty }
        link.disconnect()
        await server.close()
    }

    // MARK: Heartbeats

    @Test func onePingForEachIntervalHoweverOftenTheLinkWasLost() async throws {
        let server = try await Server()
        let time = ManualTime()
        let link = try TestLink.make(server.url()) {
            $0.socket.heartbeat = HeartbeatPolicy(
                interval: .seconds(60),
                replyTimeout: .seconds(600),
                payload: ByteBuffer(string: "beat")
            )
            $0.socket.time = SocketTime(time)
        }
        let events = link.events
        link.connect()
        for number in 0..<4 {
            try await TestLink.waitForOpening(events)
            await time.advance(by: .seconds(60))
            try await server.wait("a ping", of: number) { !$0.pings.isEmpty }
            server.cut(number)
            _ = try await TestLink.closure(events)
            // The back-off, which begins when the link is gone.
            try await time.advance(by: .milliseconds(50), until: "connection \(number + 1)") {
                server.count == number + 2
            }
        }
        for _ in 0..<10 { link.connect() }
        try await TestLink.waitForOpening(events)
        for number in 1...20 {
            await time.advance(by: .seconds(60))
            try await server.wait("ping \(number)", of: 4) { $0.pings.count { $0.text == "beat" } >= number }
            // Its answer is behind that of the heartbeat, without which there is no other one.
            _ = try await link.ping()
        }
        // With a second timer there would be more.
        #expect(server.connections.current[4].pings.count { $0.text == "beat" } == 20)
        // A connection that is closed has no heartbeat.
        link.disconnect()
        try await server.wait("the close frame", of: 4) { $0.close != nil }
        try await server.wait("the end", of: 4) { $0.isGone }
        #expect(server.connections.current[4].frames.last?.isClose == true)
        #expect(server.count == 5)
        await server.close()
    }

    @Test(arguments: [WebSocketMessage.Kind.text, .binary]) func heartbeatIsAMessageThatTheAppMakes(
        kind: WebSocketMessage.Kind
    ) async throws {
        let server = try await Server()
        let count = NIOLockedValueBox(0)
        let link = try TestLink.make(server.url()) {
            // The server answers none of them.
            $0.socket.heartbeat = HeartbeatPolicy(
                interval: .milliseconds(20),
                replyTimeout: .milliseconds(20),
                misses: .max
            )
            $0.heartbeatMessage = {
                let number = count.withLockedValue { count in
                    count += 1
                    return count
                }
                return WebSocketMessage(kind, ByteBuffer(string: "heart \(number)"))
            }
        }
        link.connect()
        let frames = try await server.value("ten heartbeats") { $0.frames.count >= 10 ? $0.frames : nil }
        #expect(frames.prefix(10).map(\.text) == (1...10).map { "heart \($0)" })
        #expect(frames.allSatisfy { $0.first == (kind == .text ? 0x81 : 0x82) })
        #expect(server.count == 1)
        link.disconnect()
        await server.close()
    }

    @Test func anyByteIsLifeWhileAPongIsLate() async throws {
        let message = Server.frame(0x82, [UInt8](repeating: 7, count: 40))
        let pings = NIOLockedValueBox(0)
        // Answers each ping not with a pong but with the next byte of one message.
        let server = try await Server { _, _ in
            .accept
        } reaction: { _, frame in
            guard frame.isPing else { return .usual }
            let index = pings.withLockedValue { pings in
                pings += 1
                return pings - 1
            }
            return index < message.count ? .send([message[index]]) : .usual
        }
        let link = try TestLink.make(server.url()) {
            $0.socket.heartbeat = HeartbeatPolicy(interval: .milliseconds(5), replyTimeout: .seconds(5), misses: 0)
        }
        var messages = link.messages.makeAsyncIterator()
        link.connect()
        let received = await messages.next()
        #expect(received?.payload == ByteBuffer(repeating: 7, count: 40))
        #expect(pings.withLockedValue { $0 } >= message.count)
        #expect(server.count == 1)
        link.disconnect()
        await server.close()
    }

    @Test func pingCompletesWithItsOwnPayloadOnceAndInEveryState() async throws {
        let server = try await Server { _, _ in
            .accept
        } reaction: { _, frame in
            guard frame.isPing else { return .usual }
            switch frame.text {
            // An unsolicited pong, and then the requested one.
            case "mine": return .send(Server.frame(0x8A, Array("other".utf8)) + Server.frame(0x8A, frame.payload))
            case "never": return .silence
            default: return .usual
            }
        }
        let link = try TestLink.make(server.url())
        @Sendable func code(_ payload: String = "") async -> SocketError.Code? {
            do throws(SocketError) {
                _ = try await link.ping(ByteBuffer(string: payload))
                return nil
            } catch {
                return error.code
            }
        }
        #expect(await code() == .notConnected)
        let events = link.events
        link.connect()
        try await TestLink.waitForOpening(events)
        #expect(await code() == nil)
        #expect(await code("mine") == nil)
        #expect(await code(String(repeating: "x", count: 125)) == nil)
        #expect(await code(String(repeating: "x", count: 126)) == .invalidArgument)
        async let lost = code("never")
        try await server.wait("the ping") { $0.pings.last?.text == "never" }
        server.cut()
        #expect(await lost == .connectionLost)
        link.disconnect()
        await link.waitUntilClosed()
        #expect(await code() == .notConnected)
        await server.close()
    }

    @Test func pingCanBeCancelledAndIsAnsweredByItsOwnPongOnly() async throws {
        let server = try await Server { _, _ in
            .accept
        } reaction: { _, frame in
            guard frame.isPing else { return .usual }
            // The pong of a heartbeat, for example, and a message that is read after it.
            return .send(Server.frame(0x8A, []) + Server.frame(0x81, Array("after the pong".utf8)))
        }
        let link = try TestLink.make(server.url())
        let events = link.events
        link.connect()
        try await TestLink.waitForOpening(events)
        var messages = link.messages.makeAsyncIterator()
        for number in 1...2 {
            let ping = Task { try await link.ping() }
            #expect(await messages.next()?.text == "after the pong")
            ping.cancel()
            let error = await #expect(throws: SocketError.self) { try await ping.value }
            #expect(error?.code == .cancelled, "ping \(number)")
        }
        try await server.wait("both pings") { $0.pings.count == 2 }
        let payloads = server.connections.current[0].pings.map(\.text)
        #expect(Set(payloads).count == 2, "\(payloads)")
        #expect(!payloads.contains(""))
        // One that is cancelled before it is sent.
        let late = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            return try await link.ping()
        }
        let error = await #expect(throws: SocketError.self) { try await late.value }
        #expect(error?.code == .cancelled)
        link.disconnect()
        await link.waitUntilClosed()
        await server.close()
    }

    // MARK: Ends

    @Test func lossWithoutACloseFrameIs1006AndIsFollowedByAnotherConnection() async throws {
        let server = try await Server()
        let link = try TestLink.make(server.url())
        let events = link.events
        link.connect()
        try await link.send(WebSocketMessage("hello"))
        try await server.wait("the message") { $0.texts == ["hello"] }
        server.cut()
        let closure = try await TestLink.closure(events)
        #expect(closure.code == 1_006 && closure.reason.isEmpty && !closure.wasClean)
        #expect(closure.error?.code == .connectionLost)
        try await link.send(WebSocketMessage("again"))
        try await server.wait("the next message", of: 1) { $0.texts == ["again"] }
        link.disconnect()
        await server.close()
    }

    @Test func closeFrameWithoutACodeIs1005() async throws {
        let server = try await Server()
        let link = try TestLink.make(server.url())
        let events = link.events
        link.connect()
        try await link.send(WebSocketMessage("hello"))
        try await server.send([0x88, 0])
        let closure = try await TestLink.closure(events)
        #expect(closure.code == 1_005 && closure.reason.isEmpty && closure.wasClean)
        // It is answered by a close frame without a code.
        try await server.wait("the answer") { $0.close?.payload == [] }
        link.disconnect()
        await server.close()
    }

    @Test func usersCloseReportsItsCodeAndNeverReconnects() async throws {
        let server = try await Server()
        let link = try TestLink.make(server.url())
        let events = link.events
        link.connect()
        try await link.send(WebSocketMessage("hello"))
        try link.disconnect(code: 3_000, reason: "bye")
        let closure = try await TestLink.closure(events)
        #expect(closure.code == 3_000 && closure.reason == "bye" && closure.wasClean && closure.error == nil)
        await link.waitUntilClosed()
        try await server.wait("the close frame") { $0.close?.payload == [0x0B, 0xB8] + Array("bye".utf8) }
        // Neither news of the network nor the app's life changes that.
        link.networkDidChange(isReachable: false)
        link.networkDidChange(isReachable: true)
        link.applicationDidEnterBackground()
        link.applicationWillEnterForeground()
        let error = await #expect(throws: SocketError.self) { try await link.send(WebSocketMessage("x")) }
        #expect(error?.code == .notConnected)
        #expect("\(link.state)" == "closed")
        #expect(server.count == 1)
        await server.close()
    }
}
