// SPDX-License-Identifier: Apache-2.0
import NIOCore
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// The two halves of a link's beats, in virtual time.
@Suite struct BeatsTests {
    private let start = NIODeadline.uptimeNanoseconds(1_000_000_000)

    private func at(_ seconds: Int64) -> NIODeadline { self.start + .seconds(seconds) }

    @Test func ourBeatIsDueAfterOurOwnSilenceAlone() {
        var beats = Beats(ourSilence: .seconds(10), now: self.start)
        #expect(beats.nextTick(now: self.start) == self.at(10))
        beats.bytesSent(now: self.at(4))
        _ = beats.bytesReceived(now: self.at(9))
        #expect(beats.nextTick(now: self.at(9)) == self.at(14))
        #expect(beats.tick(now: self.at(13)) == nil)
        #expect(beats.tick(now: self.at(14)) == .beat)
        // It expects no answer, so the next is due after another silence.
        #expect(beats.tick(now: self.at(20)) == nil)
        #expect(beats.tick(now: self.at(24)) == .beat)
    }

    @Test func peerIsDeadAfterItsSilenceWhateverWeSend() {
        var beats = Beats(ourSilence: .seconds(1), theirSilence: .seconds(5), now: self.start)
        beats.bytesSent(now: self.at(4))
        #expect(beats.tick(now: self.at(5)) == .peerIsDead(silentFor: .seconds(5)))
        _ = beats.bytesReceived(now: self.at(5))
        #expect(beats.tick(now: self.at(9)) == .beat)
        #expect(beats.tick(now: self.at(10)) == .peerIsDead(silentFor: .seconds(5)))
    }

    @Test func whileReadingIsSuspendedNoPeerIsDeadAndBeatsContinue() {
        var beats = Beats(ourSilence: .seconds(2), theirSilence: .seconds(5), now: self.start)
        #expect(beats.setReading(isSuspended: true, now: self.at(1)) == nil)
        #expect(beats.tick(now: self.at(2)) == .beat)
        #expect(beats.tick(now: self.at(100)) == .beat)
        #expect(beats.setReading(isSuspended: false, now: self.at(100)) == nil)
        #expect(beats.tick(now: self.at(104)) == .beat)
        #expect(beats.tick(now: self.at(105)) == .peerIsDead(silentFor: .seconds(5)))
    }

    /// Pings continue as beats that expect no answer.
    @Test func pingsContinueWhileNoAnswerCanBeRead() {
        let policy = HeartbeatPolicy(interval: .seconds(10), replyTimeout: .seconds(3), misses: 0)
        let monitor = HeartbeatMonitor(policy, interval: .seconds(10), canPing: true, now: self.start)
        var beats = Beats(monitor: monitor, now: self.start)
        #expect(beats.tick(now: self.at(10)) == .beat)
        beats.bytesSent(now: self.at(10))
        #expect(beats.setReading(isSuspended: true, now: self.at(11)) == nil)
        #expect(beats.nextTick(now: self.at(11)) == self.at(20))
        #expect(beats.tick(now: self.at(20)) == .beat)
        beats.bytesSent(now: self.at(20))
        #expect(beats.tick(now: self.at(25)) == nil)
        #expect(beats.tick(now: self.at(30)) == .beat)
        #expect(beats.setReading(isSuspended: false, now: self.at(31)) == nil)
        // Once reading resumes, an answer is required again.
        #expect(beats.tick(now: self.at(41)) == .beat)
        #expect(beats.tick(now: self.at(44)) == .peerIsDead(silentFor: .seconds(13)))
    }

    @Test func pausedTheyStandStill() {
        var beats = Beats(ourSilence: .seconds(2), theirSilence: .seconds(5), now: self.start)
        beats.change(.pause, now: self.at(1))
        #expect(beats.nextTick(now: self.at(1)) == .distantFuture)
        #expect(beats.tick(now: self.at(50)) == nil)
        beats.change(.resume, now: self.at(50))
        #expect(beats.tick(now: self.at(50)) == .beat)
        #expect(beats.tick(now: self.at(55)) == .peerIsDead(silentFor: .seconds(5)))
    }

    @Test func beatThatCannotBeMadeIsSkipped() {
        let policy = HeartbeatPolicy(interval: .seconds(10), replyTimeout: .seconds(3), misses: 0)
        let monitor = HeartbeatMonitor(policy, interval: .seconds(10), canPing: true, now: self.start)
        var beats = Beats(monitor: monitor, now: self.start)
        #expect(beats.tick(now: self.at(10)) == .beat)
        beats.beatWasSkipped(now: self.at(10))
        // No answer was requested, so its absence proves nothing.
        #expect(beats.tick(now: self.at(19)) == nil)
        #expect(beats.tick(now: self.at(20)) == .beat)
    }

    @Test func firstBeatWaitsForNothing() {
        var beats = Beats(ourSilence: .seconds(10), now: self.start)
        #expect(beats.first(now: self.start) == .beat)
        #expect(beats.nextTick(now: self.start) == self.at(10))
        // The answer of a ping is awaited immediately.
        let policy = HeartbeatPolicy(interval: .seconds(10), replyTimeout: .seconds(3), misses: 0)
        let monitor = HeartbeatMonitor(policy, interval: .seconds(10), canPing: true, now: self.start)
        var pings = Beats(monitor: monitor, now: self.start)
        #expect(pings.first(now: self.start) == .beat)
        #expect(pings.tick(now: self.at(3)) == .peerIsDead(silentFor: .seconds(3)))
        // No beats are sent if only the peer pings, or neither side does.
        let expecting = HeartbeatMonitor(policy, interval: .seconds(10), canPing: false, now: self.start)
        var theirs = Beats(monitor: expecting, now: self.start)
        #expect(theirs.first(now: self.start) == nil)
        var silent = Beats(theirSilence: .seconds(5), now: self.start)
        #expect(silent.first(now: self.start) == nil)
    }

    @Test func intervalOfBeatsThatExpectNothingChanges() {
        var beats = Beats(ourSilence: .seconds(60), now: self.start)
        beats.change(.interval(.seconds(600)), now: self.at(1))
        #expect(beats.nextTick(now: self.at(1)) == self.at(600))
        beats.change(.interval(.seconds(60)), now: self.at(100))
        #expect(beats.tick(now: self.at(100)) == .beat)
        // Without such beats there is nothing to change.
        var silent = Beats(theirSilence: .seconds(5), now: self.start)
        silent.change(.interval(.seconds(1)), now: self.start)
        #expect(silent.nextTick(now: self.start) == self.at(5))
    }

    /// A peer that sends beats by itself does not depend on ours.
    @Test func peerThatTakesNothingAndSendsNothingIsDead() {
        var beats = Beats(ourSilence: .seconds(2), theirSilence: .seconds(5), now: self.start)
        beats.writeIsBlocked(now: self.start + .seconds(4), isReading: true)
        #expect(beats.tick(now: self.start + .seconds(5)) == .peerIsDead(silentFor: .seconds(5)))
    }

    @Test func peerThatIsNotReadIsNotDead() {
        var beats = Beats(theirSilence: .seconds(5), now: self.start)
        beats.writeIsBlocked(now: self.start + .seconds(4), isReading: false)
        #expect(beats.tick(now: self.start + .seconds(8)) == nil)
        #expect(beats.tick(now: self.start + .seconds(9)) == .peerIsDead(silentFor: .seconds(5)))
    }
}

/// The waiting line of work that no link has begun.
@Suite struct WaitingLineTests {
    @Test func returnedUnitPrecedesItsEquals() {
        var line = WaitingLine<String>(maximumCount: 5, maximumBytes: 100)
        line.append("new", .default, cost: 10)
        line.append("urgent", .high, cost: 10)
        line.append("back", .default, cost: 10, isReturning: true)
        #expect(line.count == 3)
        #expect(line.bytes == 30)
        var order: [String] = []
        while let next = line.popFirst(unless: { _ in false }) { order.append(next) }
        #expect(order == ["urgent", "back", "new"])
        #expect(line.isEmpty)
        #expect(line.bytes == 0)
    }

    @Test func itIsBoundedAndOneOfAnySizeMayWait() {
        var line = WaitingLine<Int>(maximumCount: 2, maximumBytes: 100)
        #expect(line.hasRoom(for: 1_000))
        line.append(1, .default, cost: 1_000)
        #expect(!line.hasRoom(for: 1))
        _ = line.popFirst(unless: { _ in false })
        line.append(1, .default, cost: 50)
        #expect(line.hasRoom(for: 50))
        #expect(!line.hasRoom(for: 51))
        line.append(2, .default, cost: 1)
        #expect(!line.hasRoom(for: 1))
    }

    @Test func stubsCostNothingForLong() {
        var line = WaitingLine<Int>()
        for number in 0..<1_000 { line.append(number, .default, cost: 1) }
        for _ in 0..<900 { line.makeStub(cost: 1) { $0 < 900 } }
        #expect(line.count == 100)
        #expect(line.length <= 2 * 100 + 64)
        #expect(line.popFirst(unless: { $0 < 900 }) == 900)
        #expect(line.popFirst(where: { $0 > 1 }, unless: { $0 < 900 }) == nil)
        #expect(line.bytes == 99)
    }
}
