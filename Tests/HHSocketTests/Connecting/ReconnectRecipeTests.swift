// SPDX-License-Identifier: Apache-2.0
import NIOCore
import TestSupport
import Testing

@testable import HHSocket

/// Common ways for apps to reconnect, in virtual time: waits that double from 2 s to 1,024 s and then stop, or to 64 s
/// and then stop; each opening resets the count; stopped attempts start over on request, with the first attempt
/// immediately. And their heartbeats: a ping every 10 s, or a message every three minutes, since address translators
/// forget an idle connection after five.
@Suite struct ReconnectRecipeTests {
    private let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    private func machine(_ backoff: Backoff) -> Machine {
        var settings = Machine.Settings()
        settings.backoff = backoff
        return Machine(servers: [serverA], settings: settings, generator: SeededGenerator(seed: 1))
    }

    private static let long = Backoff(base: .seconds(2), cap: .seconds(1024), jitter: 0, maximumRounds: 10)
    private static let short = Backoff(base: .seconds(2), cap: .seconds(64), jitter: 0, maximumRounds: 5)

    private func seconds(_ range: ClosedRange<Int>) -> [Duration] { range.map { .seconds(1 << $0) } }

    @Test func waitsDoubleToTheCapAfterALossAndThenStop() {
        for (backoff, waits) in [(Self.long, self.seconds(1...10)), (Self.short, self.seconds(1...5))] {
            var machine = self.machine(backoff)
            _ = machine.connect(now: self.start)
            _ = machine.connected(ConnectionID(number: 1), now: self.start)
            _ = machine.connectionLost(ConnectionID(number: 1), because: lostError, now: self.start + .seconds(60))
            #expect(machine.waitsUntilItGivesUp(from: self.start + .seconds(60)) == waits)
            #expect(machine.state.description == "closed" && machine.hasRunOut)
        }
    }

    @Test func firstAttemptOfAConnectIsMadeAtOnce() {
        var machine = self.machine(Self.long)
        #expect(machine.connect(now: self.start).texts.last == "open 1 a:1")
        // Ten attempts, and nine waits between them.
        #expect(machine.waitsUntilItGivesUp(from: self.start) == self.seconds(1...9))
        #expect(machine.hasRunOut)
    }

    @Test func waitsWithJitterAreNeverLonger() {
        var backoff = Self.long
        backoff.jitter = 1
        for seed in 0..<20 as Range<UInt64> {
            var settings = Machine.Settings()
            settings.backoff = backoff
            var machine = Machine(servers: [serverA], settings: settings, generator: SeededGenerator(seed: seed))
            _ = machine.connect(now: self.start)
            let waits = machine.waitsUntilItGivesUp(from: self.start)
            #expect(waits.count == 9)
            #expect(zip(waits, self.seconds(1...9)).allSatisfy { $0 <= $1 })
        }
    }

    @Test func countStartsOverWithEachOpening() {
        var machine = self.machine(Self.short)
        var now = self.start
        _ = machine.connect(now: now)
        // Hundreds of losses, each after all attempts but the last have failed.
        for _ in 0..<100 {
            for _ in 0..<4 {
                _ = machine.connectFailed(ConnectionID(number: machine.nextID - 1), because: refused(serverA), now: now)
                #expect(!machine.hasRunOut)
                now = machine.nextDeadline ?? now
                _ = machine.timerFired(now: now)
            }
            let id = ConnectionID(number: machine.nextID - 1)
            #expect(machine.connected(id, now: now).texts.last == "report connected to a:1")
            now = now + .seconds(60)
            _ = machine.connectionLost(id, because: lostError, now: now)
            // The connection has lasted, so the back-off starts over too.
            #expect(machine.nextDeadline == now + .seconds(2))
            now = machine.nextDeadline ?? now
            #expect(machine.timerFired(now: now).texts.last?.hasPrefix("open ") == true)
        }
    }

    @Test(arguments: [nil, 3]) func exhaustedAttemptsStartOverWithTheFullNumber(attempts: Int?) {
        var machine = self.machine(Self.short)
        _ = machine.connect(attempts: attempts, now: self.start)
        let waits = machine.waitsUntilItGivesUp(from: self.start)
        #expect(waits == self.seconds(1...((attempts ?? 5) - 1)))
        for round in 1...3 {
            let now = self.start + .hours(Int64(round))
            #expect(machine.hasRunOut)
            #expect(machine.connectAgain(now: now).texts.last?.hasPrefix("open ") == true)
            #expect(!machine.hasRunOut)
            // During the attempt no second one is begun.
            #expect(machine.connectAgain(now: now).isEmpty)
            #expect(machine.waitsUntilItGivesUp(from: now) == waits)
        }
    }

    @Test func onlyExhaustedAttemptsStartOver() {
        var idle = self.machine(Self.short)
        #expect(idle.connectAgain(now: self.start).isEmpty)
        // The user's close, also after exhausted attempts.
        var machine = self.machine(Self.short)
        _ = machine.connect(now: self.start)
        _ = machine.waitsUntilItGivesUp(from: self.start)
        _ = machine.disconnect(now: self.start)
        #expect(machine.connectAgain(now: self.start).isEmpty)
        #expect(machine.state.description == "closed")
        // A verdict of the server.
        var sentAway = self.machine(Self.short)
        _ = sentAway.connect(now: self.start)
        _ = sentAway.connected(ConnectionID(number: 1), now: self.start)
        _ = sentAway.connectionLost(
            ConnectionID(number: 1),
            because: lostError,
            verdict: EndVerdict(.never),
            now: self.start
        )
        #expect(sentAway.state.description == "closed")
        #expect(sentAway.connectAgain(now: self.start).isEmpty)
    }

    // MARK: Heartbeats

    /// The times of the first pings, in seconds, of an otherwise idle link.
    private func pings(every interval: Duration, answeredAfter delay: TimeAmount) -> [Int64] {
        let policy = HeartbeatPolicy(interval: interval)
        var monitor = HeartbeatMonitor(policy, interval: interval, canPing: true, now: self.start)
        var times: [Int64] = []
        while times.count < 5 {
            let now = monitor.nextDeadline
            switch monitor.tick(now: now) {
            case .ping:
                times.append((now - self.start).nanoseconds / 1_000_000_000)
                monitor.bytesSent(now: now)
                monitor.bytesReceived(now: now + delay)
            case .peerIsDead: return times
            case nil: break
            }
        }
        return times
    }

    @Test func oneHeartbeatEveryTenSecondsOrThreeMinutes() {
        #expect(self.pings(every: .seconds(10), answeredAfter: .milliseconds(50)) == [10, 20, 30, 40, 50])
        #expect(self.pings(every: .seconds(180), answeredAfter: .milliseconds(50)) == [180, 360, 540, 720, 900])
    }

    @Test func messageThatIsNeverAnsweredIsSentAtTheSamePaceWhereMissesAreNotCounted() {
        let policy = HeartbeatPolicy(interval: .seconds(180), replyTimeout: .seconds(180), misses: .max)
        var monitor = HeartbeatMonitor(policy, interval: .seconds(180), canPing: true, now: self.start)
        for number in 1...100 as ClosedRange<Int64> {
            let due = self.start + .seconds(180 * number)
            #expect(monitor.nextDeadline == due)
            #expect(monitor.tick(now: due) == .ping)
            monitor.bytesSent(now: due)
        }
    }
}
