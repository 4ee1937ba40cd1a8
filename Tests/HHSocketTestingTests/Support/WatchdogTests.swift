// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport
import Testing

/// The time that the watchdog counts, in virtual time.
@Suite struct WatchdogLedgerTests {
    private static let interval = Watchdog.Ledger.interval
    private let start = ContinuousClock.now
    private let hang = Watchdog.Wait("a hang", "Here.swift", 7)

    /// Ticks `count` times, each `interval` after the last, and returns the first overdue wait.
    private func tick(
        _ ledger: inout Watchdog.Ledger,
        _ count: Int,
        every interval: Duration = Self.interval,
        from start: inout ContinuousClock.Instant
    ) -> Watchdog.Wait? {
        for _ in 0..<count {
            start += interval
            if let overdue = ledger.tick(at: start) { return overdue }
        }
        return nil
    }

    @Test func aWaitIsOverdueWhenItsTimeHasPassed() {
        var (ledger, now) = (Watchdog.Ledger(), self.start)
        _ = ledger.begin(self.hang, lasting: Self.interval * 10)
        // The first tick measures nothing: it may follow the beginning immediately.
        #expect(self.tick(&ledger, 10, from: &now) == nil)
        #expect(self.tick(&ledger, 1, from: &now) == self.hang)
    }

    @Test func aWaitThatEndedIsNot() {
        var (ledger, now) = (Watchdog.Ledger(), self.start)
        let id = ledger.begin(self.hang, lasting: Self.interval * 10)
        let other = Watchdog.Wait("another", "There.swift", 8)
        _ = ledger.begin(other, lasting: Self.interval * 20)
        #expect(self.tick(&ledger, 10, from: &now) == nil)
        ledger.end(id)
        #expect(self.tick(&ledger, 10, from: &now) == nil)
        #expect(ledger.all == [other])
        #expect(self.tick(&ledger, 1, from: &now) == other)
    }

    /// A debugger, a suspended laptop, or a machine with other work.
    @Test func timeInWhichTheProcessIsStoppedDoesNotCount() {
        var (ledger, now) = (Watchdog.Ledger(), self.start)
        _ = ledger.begin(self.hang, lasting: Self.interval * 10)
        #expect(self.tick(&ledger, 1_000, every: .seconds(2.05), from: &now) == nil)
        #expect(self.tick(&ledger, 10, every: .seconds(3_600), from: &now) == nil)
        #expect(self.tick(&ledger, 9, from: &now) == nil)
        #expect(self.tick(&ledger, 1, from: &now) == self.hang)
    }

    @Test func aTickThatIsALittleLateCountsAsOneInterval() {
        var (ledger, now) = (Watchdog.Ledger(), self.start)
        _ = ledger.begin(self.hang, lasting: Self.interval * 10)
        #expect(self.tick(&ledger, 10, every: Self.interval * 1.9, from: &now) == nil)
        #expect(self.tick(&ledger, 1, every: Self.interval * 1.9, from: &now) == self.hang)
    }

    @Test func timeWithoutAnyWaitDoesNotCount() {
        var (ledger, now) = (Watchdog.Ledger(), self.start)
        ledger.end(ledger.begin(self.hang, lasting: Self.interval))
        #expect(ledger.isEmpty)
        #expect(self.tick(&ledger, 10, from: &now) == nil)
        _ = ledger.begin(self.hang, lasting: Self.interval)
        #expect(self.tick(&ledger, 1, from: &now) == self.hang)
    }

    @Test func theOldestOverdueWaitIsReported() {
        var (ledger, now) = (Watchdog.Ledger(), self.start)
        for line in 1...5 {
            _ = ledger.begin(Watchdog.Wait("a hang", "Here.swift", line), lasting: Self.interval)
        }
        #expect(self.tick(&ledger, 2, from: &now)?.line == 1)
    }
}

/// The watchdog's thread, and waits that it makes unnecessary.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct WatchdogTests {
    @Test func itReportsTheWaitAndAllOthers() async throws {
        let reports = Watched<[String]>([])
        let watchdog = Watchdog { report in reports.withLockedValue { $0.append(report) } }
        let hang = watchdog.begin(Watchdog.Wait("a hang", "Here.swift", 7), lasting: .milliseconds(1))
        let other = watchdog.begin(Watchdog.Wait("another", "There.swift", 8), lasting: patience)
        let report = try await reports.value("a report") { $0.first }
        #expect(report.contains("a hang (Here.swift:7)"))
        #expect(report.hasSuffix("Other waits: another (There.swift:8)."))
        watchdog.end(hang)
        watchdog.end(other)
        // After a pause its thread goes on.
        let next = watchdog.begin(Watchdog.Wait("the next", "Here.swift", 9), lasting: .milliseconds(1))
        try await reports.wait("another report") { $0.last?.contains("the next (Here.swift:9)") == true }
        watchdog.end(next)
    }

    #if os(Linux)
    @Test func aBodyThatIgnoresCancellationEndsItsProcess() async throws {
        let result = await #expect(processExitsWith: .signal(SIGABRT), observing: [\.standardErrorContent]) {
            try await withDeadline("what never comes", within: .milliseconds(1), grace: .milliseconds(1)) {
                await withUnsafeContinuation { (_: UnsafeContinuation<Void, Never>) in }
            }
        }
        let errors = String(decoding: result?.standardErrorContent ?? [], as: UTF8.self)
        #expect(errors.contains("watchdog: what never comes (HHSocketTestingTests/WatchdogTests.swift:"), "\(errors)")
    }
    #endif

    @Test func aSlowBodyThatIsCancelledGetsItsError() async throws {
        let error = await #expect(throws: TimedOut.self) {
            try await withDeadline("what never comes", within: .milliseconds(1)) { try await untilCancelled() }
        }
        #expect(error?.description.contains("what never comes") == true)
    }

    @Test func aTaskThatIgnoresCancellationIsNotWaitedFor() async throws {
        let gate = Gate()
        let task = Task { await Task.detached { try? await gate.wait() }.value }
        let error = await #expect(throws: TimedOut.self) {
            try await waitForValue(of: task, "what never comes", within: .milliseconds(1))
        }
        #expect(error?.description.contains("what never comes") == true)
        #expect(task.isCancelled)
        gate.open()
        try await waitForValue(of: task, "the end")
    }

    @Test func theErrorOfATaskIsThrown() async {
        let task = Task { throw Unexpected(description: "a failure") }
        await #expect(throws: Unexpected.self) { try await waitForValue(of: task, "the failure") }
    }
}
