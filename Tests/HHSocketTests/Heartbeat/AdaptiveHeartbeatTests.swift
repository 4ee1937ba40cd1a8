// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

@Suite struct AdaptiveHeartbeatTests {
    typealias Run = HeartbeatHistory.Run

    private let strategy = AdaptiveHeartbeat()

    private func interval(after runs: [Run], isApplicationActive: Bool = false) -> Duration {
        self.strategy.interval(for: HeartbeatHistory(runs: runs, isApplicationActive: isApplicationActive))
    }

    private func answered(_ seconds: Int, _ count: Int) -> Run {
        Run(interval: .seconds(seconds), isAnswered: true, count: count)
    }

    private func unanswered(_ seconds: Int, _ count: Int) -> Run {
        Run(interval: .seconds(seconds), isAnswered: false, count: count)
    }

    // MARK: The rules

    @Test func startsAtTheMinimumAndGrowsAfterEnoughAnswers() {
        #expect(self.interval(after: []) == .seconds(210))
        #expect(self.interval(after: [self.answered(210, 2)]) == .seconds(210))
        #expect(self.interval(after: [self.answered(210, 3)]) == .seconds(270))
        #expect(self.interval(after: [self.answered(210, 3), self.answered(270, 4)]) == .seconds(270))
        #expect(self.interval(after: [self.answered(210, 3), self.answered(270, 5)]) == .seconds(330))
    }

    @Test func lastStepEndsAtTheMaximum() {
        let runs = [self.answered(570, 5)]
        #expect(self.interval(after: runs) == .seconds(600))
        #expect(self.interval(after: runs + [self.answered(600, 1_000)]) == .seconds(600))
    }

    @Test func fallsBackAfterTwoFailuresRunningAndRemembersTheCeiling() {
        let grown = [self.answered(210, 3), self.answered(270, 5)]
        #expect(self.interval(after: grown + [self.unanswered(330, 1)]) == .seconds(330))
        let fallen = grown + [self.unanswered(330, 2)]
        #expect(self.interval(after: fallen) == .seconds(270))
        #expect(self.interval(after: fallen + [self.answered(270, 99)]) == .seconds(270))
        #expect(self.interval(after: fallen + [self.unanswered(270, 2)]) == .seconds(210))
    }

    @Test func oneFailureNowAndThenDoesNotFallBackButDelaysGrowth() {
        let runs = [self.answered(270, 4), self.unanswered(270, 1), self.answered(270, 4), self.unanswered(270, 1)]
        #expect(self.interval(after: runs) == .seconds(270))
        #expect(self.interval(after: runs + [self.answered(270, 5)]) == .seconds(330))
    }

    @Test func neverFallsBelowTheMinimum() {
        #expect(self.interval(after: [self.unanswered(210, 1_000)]) == .seconds(210))
        // An answer disproves that the minimum is too long.
        let recovered = [self.unanswered(210, 2), self.answered(210, 3)]
        #expect(self.interval(after: recovered) == .seconds(270))
    }

    @Test func triesTheCeilingAgainAfterAHundredAnswersRunning() {
        let fallen = [self.answered(270, 5), self.unanswered(330, 2)]
        #expect(self.interval(after: fallen + [self.answered(270, 100)]) == .seconds(330))
        let interrupted = [self.answered(270, 99), self.unanswered(270, 1), self.answered(270, 99)]
        #expect(self.interval(after: fallen + interrupted) == .seconds(270))
        var never = self.strategy
        never.reprobeAfter = nil
        let history = HeartbeatHistory(runs: fallen + [self.answered(270, .max)])
        #expect(never.interval(for: history) == .seconds(270))
    }

    @Test func minimumWhileTheAppIsActiveForgetsNothing() {
        let learned = [self.answered(390, 5), self.unanswered(450, 2), self.answered(390, 7)]
        #expect(self.interval(after: learned) == .seconds(390))
        #expect(self.interval(after: learned, isApplicationActive: true) == .seconds(210))
        // Pings sent meanwhile prove nothing about longer intervals.
        let afterwards = learned + [self.answered(210, 50)]
        #expect(self.interval(after: afterwards) == .seconds(390))
        let failing = [self.unanswered(390, 1), self.answered(210, 50), self.unanswered(390, 1)]
        #expect(self.interval(after: learned + failing) == .seconds(330))
    }

    @Test func failuresAtTheMinimumWhileTheAppIsActiveBringItDown() {
        #expect(self.interval(after: [self.answered(390, 5), self.unanswered(210, 2)]) == .seconds(210))
    }

    @Test func historyWhoseBeginningWasDroppedContinuesWhereItWas() {
        #expect(self.interval(after: [self.answered(450, 1)]) == .seconds(450))
        #expect(self.interval(after: [self.unanswered(510, 1)]) == .seconds(510))
        #expect(self.interval(after: [self.unanswered(510, 2)]) == .seconds(450))
    }

    @Test func historyOfOtherLimitsIsBroughtIntoThese() {
        #expect(self.interval(after: [self.answered(3_600, 5)]) == .seconds(600))
        #expect(self.interval(after: [self.unanswered(3_600, 2)]) == .seconds(600))
        #expect(self.interval(after: [self.answered(10, 50)]) == .seconds(210))
        #expect(self.interval(after: [self.unanswered(10, 50)]) == .seconds(210))
    }

    @Test func garbageNeitherTrapsNorExceedsTheLimits() {
        var generator = SeededGenerator(seed: 7)
        let durations: [Duration] = [
            .seconds(Int64.max), .seconds(Int64.min), .zero, .nanoseconds(1), .seconds(210), .seconds(270),
            .seconds(600), Duration(secondsComponent: .max, attosecondsComponent: 999_999_999_999_999_999),
        ]
        let counts = [Int.min, -1, 0, 1, 2, 3, 100, Int.max]
        for _ in 0..<2_000 {
            let runs = (0..<Int.random(in: 0...80, using: &generator)).map { _ in
                Run(
                    interval: durations.randomElement(using: &generator) ?? .zero,
                    isAnswered: .random(using: &generator),
                    count: counts.randomElement(using: &generator) ?? 0
                )
            }
            let interval = self.interval(after: runs)
            #expect(interval >= .seconds(210) && interval <= .seconds(600))
            let absurd = AdaptiveHeartbeat(
                minimum: durations.randomElement(using: &generator) ?? .zero,
                maximum: durations.randomElement(using: &generator) ?? .zero,
                step: durations.randomElement(using: &generator) ?? .zero,
                successesAtMinimum: counts.randomElement(using: &generator) ?? 0,
                successesPerStep: counts.randomElement(using: &generator) ?? 0,
                failuresBeforeFallingBack: counts.randomElement(using: &generator) ?? 0,
                reprobeAfter: counts.randomElement(using: &generator)
            )
            #expect(absurd.interval(for: HeartbeatHistory(runs: runs)) > .zero)
        }
    }
}
