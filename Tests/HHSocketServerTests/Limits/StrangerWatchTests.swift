// SPDX-License-Identifier: Apache-2.0
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

private let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

/// The time in which a client must authenticate itself, in virtual time.
@Suite struct StrangerWatchTests {
    private let times = SessionWatch.Times(acquaintance: .seconds(10))
    private var watch = SessionWatch(now: start, isStranger: true)

    private func verdict(_ seconds: Int64, _ observation: SessionWatch.Observation = .init()) -> SessionWatch.Verdict? {
        var watch = self.watch
        return watch.verdict(observation, self.times, now: start + .seconds(seconds))
    }

    @Test func strangerHasSomeTime() {
        #expect(verdict(9) == nil)
        #expect(verdict(10) == .unknown)
        // Other activity does not matter.
        #expect(verdict(10, .init(isBusy: true)) == .unknown)
        #expect(verdict(10, .init(isReadingHeld: true)) == .unknown)
    }

    @Test mutating func knownClientHasNoTimeLimit() {
        watch.standingChanged(isStranger: false, now: start + .seconds(9))
        #expect(verdict(10_000) == nil)
        var known = SessionWatch(now: start)
        #expect(known.verdict(.init(), times, now: start + .hours(1)) == nil)
    }

    @Test mutating func timeStandsStillWhileWeAuthenticate() {
        watch.authenticationChanged(isUnderWay: true, now: start + .seconds(4))
        watch.authenticationChanged(isUnderWay: true, now: start + .seconds(5))
        #expect(verdict(1_000) == nil)
        watch.authenticationChanged(isUnderWay: false, now: start + .seconds(1_000))
        #expect(verdict(1_005) == nil)
        #expect(verdict(1_006) == .unknown)
    }

    @Test mutating func signedOutClientIsAStrangerAgain() {
        watch.standingChanged(isStranger: false, now: start + .seconds(9))
        watch.standingChanged(isStranger: true, now: start + .seconds(100))
        watch.standingChanged(isStranger: true, now: start + .seconds(105))
        #expect(verdict(109) == nil)
        #expect(verdict(110) == .unknown)
    }

    /// Compares it with the sum of the intervals in which the time was running.
    @Test func randomHistoriesAddUp() {
        for seed in 0..<UInt64(min(historyCount, 20_000)) {
            var random = SeededGenerator(seed: seed)
            let isStrangerAtFirst = Bool.random(using: &random)
            var watch = SessionWatch(now: start, isStranger: isStrangerAtFirst)
            var (isStranger, isAuthenticating, spent, now) = (isStrangerAtFirst, false, Int64(0), Int64(0))
            for _ in 0..<40 {
                let step = Int64.random(in: 0...2_000, using: &random)
                now += step
                if isStranger, !isAuthenticating { spent += step }
                let time = start + .milliseconds(now)
                switch Int.random(in: 0..<4, using: &random) {
                case 0:
                    isAuthenticating.toggle()
                    watch.authenticationChanged(isUnderWay: isAuthenticating, now: time)
                case 1 where Int.random(in: 0..<4, using: &random) == 0:
                    isStranger.toggle()
                    spent = 0
                    watch.standingChanged(isStranger: isStranger, now: time)
                default:
                    watch.standingChanged(isStranger: isStranger, now: time)
                }
                let expected: SessionWatch.Verdict? = isStranger && spent >= 10_000 ? .unknown : nil
                #expect(watch.verdict(.init(), self.times, now: time) == expected, "seed \(seed)")
            }
        }
    }
}
