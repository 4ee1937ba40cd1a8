// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOConcurrencyHelpers
package import NIOCore

/// A clock that stands still until the test moves it, for clients and servers on real sockets.
///
/// A limit of minutes then neither ends a test on a machine that is slow, nor must be waited for. The system transports
/// bytes in its own time: a test waits for the event that should precede a limit (`eventually`, `Watched`), and then
/// moves the clock.
package final class ManualTime: TimeSource {
    private struct Alarm {
        enum Call {
            case onLoop(any EventLoop, @Sendable () -> Void)
            case inTask(@Sendable () async -> Void)
        }

        var deadline: NIODeadline
        var call: Call

        var eventLoop: (any EventLoop)? { if case .onLoop(let loop, _) = self.call { loop } else { nil } }
    }

    private struct State {
        /// The system's time at first, so that tests may state deadlines by it.
        var now = NIODeadline.now()
        var alarms: [UInt64: Alarm] = [:]
        var lastNumber: UInt64 = 0

        /// The alarms that are due first, in the order in which they were set.
        func first(until end: NIODeadline) -> (deadline: NIODeadline, numbers: [UInt64])? {
            guard let deadline = self.alarms.values.map(\.deadline).min(), deadline <= end else { return nil }
            return (deadline, self.alarms.filter { $0.value.deadline == deadline }.keys.sorted())
        }

        /// The event loops that have alarms.
        var eventLoops: [any EventLoop] {
            var loops: [ObjectIdentifier: any EventLoop] = [:]
            for loop in self.alarms.values.compactMap(\.eventLoop) { loops[ObjectIdentifier(loop)] = loop }
            return Array(loops.values)
        }
    }

    private let state = NIOLockedValueBox(State())

    package init() {}

    package func now() -> NIODeadline { self.state.withLockedValue { $0.now } }

    package func setAlarm(
        at deadline: NIODeadline,
        on eventLoop: any EventLoop,
        _ body: @escaping @Sendable () -> Void
    ) -> UInt64 {
        let (number, isDue) = self.set(Alarm(deadline: deadline, call: .onLoop(eventLoop, body)))
        // The clock has been moved since the caller read it.
        if isDue { eventLoop.execute { self.take(number).map { _ in body() } } }
        return number
    }

    package func setAlarm(at deadline: NIODeadline, _ body: @escaping @Sendable () async -> Void) -> UInt64 {
        let (number, isDue) = self.set(Alarm(deadline: deadline, call: .inTask(body)))
        if isDue { Task { if self.take(number) != nil { await body() } } }
        return number
    }

    private func set(_ alarm: Alarm) -> (number: UInt64, isDue: Bool) {
        self.state.withLockedValue { state in
            state.lastNumber += 1
            state.alarms[state.lastNumber] = alarm
            return (state.lastNumber, alarm.deadline <= state.now)
        }
    }

    /// Removes an alarm that rings; nil if it was cancelled, or rings already.
    private func take(_ number: UInt64) -> Alarm? {
        self.state.withLockedValue { $0.alarms.removeValue(forKey: number) }
    }

    package func cancelAlarm(_ number: UInt64) {
        // The closure is released outside the lock.
        withExtendedLifetime(self.take(number)) {}
    }

    /// The time until the next alarm; nil if none is set.
    package var untilNextAlarm: Duration? {
        self.state.withLockedValue { state in
            state.alarms.values.map(\.deadline).min().map { Duration.nanoseconds(($0 - state.now).nanoseconds) }
        }
    }

    /// Moves the clock, and runs the alarms that are due meanwhile in the order of their deadlines, each at its own
    /// time. Returns when they have run, and with them the work of their event loops that they caused.
    ///
    /// Must not be called by two tasks at the same time.
    package func advance(by time: Duration) async {
        let end = self.now().advanced(clamping: TimeAmount(clamping: time))
        while let next = self.state.withLockedValue({ $0.first(until: end) }) {
            let loops = self.state.withLockedValue { state in
                state.now = max(state.now, next.deadline)
                return state.eventLoops
            }
            for number in next.numbers { await self.ring(number) }
            // Work that an alarm submits may submit more.
            for loop in loops + loops { try? await loop.submit {}.get() }
        }
        self.state.withLockedValue { $0.now = max($0.now, end) }
    }

    /// Moves the clock by `step` again and again until `condition` holds, which is checked after each step and some
    /// real time.
    package func advance(
        by step: Duration,
        until what: String,
        fileID: String = #fileID,
        line: Int = #line,
        _ condition: @escaping @Sendable () async throws -> Bool
    ) async throws {
        try await eventually(what, fileID: fileID, line: line) {
            if try await condition() { return true }
            await self.advance(by: step)
            return false
        }
    }

    private func ring(_ number: UInt64) async {
        guard let alarm = self.state.withLockedValue({ $0.alarms[number] }) else { return }
        switch alarm.call {
        case .onLoop(let loop, let body):
            // There it may have been cancelled meanwhile.
            try? await loop.submit { if self.take(number) != nil { body() } }.get()
            // An event loop that has ended does not call it.
            self.cancelAlarm(number)
        case .inTask(let body):
            if self.take(number) != nil { await body() }
        }
    }
}
