// SPDX-License-Identifier: Apache-2.0
import NIOCore
import Testing

@testable import HHSocket
@testable import HHSocketLink

@Suite struct TaskTurnsTests {
    private static let start = NIODeadline.uptimeNanoseconds(1_000_000_000)

    @Test func turnsWithoutReadsRestOnceTheyHaveTakenTheBudget() {
        var turns = TaskTurns()
        var now = Self.start
        for _ in 0..<9 {
            #expect(turns.turnEnded(began: now, now: now + .microseconds(100)) == nil)
            now = now + .microseconds(110)
        }
        #expect(
            turns.turnEnded(began: now, now: now + .microseconds(100)) == .nanoseconds(50_000 + 1_000_000 / 16)
        )
        // The check was made, and the turn may continue for that time again.
        #expect(turns.turnEnded(began: now, now: now + .microseconds(990)) == nil)
        #expect(turns.turnEnded(began: now, now: now + .microseconds(20)) != nil)
    }

    @Test func idleLoopAndReadsResetTheTime() {
        var turns = TaskTurns()
        var now = Self.start
        for _ in 0..<100 {
            #expect(turns.turnEnded(began: now, now: now + .microseconds(900)) == nil)
            now = now + .microseconds(950)
        }
        for _ in 0..<100 {
            #expect(turns.turnEnded(began: now, now: now + .microseconds(900)) == nil)
            turns.channelWasRead()
            now = now + .microseconds(900)
        }
    }

    @Test func turnsAreMeasuredWhereNothingIsRead() {
        var turns = TaskTurns()
        for _ in 0..<TaskTurns.unmeasuredTurns {
            #expect(!turns.measures)
            turns.turnEnded()
        }
        #expect(turns.measures)
        turns.channelWasRead()
        #expect(!turns.measures)
    }

    @Test func turnThatTookLongRestsLonger() {
        var turns = TaskTurns()
        let rest = turns.turnEnded(began: Self.start, now: Self.start + .milliseconds(160))
        #expect(rest == .microseconds(10_050))
    }
}
