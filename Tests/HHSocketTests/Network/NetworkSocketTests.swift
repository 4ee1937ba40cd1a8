// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocket

/// The effects of a monitor's paths on a connection, over real sockets.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct NetworkSocketTests {
    /// Records the requested networks.
    private final class Storage: HeartbeatStorage {
        private let labels = NIOLockedValueBox<[String]>([])

        var asked: [String] { self.labels.withLockedValue { $0 } }

        func runs(forNetwork label: String) -> [HeartbeatHistory.Run] {
            self.labels.withLockedValue { $0.append(label) }
            return []
        }

        func store(_ runs: [HeartbeatHistory.Run], forNetwork label: String) {}
    }

    private let gone = NetworkPath(isReachable: false)
    private let wifi = NetworkPath(isReachable: true, name: "wifi")
    private let cellular = NetworkPath(isReachable: true, name: "cellular")

    private func socket(
        _ endpoint: Endpoint,
        _ monitor: ManualNetworkMonitor,
        time: SocketTime = SocketTime()
    ) -> Socket {
        var configuration = SocketConfiguration(servers: [endpoint])
        configuration.networkMonitor = monitor
        configuration.time = time
        // Only changes of the network can cause events.
        configuration.heartbeat = HeartbeatPolicy(interval: .seconds(600), replyTimeout: .milliseconds(100), misses: 5)
        configuration.backoff = Backoff(base: .seconds(600), cap: .seconds(600), jitter: 0)
        return Socket(configuration: configuration)
    }

    private func connection(_ events: AsyncStream<SocketEvent>) async throws {
        _ = try await first(of: events, "a connection") { if case .connected = $0 { true } else { false } }
    }

    private func networkChange(_ events: AsyncStream<SocketEvent>, isReachable: Bool) async throws {
        _ = try await first(of: events, "news of the network") {
            if case .networkChanged(isReachable) = $0 { true } else { false }
        }
    }

    @Test func withoutANetworkNothingIsAttemptedAndOnceThereIsOneTheConnectionIsMade() async throws {
        let server = try await MockServer(.drop)
        try await server.refuseConnections()
        let monitor = ManualNetworkMonitor(self.gone)
        let socket = self.socket(server.endpoint.asIfElsewhere, monitor)
        let events = socket.events
        socket.connect()
        try await self.networkChange(events, isReachable: false)
        // The user's request has caused one attempt.
        try await eventually("the end of the attempt") {
            if case .waiting(until: .distantFuture, _) = socket.state { true } else { false }
        }
        let error = await #expect(throws: SocketError.self) { try await socket.send(Frame(type: 16, serial: 50)) }
        #expect(error?.code == .networkUnreachable)
        #expect(error?.delivery == .notSent)
        guard case .waiting(until: .distantFuture, _) = socket.state else {
            Issue.record("\(socket.state)")
            return
        }
        try await server.acceptConnections()
        #expect(server.acceptedCount == 0)
        monitor.update(self.wifi)
        try await self.connection(events)
    }

    @Test func waitForTheNextAttemptEndsWithThePath() async throws {
        let server = try await MockServer(.drop)
        try await server.refuseConnections()
        let monitor = ManualNetworkMonitor(self.wifi)
        let socket = self.socket(server.endpoint, monitor)
        let events = socket.events
        socket.connect()
        _ = try await first(of: events, "a wait") { if case .waiting = $0 { true } else { false } }
        try await server.acceptConnections()
        monitor.update(self.cellular)
        try await self.connection(events)
    }

    @Test func liveConnectionIsAskedOnAnotherPathAndNotOnTheFirst() async throws {
        let server = try await MockServer(.drop)
        let monitor = ManualNetworkMonitor(self.wifi)
        // Time stands still: no answer is late.
        let socket = self.socket(server.endpoint, monitor, time: SocketTime(ManualTime()))
        let events = socket.events
        socket.connect()
        try await self.connection(events)
        monitor.update(self.cellular)
        monitor.update(self.wifi)
        try await self.networkChange(events, isReachable: true)
        try await self.networkChange(events, isReachable: true)
        try await server.received(1, ofType: FrameType.heartbeat)
        // The frame follows earlier requests, whose answers precede its own.
        try await socket.send(Frame(type: 101, serial: 60))
        try await server.received(1, ofType: 101)
        #expect(server.received.filter { $0.type == FrameType.heartbeat }.count <= 2)
        #expect(server.acceptedCount == 1)
        let changes = socket.history.entries.compactMap { entry -> String? in
            if case .networkChanged(let name) = entry.kind { name ?? "?" } else { nil }
        }
        #expect(changes == [self.cellular, self.wifi].map { $0.name ?? "?" }, "\(socket.history)")
    }

    @Test func deadConnectionIsNoticedOnAnotherPathAndReplacedWithoutBackOff() async throws {
        let server = try await MockServer(.drop)
        server.on(FrameType.heartbeat, .drop)
        let monitor = ManualNetworkMonitor(self.wifi)
        let socket = self.socket(server.endpoint, monitor)
        let events = socket.events
        socket.connect()
        try await self.connection(events)
        monitor.update(self.gone)
        try await self.networkChange(events, isReachable: false)
        monitor.update(self.cellular)
        _ = try await first(of: events, "the loss") { if case .disconnected = $0 { true } else { false } }
        try await self.connection(events)
        try await server.connection(1)
    }

    @Test func networkThatGoesAffectsNeitherALiveConnectionNorAServerOnThisMachine() async throws {
        let servers = [try await MockServer(.drop), try await MockServer(.drop)]
        let monitor = ManualNetworkMonitor(self.wifi)
        let sockets = [
            self.socket(servers[0].endpoint.asIfElsewhere, monitor), self.socket(servers[1].endpoint, monitor),
        ]
        for socket in sockets {
            let events = socket.events
            socket.connect()
            try await self.connection(events)
            monitor.update(self.gone)
            try await self.networkChange(events, isReachable: false)
            try await socket.send(Frame(type: 101, serial: 60))
            monitor.update(self.wifi)
        }
        monitor.update(self.gone)
        try await servers[0].received(1, ofType: 101)
        try await servers[1].received(1, ofType: 101)
        // The server on this machine is reachable without a network.
        let socket = self.socket(servers[1].endpoint, monitor)
        let events = socket.events
        socket.connect()
        try await self.connection(events)
        try await servers[1].connection(1)
    }

    @Test func pathsNameIsWhatTheHeartbeatLearnsUnder() async throws {
        let server = try await MockServer(.drop)
        let storage = Storage()
        let monitor = ManualNetworkMonitor(self.wifi)
        var configuration = SocketConfiguration(servers: [server.endpoint])
        configuration.networkMonitor = monitor
        configuration.heartbeatStorage = storage
        let socket = Socket(configuration: configuration)
        socket.connect()
        try await eventually("the first name") { storage.asked.last == "wifi" }
        monitor.update(NetworkPath(isReachable: true, details: ["another router"]))
        monitor.update(self.cellular)
        try await eventually("the second name") { storage.asked.last == "cellular" }
        #expect(storage.asked == ["", "wifi", "cellular"])
    }

    @Test func monitorIsNoLongerObservedOnceTheSocketIsReleased() async throws {
        let server = try await MockServer(.drop)
        let monitor = ManualNetworkMonitor()
        do {
            let socket = self.socket(server.endpoint, monitor)
            #expect(monitor.observerCount == 0)
            let events = socket.events
            socket.connect()
            try await self.connection(events)
            #expect(monitor.observerCount == 1)
        }
        try await eventually("the end") { monitor.observerCount == 0 }
    }

    @Test func appMaySayItselfWhatTheNetworkIsLike() async throws {
        let server = try await MockServer(.drop)
        var configuration = SocketConfiguration(servers: [server.endpoint.asIfElsewhere])
        configuration.networkMonitor = nil
        let socket = Socket(configuration: configuration)
        let events = socket.events
        try await server.refuseConnections()
        socket.connect()
        _ = try await first(of: events, "a failure") { if case .connectFailed = $0 { true } else { false } }
        socket.networkDidChange(isReachable: false)
        try await self.networkChange(events, isReachable: false)
        try await server.acceptConnections()
        #expect(server.acceptedCount == 0)
        socket.networkDidChange(isReachable: true)
        try await self.connection(events)
    }
}
