import Foundation
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocket

/// The examples of `Docs/Heartbeats.md`, word for word.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct HeartbeatGuideTests {
    @Test func everyExampleOfThePageIsInThisFile() throws {
        let source = try String(contentsOfFile: #filePath, encoding: .utf8)
        #expect(try DocumentationPage("Docs/Heartbeats.md").examples(missingFrom: source) == [])
    }

    /// A connection on which nothing comes: how many seconds after its last byte we ping, and when it is dead.
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
                // A strategy of hours would be wrong, and is not waited for.
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

    @Test func recipesDoWhatIsSaidOfThem() async throws {
        let server = try await MockServer(.echo)
        var configuration = Assignments(servers: [server.endpoint])
        let usual = try #require(configuration.heartbeat)

        // A ping every 10 s: a dead link is noticed after 10 + 2 × 8 s.
        configuration.heartbeat = HeartbeatPolicy(interval: .seconds(10))

        // A text every 60 s, for a server that wants to read one.
        configuration.heartbeat = HeartbeatPolicy(interval: .seconds(60), payload: ByteBuffer(string: "alive"))

        // Every 180 s, where the network is known to forget idle connections after 5 minutes.
        configuration.heartbeat = HeartbeatPolicy(interval: .seconds(180))

        // Every 60 s while the app is active, every 600 s in the background.
        configuration.heartbeat = HeartbeatPolicy(strategy: .fixed(.seconds(60), inBackground: .seconds(600)))

        // As seldom as the network of the moment allows.
        configuration.heartbeat = HeartbeatPolicy(strategy: .adaptive())

        // The server pings every 60 s, and we only answer.
        configuration.heartbeat = HeartbeatPolicy(interval: .seconds(60), mode: .expectPings)

        // Nobody pings. A server's pings are answered all the same.
        configuration.heartbeat = nil

        let policies = configuration.made.map(\.heartbeat)
        try #require(policies.count == 7)
        let active = HeartbeatHistory(isApplicationActive: true)
        let background = HeartbeatHistory()
        /// What each does on a dead link.
        func silence(_ index: Int, _ history: HeartbeatHistory) throws -> Silence {
            try Silence(try #require(policies[index]), history)
        }
        #expect(try Silence(usual, background) == Silence(pings: [60, 68], death: 76))
        #expect(try silence(0, background) == Silence(pings: [10, 18], death: 10 + 2 * 8))
        #expect(try silence(1, background) == Silence(pings: [60, 68], death: 76))
        #expect(policies[1]?.payload == ByteBuffer(string: "alive"))
        #expect(try silence(2, background) == Silence(pings: [180, 188], death: 196))
        #expect(try silence(3, active) == Silence(pings: [60, 68], death: 76))
        #expect(try silence(3, background) == Silence(pings: [600, 608], death: 616))
        #expect(try silence(4, active) == Silence(pings: [210, 218], death: 226))
        let good = HeartbeatHistory(runs: [.init(interval: .seconds(210), isAnswered: true, count: 3)])
        #expect(try silence(4, good) == Silence(pings: [270, 278], death: 286))
        #expect(try silence(5, background) == Silence(pings: [], death: 76))

        #expect(policies[6] == nil)
        server.onConnect(.ping(serial: 5))
        let socket = Socket(configuration: configuration.made[6])
        socket.connect()
        let answer = try await server.received(1)[0].frame
        #expect(answer == Frame(type: FrameType.heartbeat, serial: 5))
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
