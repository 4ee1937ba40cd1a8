// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketRPC
import HHSocketTesting
import TestSupport
import Testing

@testable import HHSocket

/// The examples of `Heartbeats.md`, word for word.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct HeartbeatGuideTests {
    @Test func everyExampleOfThePageIsInThisFile() throws {
        #expect(try DocumentationPage(guide: "Heartbeats").shortcomings(allowing: ["HHSocket"]) == [])
    }

    /// A connection without received bytes: the seconds after its last byte at which we ping, and at which it is dead.
    private struct Silence: Equatable {
        var pings: [Int64] = []
        var death: Int64 = 0

        init(pings: [Int64], death: Int64) {
            (self.pings, self.death) = (pings, death)
        }

        init(_ policy: HeartbeatPolicy, _ history: HeartbeatHistory) throws {
            let start = NIODeadline.uptimeNanoseconds(1_000_000_000)
            var now = start
            let interval = policy.interval.interval(for: history)
            var monitor = HeartbeatMonitor(policy, interval: interval, canPing: true, now: start)
            while true {
                // A strategy of hours would be wrong, so the test does not wait for it.
                try #require(now - start < .hours(1))
                now = monitor.nextTick(now: now)
                switch monitor.tick(now: now) {
                case .ping:
                    self.pings.append((now - start).nanoseconds / 1_000_000_000)
                    monitor.bytesSent(now: now)
                case .peerIsDead:
                    self.death = (now - start).nanoseconds / 1_000_000_000
                    return
                case nil:
                    break
                }
            }
        }
    }

    @Test func recipesWorkAsDescribed() async throws {
        let server = try await MockServer(.echo)
        var configuration = Assignments(servers: [server.endpoint])
        let usual = try #require(configuration.socket.heartbeat)

        // A ping every 10 s: a dead link is detected after 10 + 2 × 8 s.
        configuration.socket.heartbeat = HeartbeatPolicy(interval: .seconds(10))

        // A text every 60 s, for a server that wants to read one.
        configuration.socket.heartbeat = HeartbeatPolicy(interval: .seconds(60), payload: ByteBuffer(string: "alive"))

        // Every 180 s, where the network is known to forget idle connections after 5 minutes.
        configuration.socket.heartbeat = HeartbeatPolicy(interval: .seconds(180))

        // Only the server pings, every 60 s; the client answers.
        configuration.socket.heartbeat = HeartbeatPolicy(interval: .seconds(60), mode: .expectPings)

        // Neither side is expected to ping. A server's pings are answered all the same.
        configuration.socket.heartbeat = nil

        let policies = configuration.made.map(\.heartbeat)
        try #require(policies.count == 5)
        let background = HeartbeatHistory()
        /// The behaviour of each policy on a dead link.
        func silence(_ index: Int, _ history: HeartbeatHistory) throws -> Silence {
            try Silence(try #require(policies[index]), history)
        }
        #expect(try Silence(usual, background) == Silence(pings: [60, 68], death: 76))
        #expect(try silence(0, background) == Silence(pings: [10, 18], death: 10 + 2 * 8))
        #expect(try silence(1, background) == Silence(pings: [60, 68], death: 76))
        #expect(policies[1]?.payload == ByteBuffer(string: "alive"))
        #expect(try silence(2, background) == Silence(pings: [180, 188], death: 196))
        #expect(try silence(3, background) == Silence(pings: [], death: 76))

        #expect(policies[4] == nil)
        server.onOpen(.ping(serial: 5))
        let socket = Socket(configuration: configuration.made[4])
        socket.connect()
        let answer = try await server.received(1)[0].frame
        #expect(answer == Frame(type: FrameType.heartbeat, serial: 5))
    }

    @Test func dateIsMadeForEachPing() throws {
        var configuration = Assignments()
        var heartbeat = HeartbeatPolicy(interval: .seconds(60))
        heartbeat.makePayload = { ByteBuffer(string: Date().ISO8601Format()) }
        configuration.socket.heartbeat = heartbeat

        let policy = try #require(configuration.made.last?.heartbeat)
        #expect(try Silence(policy, HeartbeatHistory()) == Silence(pings: [60, 68], death: 76))
        let text = String(buffer: try policy.beat(limit: 64))
        let date = try Date(text, strategy: .iso8601)
        #expect(abs(date.timeIntervalSinceNow) < 60, "\(text)")
    }

    @Test func intervalsOfTheBackground() throws {
        var configuration = Assignments()
        configuration.socket.backgroundPolicy = .keepConnected

        // Every 60 s while the app is active, every 540 s in the background.
        configuration.socket.heartbeat = HeartbeatPolicy(strategy: .fixed(.seconds(60), inBackground: .seconds(540)))

        // Every 210 s while the app is active, in the background as seldom as the network of the moment allows.
        configuration.socket.heartbeat = HeartbeatPolicy(strategy: .adaptive())

        try #require(configuration.made.count == 3)
        #expect(configuration.made.allSatisfy { $0.backgroundPolicy == .keepConnected })
        let (fixed, adaptive) = (configuration.made[1].heartbeat, configuration.made[2].heartbeat)
        let active = HeartbeatHistory(isApplicationActive: true)
        #expect(try Silence(#require(fixed), active) == Silence(pings: [60, 68], death: 76))
        #expect(try Silence(#require(fixed), HeartbeatHistory()) == Silence(pings: [540, 548], death: 556))
        var good = HeartbeatHistory(runs: [.init(interval: .seconds(210), isAnswered: true, count: 3)])
        #expect(try Silence(#require(adaptive), good) == Silence(pings: [270, 278], death: 286))
        good.isApplicationActive = true
        #expect(try Silence(#require(adaptive), good) == Silence(pings: [210, 218], death: 226))
    }

    /// The statement of the page about the background: by default an app in the background sends no pings, with the
    /// policy of the recipe it does.
    @Test(arguments: [BackgroundPolicy.finishTasks, .keepConnected])
    func pingsInTheBackground(policy: BackgroundPolicy) throws {
        #expect(SocketClient.Configuration(servers: []).socket.backgroundPolicy == .finishTasks)
        let now = NIODeadline.uptimeNanoseconds(1_000_000_000)
        let settings = Machine.Settings(background: policy)
        var machine = Machine(servers: [serverA], settings: settings, generator: SeededGenerator(seed: 1))
        _ = machine.connect(now: now)
        _ = machine.connected(ConnectionID(number: 1), now: now)
        let actions = machine.didEnterBackground(now: now)
        let isPaused = actions.contains { if case .paceHeartbeat(_, isPaused: true) = $0 { true } else { false } }
        #expect(isPaused == (policy == .finishTasks))
    }

    @Test func strategyIsAFunctionOfTheHistory() {
        // Twice as often after anything went wrong lately.
        let strategy = CustomHeartbeat { history in
            history.runs.suffix(3).allSatisfy(\.isAnswered) ? .seconds(120) : .seconds(60)
        }

        var history = HeartbeatHistory()
        #expect(strategy.interval(for: history) == .seconds(120))
        history.record(interval: .seconds(120), isAnswered: false)
        #expect(strategy.interval(for: history) == .seconds(60))
        // Three runs of other outcomes later that is long ago.
        for interval in [60, 61, 62] { history.record(interval: .seconds(interval), isAnswered: true) }
        #expect(strategy.interval(for: history) == .seconds(120))
    }
}
