// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TestSupport
import Testing

/// A loop on a real event loop, whose deadlines have another clock.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct SocketTimeTests {
    private let time = ManualTime()
    private let loop: SocketLoop

    init() {
        self.loop = SocketLoop(eventLoop: MultiThreadedEventLoopGroup.singleton.next(), time: SocketTime(self.time))
    }

    /// Runs `body` in a turn, and returns its result.
    private func inTurn<Result: Sendable>(_ body: @escaping @Sendable (inout Turn) -> Result) async -> Result {
        await withCheckedContinuation { continuation in
            self.loop.submit(.closure { continuation.resume(returning: body(&$0)) })
        }
    }

    @Test func timersRunWhenTheClockIsMovedAndInTheOrderOfTheirDeadlines() async throws {
        let start = self.time.now()
        let runs = NIOLockedValueBox<[String]>([])
        let (loop, time) = (self.loop, self.time)
        await self.inTurn { turn in
            #expect(turn.now == start)
            for seconds in [20, 10, 30] as [Int64] {
                _ = loop.setTimer(start + .seconds(seconds)) { turn in
                    let passed = (turn.now - start).nanoseconds / 1_000_000_000
                    runs.withLockedValue { $0.append("\(seconds) at \(passed)") }
                }
            }
        }
        await time.advance(by: .seconds(9))
        #expect(runs.withLockedValue { $0 } == [])
        await time.advance(by: .seconds(16))
        #expect(runs.withLockedValue { $0 } == ["10 at 10", "20 at 20"])
        #expect(time.untilNextAlarm == .seconds(5))
        await time.advance(by: .seconds(5))
        #expect(runs.withLockedValue { $0 }.last == "30 at 30")
        #expect(time.untilNextAlarm == nil)
    }

    @Test func timerThatATimerSetsIsDueInTheSameMove() async throws {
        let count = NIOLockedValueBox(0)
        let loop = self.loop
        @Sendable func set(in turn: inout Turn) {
            _ = loop.setTimer(turn.now + .seconds(1)) { turn in
                count.withLockedValue { $0 += 1 }
                set(in: &turn)
            }
        }
        await self.inTurn { set(in: &$0) }
        await self.time.advance(by: .seconds(100))
        #expect(count.withLockedValue { $0 } == 100)
        loop.close {}
    }

    @Test func timerThatIsRemovedDoesNotRun() async throws {
        let hasRun = NIOLockedValueBox(false)
        let loop = self.loop
        await self.inTurn { turn in
            let id = loop.setTimer(turn.now + .seconds(1)) { _ in hasRun.withLockedValue { $0 = true } }
            loop.removeTimer(id)
        }
        #expect(self.time.untilNextAlarm == nil)
        await self.time.advance(by: .seconds(2))
        #expect(!hasRun.withLockedValue { $0 })
    }

    @Test func closedLoopHasNoAlarm() async throws {
        let loop = self.loop
        await self.inTurn { turn in _ = loop.setTimer(turn.now + .seconds(1)) { _ in } }
        #expect(self.time.untilNextAlarm == .seconds(1))
        await self.inTurn { _ in loop.close {} }
        #expect(self.time.untilNextAlarm == nil)
    }

    /// The clock stands still all the time.
    @Test func pausesOfTheLoopEndByThemselves() async throws {
        let loop = self.loop
        let ends = NIOLockedValueBox<[String]>([])
        await self.inTurn { turn in
            loop.afterOtherChannels(in: &turn) { _ in ends.withLockedValue { $0.append("soon") } }
            let removed = loop.pause(for: .milliseconds(1)) { _ in ends.withLockedValue { $0.append("removed") } }
            loop.removeTimer(removed)
            _ = loop.pause(for: .milliseconds(20)) { _ in ends.withLockedValue { $0.append("later") } }
        }
        try await eventually("both pauses") { ends.withLockedValue { $0 } == ["soon", "later"] }
        #expect(self.time.untilNextAlarm == nil)
    }

    /// More jobs than run in one turn, each of which makes another: the loop pauses after a turn.
    @Test func jobsContinueThoughTheClockStandsStill() async throws {
        let executor = SocketExecutor(self.loop)
        let count = NIOLockedValueBox(0)
        await withDiscardingTaskGroup { group in
            for _ in 0..<4 {
                group.addTask(executorPreference: executor) {
                    for _ in 0..<2_000 {
                        await Task.yield()
                        count.withLockedValue { $0 += 1 }
                    }
                }
            }
        }
        #expect(count.withLockedValue { $0 } == 8_000)
    }

    @Test func ageOfATurnIsThatOfTheSystemsClock() async throws {
        let loop = self.loop
        let age = await self.inTurn { turn in
            let end = turn.now
            let begun = NIODeadline.now()
            while NIODeadline.now() < begun + .milliseconds(2) {}
            #expect(turn.now == end)
            return loop.age(of: turn)
        }
        #expect(age >= .milliseconds(2))
    }

    // MARK: Alarms

    @Test func sleepEndsWhenTheClockIsMoved() async throws {
        let time = self.time
        let sleeper = Task { try await SocketTime(time).sleep(for: .seconds(60)) }
        try await eventually("the alarm") { time.untilNextAlarm == .seconds(60) }
        await time.advance(by: .seconds(60))
        try await sleeper.value
    }

    @Test func cancelledSleepHasNoAlarm() async throws {
        let time = self.time
        let sleeper = Task { try await SocketTime(time).sleep(for: .seconds(60)) }
        try await eventually("the alarm") { time.untilNextAlarm != nil }
        sleeper.cancel()
        await #expect(throws: CancellationError.self) { try await sleeper.value }
        #expect(time.untilNextAlarm == nil)
    }

    /// The clock may be moved between the reading of it and the alarm.
    @Test func alarmOfThePastRingsAtOnce() async throws {
        let hasRung = NIOLockedValueBox(false)
        let eventLoop = MultiThreadedEventLoopGroup.singleton.next()
        let start = self.time.now()
        await self.time.advance(by: .seconds(2))
        _ = self.time.setAlarm(at: start + .seconds(1), on: eventLoop) { hasRung.withLockedValue { $0 = true } }
        try await eventually("the alarm") { hasRung.withLockedValue { $0 } }
        #expect(self.time.untilNextAlarm == nil)
    }
}
