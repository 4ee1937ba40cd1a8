// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import NIOPosix
import TestSupport
import Testing

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct SocketTests {
    private func configuration(_ servers: Endpoint...) -> SocketConfiguration {
        var configuration = SocketConfiguration(servers: servers)
        configuration.backoff.base = .milliseconds(10)
        return configuration
    }

    /// Records its notifications.
    private final class Recorder: SocketDelegate {
        let lines = Watched<[String]>([])
        let frames = Watched<[Frame]>([])

        private func record(_ line: String) { self.lines.withLockedValue { $0.append(line) } }

        func socket(_ socket: Socket, didConnectTo endpoint: Endpoint) { self.record("connected") }
        func socket(_ socket: Socket, didFailToConnectWith error: SocketError) { self.record("failed \(error.code)") }
        func socket(_ socket: Socket, didDisconnectWith error: SocketError) { self.record("lost \(error.code)") }
        func socket(_ socket: Socket, didGiveUpWith error: SocketError) { self.record("gave up \(error.code)") }
        func socketDidClose(_ socket: Socket) { self.record("closed") }
        func socket(_ socket: Socket, didReceive frame: Frame) { self.frames.withLockedValue { $0.append(frame) } }
        func socket(_ socket: Socket, didReceiveCorrupt frame: Frame) { self.record("corrupt \(frame.serial)") }
    }

    @Test func framesGoBothWaysAndTheDelegateIsNotifiedInOrder() async throws {
        let server = try await MockServer(.glued(.echo, .echo.corrupted()))
        let socket = Socket(configuration: self.configuration(server.endpoint))
        let recorder = Recorder()
        socket.delegate = recorder
        let events = socket.events
        socket.connect()
        _ = try await first(of: events, "the connection") { if case .connected = $0 { true } else { false } }
        #expect(socket.state.description == "ready, \(server.endpoint)")
        let frame = Frame(type: 16, serial: 77, payload: ByteBuffer(string: "raw"))
        try await socket.send(frame)
        try await recorder.frames.wait("the echo") { $0 == [frame] }
        try await recorder.lines.wait("the corrupt one") { $0.contains("corrupt 77") }
        socket.disconnect()
        try await recorder.lines.wait("the end") { $0 == ["connected", "corrupt 77", "closed"] }
        #expect(socket.state.description == "closed")
    }

    @Test func sendingWithoutAConnectionFailsAtOnce() async throws {
        let socket = Socket(configuration: self.configuration(Endpoint(host: "127.0.0.1", port: 1)))
        let error = await #expect(throws: SocketError.self) { try await socket.send(Frame(type: 16, serial: 50)) }
        #expect(error?.code == .notConnected)
        #expect(error?.delivery == .notSent)
    }

    @Test func attemptsStopAfterTheAllowedRoundsAndTheDelegateLearnsIt() async throws {
        let endpoint = try await MockServer.closedEndpoint()
        var configuration = self.configuration(endpoint)
        configuration.backoff.maximumRounds = 3
        let socket = Socket(configuration: configuration)
        let recorder = Recorder()
        socket.delegate = recorder
        socket.connect()
        try await recorder.lines.wait("giving up") { $0.last == "gave up noServerReachable" }
        #expect(recorder.lines.withLockedValue { $0.filter { $0 == "failed connectionRefused" }.count } == 3)
        #expect(socket.state.description == "closed")
    }

    @Test func connectionThatIsLostComesBackAndOneThatIsClosedDoesNot() async throws {
        let server = try await MockServer()
        for number in 0..<3 { server.onOpen(number: number, .close) }
        let socket = Socket(configuration: self.configuration(server.endpoint))
        let events = socket.events
        socket.connect()
        for _ in 0..<3 {
            _ = try await first(of: events, "a loss") { if case .disconnected = $0 { true } else { false } }
        }
        _ = try await first(of: events, "the fourth") { if case .connected = $0 { true } else { false } }
        socket.disconnect()
        let next = try await first(of: events, "an event")
        guard case .closed = next else {
            Issue.record("\(next) after disconnect()")
            return
        }
    }

    @Test func peerThatDoesNotReadIsLeftAfterTheStallTimeoutAndTheQueueIsBounded() async throws {
        let server = try await MockServer(.drop)
        // For each connection, since the first may be another process's: on a busy machine the port may just have
        // changed owners.
        server.onOpen(.stopReading)
        var configuration = self.configuration(server.endpoint)
        configuration.writeStallTimeout = .milliseconds(300)
        // More than the kernels take; otherwise waiting frames would be sent.
        configuration.maximumQueuedBytes = 64 << 20
        configuration.writePolicy = WritePolicy(highWaterMark: .max)
        let socket = Socket(configuration: configuration)
        let events = socket.events
        socket.connect()
        _ = try await first(of: events, "the connection") { if case .connected = $0 { true } else { false } }
        let payload = ByteBuffer(repeating: 7, count: 1 << 20)
        var refused: SocketError?
        for serial in 50..<200 as Range<UInt32> {
            do throws(SocketError) {
                try await socket.send(Frame(type: 16, serial: serial, payload: payload))
            } catch {
                refused = error
                break
            }
        }
        #expect(refused?.code == .queueFull || refused?.code == .notConnected)
        let event = try await first(of: events, "the loss") { if case .disconnected = $0 { true } else { false } }
        guard case .disconnected(let error) = event else { return }
        #expect(error.code == .connectionLost)
        #expect(error.message.contains("(writeStallTimeout)"), "\(error)")
        _ = try await first(of: events, "the next connection") { if case .connected = $0 { true } else { false } }
    }

    /// An app that signs in by frames when a connection is ready has to do so on the next server too.
    @Test func delegateIsNotifiedOfASwitch() async throws {
        let servers = [try await MockServer(.echo), try await MockServer(.echo)]
        var configuration = self.configuration(servers[0].endpoint, servers[1].endpoint)
        configuration.callbackQueue = .socketThread
        let socket = Socket(configuration: configuration)
        let recorder = SwitchRecorder()
        socket.delegate = recorder
        socket.connect()
        try await recorder.events.wait("the connection") { $0 == ["connected \(servers[0].endpoint)"] }
        socket.switchServer(to: servers[1].endpoint)
        try await recorder.events.wait("the switch") { $0.count == 3 }
        #expect(
            recorder.events.current.dropFirst() == [
                "disconnected \(servers[0].endpoint)", "connected \(servers[1].endpoint)",
            ]
        )
    }

    private final class SwitchRecorder: SocketDelegate {
        let events = Watched<[String]>([])

        func socket(_ socket: Socket, didReceive frame: Frame) {
            self.events.withLockedValue { $0.append("frame \(frame.serial)") }
        }

        func socket(_ socket: Socket, didConnectTo endpoint: Endpoint) {
            self.events.withLockedValue { $0.append("connected \(endpoint)") }
        }

        func socket(_ socket: Socket, didDisconnectWith error: SocketError) {
            self.events.withLockedValue { $0.append("disconnected \(error.endpoint.map { "\($0)" } ?? "")") }
        }
    }

    /// From a server that is not pinged, as in formats in which only it pings, any byte proves as much as an answer.
    @Test func anyByteEndsTheDoubtsOfANewPath() async throws {
        let server = try await MockServer(.echo)
        var configuration = self.configuration(server.endpoint)
        configuration.heartbeat = nil
        configuration.networkMonitor = nil
        configuration.backoff = Backoff(base: .seconds(600), cap: .seconds(600), jitter: 0)
        let socket = Socket(configuration: configuration)
        let events = socket.events
        socket.connect()
        let recorder = SwitchRecorder()
        socket.delegate = recorder
        try await server.connection(0)
        _ = try await first(of: events, "a connection") { if case .connected = $0 { true } else { false } }
        socket.networkDidChange(isReachable: true, name: "wifi")
        try await socket.send(Frame(type: 16, serial: 50))
        try await recorder.events.wait("the answer") { $0.contains("frame 50") }
        await server.perform(.close)
        let event = try await first(of: events, "a wait or an attempt") {
            switch $0 {
            case .waiting, .connecting: true
            default: false
            }
        }
        guard case .waiting = event else {
            Issue.record("\(event): the connection was still doubted")
            return
        }
    }

    @Test func socketSwitchesFromAServerThatGoesAwayWithoutReadingWhatItSays() async throws {
        let servers = [try await MockServer(.echo), try await MockServer(.echo)]
        let socket = Socket(configuration: self.configuration(servers[0].endpoint, servers[1].endpoint))
        let events = socket.events
        socket.connect()
        try await servers[0].connection(0)
        await servers[0].sendGoAway(reason: "restart", retryAfter: .seconds(300))
        _ = try await first(of: events, "the go-away") { if case .goAway = $0 { true } else { false } }
        try await socket.send(Frame(type: 16, serial: 50))
        try await eventually("the next server") { socket.state.description == "ready, \(servers[1].endpoint)" }
        try await servers[0].ended(connection: 0)
        #expect(socket.history.description.contains("go-away from \(servers[0].endpoint), for "), "\(socket.history)")
        // On the old connection or on the new one.
        try await eventually("the frame") { (servers[0].received + servers[1].received).map(\.serial) == [50] }
    }

    @Test func socketThatIsReleasedClosesItsConnectionAndItsEventsEnd() async throws {
        let server = try await MockServer()
        let events: AsyncStream<SocketEvent>
        do {
            let socket = Socket(configuration: self.configuration(server.endpoint))
            events = socket.events
            socket.connect()
            _ = try await first(of: events, "the connection") { if case .connected = $0 { true } else { false } }
        }
        try await server.ended(connection: 0)
        try await withDeadline("the end of the events") { for await _ in events {} }
    }

    @Test func manySocketsShareALentGroup() async throws {
        let server = try await MockServer(.echo)
        var configuration = self.configuration(server.endpoint)
        configuration.eventLoopGroup = MultiThreadedEventLoopGroup.singleton
        let sockets = (0..<20).map { _ in Socket(configuration: configuration) }
        for socket in sockets { socket.connect() }
        for socket in sockets {
            try await eventually("ready") { if case .ready = socket.state { true } else { false } }
        }
    }

    @Test func connectAndDisconnectInQuickSuccessionEndWhereTheLastSaid() async throws {
        let server = try await MockServer(.drop)
        let socket = Socket(configuration: self.configuration(server.endpoint))
        for _ in 0..<200 {
            socket.connect()
            socket.disconnect()
        }
        socket.connect()
        try await eventually("ready") { if case .ready = socket.state { true } else { false } }
        for _ in 0..<200 {
            socket.connect()
            socket.disconnect()
        }
        try await eventually("closed") { if case .closed = socket.state { true } else { false } }
    }
}
