// SPDX-License-Identifier: Apache-2.0
import NIOCore
import Testing

@testable import HHSocket
@testable import HHSocketLink

@Suite struct HeartbeatMonitorTests {
    static let policy = HeartbeatPolicy(interval: .seconds(10), replyTimeout: .seconds(3), misses: 1)
    let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    private func at(_ seconds: Int64) -> NIODeadline { self.start + .seconds(seconds) }

    private func monitor(_ policy: HeartbeatPolicy = Self.policy, canPing: Bool = true) -> HeartbeatMonitor {
        HeartbeatMonitor(
            policy,
            interval: policy.interval.interval(for: HeartbeatHistory()),
            canPing: canPing,
            now: self.start
        )
    }

    @Test func pingIsDueAfterTheIntervalOfSilence() {
        var monitor = self.monitor()
        #expect(monitor.nextDeadline == self.at(10))
        #expect(monitor.tick(now: self.at(9)) == nil)
        #expect(monitor.tick(now: self.at(10)) == .ping)
        #expect(monitor.awaitsReply)
    }

    /// While a machine sleeps, the network forgets its connections regardless of the interval.
    @Test func sleepTeachesNothingAboutTheInterval() {
        for (slept, teaches) in [(Duration.zero, true), (.seconds(3_600), false)] {
            var monitor = self.monitor()
            // By the clock of the event loop, which stands still while the machine sleeps.
            #expect(monitor.tick(now: self.at(10), slept: slept) == .ping)
            monitor.bytesSent(now: self.at(10))
            #expect(monitor.connectionLost()?.testedInterval == (teaches ? .seconds(10) : nil))
        }
    }

    @Test func sendingAloneDoesNotPutThePingOff() {
        var monitor = self.monitor()
        for second in 1...9 { monitor.bytesSent(now: self.at(Int64(second))) }
        #expect(monitor.tick(now: self.at(10)) == .ping)
    }

    @Test func receivingAloneDoesNotPutThePingOff() {
        var monitor = self.monitor()
        for second in 1...9 { monitor.bytesReceived(now: self.at(Int64(second))) }
        #expect(monitor.tick(now: self.at(10)) == .ping)
    }

    @Test func trafficBothWaysPutsThePingOff() {
        var monitor = self.monitor()
        monitor.bytesSent(now: self.at(6))
        monitor.bytesReceived(now: self.at(7))
        #expect(monitor.tick(now: self.at(10)) == nil)
        #expect(monitor.nextDeadline == self.at(16))
    }

    @Test func anyByteAnswersAPing() {
        var monitor = self.monitor()
        #expect(monitor.tick(now: self.at(10)) == .ping)
        monitor.bytesSent(now: self.at(10))
        monitor.bytesReceived(now: self.at(12))
        #expect(!monitor.awaitsReply)
        #expect(monitor.tick(now: self.at(13)) == nil)
        #expect(monitor.nextDeadline == self.at(20))
    }

    @Test(arguments: 0...3)
    func peerIsDeadAfterOneMoreThanTheAllowedMisses(misses: Int) {
        let policy = HeartbeatPolicy(interval: .seconds(10), replyTimeout: .seconds(3), misses: misses)
        var monitor = self.monitor(policy)
        var now = self.at(10)
        for _ in 0...misses {
            #expect(monitor.tick(now: now) == .ping)
            monitor.bytesSent(now: now)
            now = now + .seconds(3)
        }
        #expect(monitor.tick(now: now) == .peerIsDead(silentFor: now - self.start))
        #expect(now == self.at(10 + 3 * Int64(misses + 1)))
    }

    @Test func clockStandsStillWhileOurBytesCannotBeSent() {
        var monitor = self.monitor()
        #expect(monitor.tick(now: self.at(10)) == .ping)
        monitor.writeIsBlocked(now: self.at(13))
        #expect(monitor.tick(now: self.at(13)) == nil)
        monitor.writeIsBlocked(now: self.at(16))
        #expect(monitor.tick(now: self.at(16)) == nil)
        #expect(monitor.tick(now: self.at(19)) == .ping)
    }

    @Test func absurdPoliciesDoNotTrap() {
        let policy = HeartbeatPolicy(interval: .seconds(Int64.max), replyTimeout: .seconds(-1), misses: -5)
        var monitor = self.monitor(policy)
        #expect(monitor.nextDeadline == .distantFuture)
        #expect(monitor.tick(now: self.at(1_000_000)) == nil)
        monitor.setInterval(.seconds(-1))
        #expect(monitor.tick(now: self.at(1_000_000)) == .ping)
        let deaf = HeartbeatPolicy(
            interval: .seconds(Int64.max),
            replyTimeout: .seconds(Int64.max),
            misses: .max,
            mode: .expectPings
        )
        monitor = self.monitor(deaf)
        #expect(monitor.nextDeadline == .distantFuture)
        #expect(monitor.tick(now: self.at(1_000_000)) == nil)
    }

    @Test func changedIntervalCountsFromTheSameBytes() {
        var monitor = self.monitor()
        monitor.setInterval(.seconds(30))
        #expect(monitor.tick(now: self.at(29)) == nil)
        monitor.setInterval(.seconds(20))
        #expect(monitor.tick(now: self.at(29)) == .ping)
        monitor.setInterval(.seconds(1))
        #expect(monitor.nextDeadline == self.at(32))
    }

    // MARK: Packets that are swallowed

    /// Runs the monitor by its own deadlines until it considers the silent peer dead.
    private func death(of monitor: inout HeartbeatMonitor, sending: Bool = false) -> NIODeadline? {
        var now = self.start
        for _ in 0..<1_000 {
            if sending { monitor.bytesSent(now: now) }
            now = max(now, monitor.nextTick(now: now))
            switch monitor.tick(now: now) {
            case .ping: monitor.bytesSent(now: now)
            case .peerIsDead(let silence):
                #expect(silence == now - self.start)
                return now
            case nil: break
            }
        }
        return nil
    }

    @Test(arguments: [HeartbeatPolicy.Mode.ping, .expectPings], 0...3)
    func deadLinkIsNoticedInTheStatedTimeWhoeverPings(mode: HeartbeatPolicy.Mode, misses: Int) {
        for interval in [1, 10, 180] as [Int64] {
            let policy = HeartbeatPolicy(
                interval: .seconds(interval),
                replyTimeout: .seconds(8),
                misses: misses,
                mode: mode
            )
            let stated = self.at(interval + 8 * Int64(misses + 1))
            for sending in [false, true] {
                var monitor = self.monitor(policy)
                #expect(self.death(of: &monitor, sending: sending) == stated)
            }
        }
    }

    // MARK: Pings of the peer

    @Test func peerThatShouldPingIsNeverPingedAndLivesAsLongAsItDoes() {
        var policy = Self.policy
        policy.mode = .expectPings
        var monitor = self.monitor(policy)
        for ping in 1...5 {
            #expect(monitor.tick(now: self.at(Int64(ping) * 15)) == nil)
            #expect(monitor.bytesReceived(now: self.at(Int64(ping) * 15)) == nil)
            #expect(!monitor.awaitsReply)
        }
        #expect(monitor.nextDeadline == self.at(75 + 16))
        #expect(monitor.tick(now: self.at(90)) == nil)
        #expect(monitor.tick(now: self.at(91)) == .peerIsDead(silentFor: .seconds(16)))
        #expect(monitor.connectionLost() == nil)
    }

    @Test func formatInWhichWeCannotPingExpectsPings() {
        var monitor = self.monitor(canPing: false)
        #expect(monitor.nextDeadline == self.at(16))
        #expect(monitor.probe(now: self.at(5)) == nil)
        #expect(!monitor.awaitsReply)
        #expect(monitor.probe(now: self.at(16), misses: 0) == .peerIsDead(silentFor: .seconds(16)))
    }

    @Test func silenceOfAPeerThatShouldPingStandsStillWhileOurBytesCannotBeSent() {
        var monitor = self.monitor(canPing: false)
        monitor.writeIsBlocked(now: self.at(15))
        #expect(monitor.tick(now: self.at(16)) == nil)
        #expect(monitor.nextDeadline == self.at(31))
    }

    // MARK: Probes

    @Test func probePingsAtOnceAndThenTheUsualRuleApplies() {
        var monitor = self.monitor()
        #expect(monitor.probe(now: self.at(4)) == .ping)
        monitor.bytesSent(now: self.at(4))
        #expect(monitor.nextDeadline == self.at(7))
        #expect(monitor.tick(now: self.at(7)) == .ping)
        #expect(monitor.tick(now: self.at(10)) == .peerIsDead(silentFor: .seconds(10)))
    }

    @Test func probeOfTheForegroundAllowsNoMissAndOnlyThatOne() {
        var monitor = self.monitor()
        #expect(monitor.probe(now: self.at(4), misses: 0) == .ping)
        #expect(monitor.tick(now: self.at(7)) == .peerIsDead(silentFor: .seconds(7)))

        monitor = self.monitor()
        #expect(monitor.probe(now: self.at(4), misses: 0) == .ping)
        monitor.bytesSent(now: self.at(4))
        #expect(monitor.bytesReceived(now: self.at(5))?.isAnswered == true)
        #expect(monitor.tick(now: self.at(14)) == .ping)
        #expect(monitor.tick(now: self.at(17)) == .ping)
        #expect(monitor.tick(now: self.at(20)) == .peerIsDead(silentFor: .seconds(15)))
    }

    @Test func pingThatWaitsForItsAnswerIsTheProbe() {
        var monitor = self.monitor()
        #expect(monitor.tick(now: self.at(10)) == .ping)
        #expect(monitor.probe(now: self.at(11)) == nil)
        #expect(monitor.probe(now: self.at(11), misses: 7) == nil)
        #expect(monitor.nextDeadline == self.at(13))
        #expect(monitor.probe(now: self.at(12), misses: 0) == nil)
        #expect(monitor.tick(now: self.at(13)) == .peerIsDead(silentFor: .seconds(13)))
    }

    // MARK: Pausing

    @Test func pausedMonitorNeitherPingsNorKills() {
        var monitor = self.monitor()
        #expect(monitor.tick(now: self.at(10)) == .ping)
        monitor.pause()
        #expect(!monitor.awaitsReply)
        #expect(monitor.nextDeadline == .distantFuture)
        #expect(monitor.nextTick(now: self.at(10)) == .distantFuture)
        #expect(monitor.tick(now: self.at(1_000)) == nil)
        #expect(monitor.probe(now: self.at(1_000)) == nil)
        #expect(monitor.connectionLost() == nil)
        monitor.resume(now: self.at(1_000))
        #expect(monitor.tick(now: self.at(1_000)) == .ping)
        #expect(monitor.nextDeadline == self.at(1_003))
    }

    @Test func peerThatShouldPingHasItsWholeTimeAfterAPause() {
        var monitor = self.monitor(canPing: false)
        monitor.pause()
        #expect(monitor.tick(now: self.at(1_000)) == nil)
        monitor.resume(now: self.at(1_000))
        #expect(monitor.nextDeadline == self.at(1_016))
        monitor.resume(now: self.at(1_010))
        #expect(monitor.tick(now: self.at(1_016)) == .peerIsDead(silentFor: .seconds(1_016)))
    }

    // MARK: Suspended reading

    @Test func monitorOfASuspendedReaderNeitherPingsNorKills() {
        for canPing in [true, false] {
            var monitor = self.monitor(canPing: canPing)
            monitor.suspendReading()
            #expect(monitor.nextDeadline == .distantFuture)
            #expect(monitor.nextTick(now: self.at(10)) == .distantFuture)
            #expect(monitor.tick(now: self.at(1_000)) == nil)
            #expect(monitor.resumeReading(now: self.at(1_000)) == nil)
        }
    }

    @Test func pingThatWaitsForItsAnswerIsForgottenWhenReadingIsSuspended() {
        var monitor = self.monitor()
        #expect(monitor.tick(now: self.at(10)) == .ping)
        monitor.suspendReading()
        #expect(!monitor.awaitsReply)
        #expect(monitor.connectionLost() == nil)
    }

    @Test func pingIsDueAfterSuspendedReadingAndShowsNothingAboutTheInterval() {
        var monitor = self.monitor()
        monitor.bytesSent(now: self.at(1))
        monitor.suspendReading()
        #expect(monitor.resumeReading(now: self.at(12)) == nil)
        #expect(monitor.nextDeadline == self.at(11))
        #expect(monitor.tick(now: self.at(12)) == .ping)
        monitor.bytesSent(now: self.at(12))
        #expect(monitor.bytesReceived(now: self.at(13)) == .init(isAnswered: true, roundTripTime: .seconds(1)))
        // A short pause does not affect a sent ping.
        monitor.suspendReading()
        #expect(monitor.resumeReading(now: self.at(14)) == nil)
        #expect(monitor.nextDeadline == self.at(22))
    }

    @Test func peerThatShouldPingHasItsWholeTimeAfterSuspendedReading() {
        var monitor = self.monitor(canPing: false)
        monitor.suspendReading()
        _ = monitor.resumeReading(now: self.at(1_000))
        #expect(monitor.tick(now: self.at(1_015)) == nil)
        #expect(monitor.nextDeadline == self.at(1_016))
    }

    @Test func probeOfASuspendedReaderIsMadeWhenItContinues() {
        var monitor = self.monitor()
        monitor.suspendReading()
        #expect(monitor.probe(now: self.at(1)) == nil)
        #expect(monitor.probe(now: self.at(2), misses: 0) == nil)
        #expect(monitor.probe(now: self.at(3), misses: 5) == nil)
        #expect(monitor.resumeReading(now: self.at(4)) == .ping)
        #expect(monitor.tick(now: self.at(7)) == .peerIsDead(silentFor: .seconds(3)))
        // The answer counts once.
        monitor = self.monitor()
        monitor.suspendReading()
        _ = monitor.probe(now: self.at(1))
        #expect(monitor.resumeReading(now: self.at(2)) == .ping)
        monitor.suspendReading()
        #expect(monitor.resumeReading(now: self.at(3)) == nil)
        // Without our own pings no probe is possible.
        monitor = self.monitor(canPing: false)
        monitor.suspendReading()
        #expect(monitor.probe(now: self.at(1_000), misses: 0) == nil)
        #expect(monitor.resumeReading(now: self.at(1_000)) == nil)
    }

    @Test func backgroundAndSuspendedReadingDoNotUndoEachOther() {
        for readerIsFirst in [true, false] {
            var monitor = self.monitor()
            monitor.suspendReading()
            monitor.pause()
            if readerIsFirst {
                #expect(monitor.resumeReading(now: self.at(100)) == nil)
            } else {
                monitor.resume(now: self.at(100))
            }
            #expect(monitor.nextDeadline == .distantFuture)
            #expect(monitor.tick(now: self.at(1_000)) == nil)
            if readerIsFirst {
                monitor.resume(now: self.at(1_000))
            } else {
                #expect(monitor.resumeReading(now: self.at(1_000)) == nil)
            }
            #expect(monitor.tick(now: self.at(1_000)) == .ping)
        }
        // The app returns, and probes the peer, while reading is suspended.
        var monitor = self.monitor()
        monitor.pause()
        monitor.suspendReading()
        monitor.resume(now: self.at(100))
        #expect(monitor.probe(now: self.at(100), misses: 0) == nil)
        #expect(monitor.resumeReading(now: self.at(200)) == .ping)
        #expect(monitor.tick(now: self.at(203)) == .peerIsDead(silentFor: .seconds(3)))
    }

    // MARK: Outcomes

    @Test func answeredPingOfAnIdleConnectionProvesTheInterval() {
        var monitor = self.monitor()
        #expect(monitor.bytesReceived(now: self.start) == nil)
        _ = monitor.tick(now: self.at(10))
        monitor.setInterval(.seconds(20))
        let outcome = monitor.bytesReceived(now: self.at(10) + .milliseconds(50))
        #expect(
            outcome
                == .init(isAnswered: true, roundTripTime: .milliseconds(50), testedInterval: .seconds(10))
        )
        #expect(monitor.bytesReceived(now: self.at(11)) == nil)
        #expect(monitor.connectionLost() == nil)
    }

    @Test(arguments: [0, 1, 2, 9])
    func connectionThatWasNotIdleProvesNothing(lastSent: Int64) {
        for isAnswered in [true, false] {
            var monitor = self.monitor()
            monitor.bytesSent(now: self.at(lastSent))
            _ = monitor.tick(now: self.at(10))
            let outcome = isAnswered ? monitor.bytesReceived(now: self.at(11)) : monitor.connectionLost()
            #expect(outcome?.isAnswered == isAnswered)
            // 90 % of the interval is idle enough.
            #expect(outcome?.testedInterval == (lastSent <= 1 ? .seconds(10) : nil))
        }
    }

    @Test func probeProvesNothing() {
        var monitor = self.monitor()
        #expect(monitor.probe(now: self.at(10)) == .ping)
        #expect(monitor.bytesReceived(now: self.at(12)) == .init(isAnswered: true, roundTripTime: .seconds(2)))
        #expect(monitor.probe(now: self.at(30)) == .ping)
        #expect(monitor.connectionLost() == .init(isAnswered: false))
    }

    @Test func deathAndLossDisproveTheInterval() {
        var monitor = self.monitor()
        _ = monitor.tick(now: self.at(10))
        _ = monitor.tick(now: self.at(13))
        #expect(monitor.tick(now: self.at(16)) == .peerIsDead(silentFor: .seconds(16)))
        #expect(monitor.connectionLost() == .init(isAnswered: false, testedInterval: .seconds(10)))
        #expect(monitor.connectionLost() == nil)

        // The peer, or a router, may also reset a connection that it has forgotten.
        monitor = self.monitor()
        _ = monitor.tick(now: self.at(10))
        #expect(monitor.connectionLost() == .init(isAnswered: false, testedInterval: .seconds(10)))
    }

    @Test func lossLongAfterTheIntervalSaysNothingAboutIt() {
        var monitor = self.monitor()
        #expect(monitor.tick(now: self.at(12)) == .ping)
        #expect(monitor.connectionLost() == .init(isAnswered: false))
        // An answer after more than the interval proves even more.
        monitor = self.monitor()
        #expect(monitor.tick(now: self.at(12)) == .ping)
        #expect(monitor.bytesReceived(now: self.at(12))?.testedInterval == .seconds(10))
    }

    @Test func roundTripTimeIsUnknownAfterASecondPingOrABlockedWrite() {
        var monitor = self.monitor()
        _ = monitor.tick(now: self.at(10))
        _ = monitor.tick(now: self.at(13))
        #expect(monitor.bytesReceived(now: self.at(14)) == .init(isAnswered: true, testedInterval: .seconds(10)))
        monitor = self.monitor()
        _ = monitor.tick(now: self.at(10))
        monitor.writeIsBlocked(now: self.at(11))
        #expect(monitor.bytesReceived(now: self.at(12)) == .init(isAnswered: true, testedInterval: .seconds(10)))
    }
}
