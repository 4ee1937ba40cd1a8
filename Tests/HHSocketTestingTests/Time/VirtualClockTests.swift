// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@Suite struct VirtualClockTests {
    @Test func sleepersWakeInTheOrderOfTheirDeadlines() async throws {
        let clock = VirtualClock()
        let (awake, woke) = AsyncStream.makeStream(of: Int.self)
        let sleepers = [30, 10, 20].map { seconds in
            Task {
                try await clock.sleep(for: .seconds(seconds))
                woke.yield(seconds)
            }
        }
        try await clock.waitForSleepers(3)
        var order: [Int] = []
        while clock.advanceToNextWakeUp() { order.append(try await first(of: awake, "a sleeper")) }
        #expect(order == [10, 20, 30])
        #expect(clock.now.offset == .seconds(30))
        for sleeper in sleepers { try await sleeper.value }
    }

    @Test func noSleeperWakesEarly() async throws {
        let clock = VirtualClock()
        let sleeper = Task { try await clock.sleep(for: .seconds(10)) }
        try await clock.waitForSleepers()
        clock.advance(by: .seconds(9))
        clock.advance(by: .milliseconds(999))
        #expect(clock.sleeperCount == 1)
        #expect(clock.nextWakeUp == .init(offset: .seconds(10)))
        clock.advance(by: .milliseconds(1))
        #expect(clock.sleeperCount == 0)
        try await sleeper.value
    }

    @Test func oneLongStepWakesAllDueSleepers() async throws {
        let clock = VirtualClock()
        let sleepers = (1...100).map { number in Task { try await clock.sleep(for: .seconds(number)) } }
        try await clock.waitForSleepers(100)
        clock.advance(by: .seconds(50))
        #expect(clock.sleeperCount == 50)
        clock.advance(to: .init(offset: .seconds(100)))
        for sleeper in sleepers { try await sleeper.value }
    }

    @Test func timeNeverGoesBack() {
        let clock = VirtualClock()
        clock.advance(by: .seconds(5))
        clock.advance(by: .seconds(-1))
        clock.advance(to: .init(offset: .seconds(2)))
        #expect(clock.now.offset == .seconds(5))
        #expect(!clock.advanceToNextWakeUp())
    }

    @Test func sleepingUntilThePastReturnsAtOnce() async throws {
        let clock = VirtualClock()
        clock.advance(by: .seconds(5))
        try await clock.sleep(until: .init(offset: .seconds(5)))
        try await clock.sleep(for: .seconds(-1))
    }

    @Test func cancelledSleeperWakesAtOnceAndKeepsNothing() async throws {
        let clock = VirtualClock()
        let sleeper = Task { try await clock.sleep(for: .seconds(10)) }
        try await clock.waitForSleepers()
        sleeper.cancel()
        await #expect(throws: CancellationError.self) { try await sleeper.value }
        #expect(clock.sleeperCount == 0)
        let never = Task {
            while !Task.isCancelled { await Task.yield() }
            try await clock.sleep(for: .seconds(10))
        }
        never.cancel()
        await #expect(throws: CancellationError.self) { try await never.value }
        #expect(clock.sleeperCount == 0)
    }

    @Test func deadlineMovesWithTheClock() {
        let clock = VirtualClock()
        let before = clock.deadline
        clock.advance(by: .milliseconds(1_500))
        #expect(clock.deadline - before == .milliseconds(1_500))
        #expect(before > .uptimeNanoseconds(0))
    }

    @Test func waitingForSleepersThatDoNotComeFails() async {
        let clock = VirtualClock()
        await #expect(throws: NothingHappened.self) { try await clock.waitForSleepers(within: .milliseconds(1)) }
    }
}
