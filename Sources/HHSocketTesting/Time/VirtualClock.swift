// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers
package import NIOCore

/// A clock that stands still until a test moves it.
///
/// ```swift
/// let clock = VirtualClock()
/// let server = try await MockServer(clock: clock)
/// server.on(101, .echo.delayed(by: .seconds(30)))
/// async let response = client.data(for: SocketRequest(type: 101, timeout: .seconds(60)))
/// try await clock.waitForSleepers()      // the server is about to wait
/// clock.advance(by: .seconds(30))        // and has waited
/// ```
///
/// Sleepers are woken in the order of their deadlines; those with equal deadlines in the order in which they began to
/// sleep. Once awake they run as tasks, so wait for their effects before you advance the clock again.
public final class VirtualClock: Clock, Sendable {
    /// A moment: the time since the clock's beginning.
    public struct Instant: InstantProtocol {
        /// The time since the clock was made.
        public let offset: Duration

        package init(offset: Duration) {
            self.offset = offset
        }

        public func advanced(by duration: Duration) -> Instant { Instant(offset: self.offset + duration) }
        public func duration(to other: Instant) -> Duration { other.offset - self.offset }
        public static func < (left: Instant, right: Instant) -> Bool { left.offset < right.offset }
    }

    private struct Sleeper {
        var deadline: Instant
        var continuation: CheckedContinuation<Void, any Error>
    }

    private struct State {
        var now = Instant(offset: .zero)
        /// The sleepers by number; numbers grow, so that those with equal deadlines wake in the order in which they
        /// went to sleep.
        var sleepers: [UInt64: Sleeper] = [:]
        var lastNumber: UInt64 = 0
        /// The sleepers whose task was cancelled before they went to sleep.
        var cancelled: Set<UInt64> = []

        var next: (key: UInt64, value: Sleeper)? {
            self.sleepers.min { ($0.value.deadline, $0.key) < ($1.value.deadline, $1.key) }
        }
    }

    private let state = NIOLockedValueBox(State())
    /// The numbers of sleepers after each change.
    private let counts = EventLog<Int>(keepsHistory: false)

    /// Creates a clock at its beginning.
    public init() {}

    public var now: Instant { self.state.withLockedValue { $0.now } }

    /// A nanosecond.
    public var minimumResolution: Duration { .nanoseconds(1) }

    /// The current time as `NIODeadline`, for code that takes the time as an argument: the beginning is one hour after
    /// NIO's zero, so that earlier times can be expressed too.
    package var deadline: NIODeadline {
        NIODeadline.uptimeNanoseconds(0) + .hours(1) + TimeAmount(self.now.offset)
    }

    /// The number of tasks that sleep.
    package var sleeperCount: Int { self.state.withLockedValue { $0.sleepers.count } }

    /// The next sleeper's deadline; nil if no task sleeps.
    package var nextWakeUp: Instant? { self.state.withLockedValue { $0.next?.value.deadline } }

    // MARK: Time

    /// Advances the time by `duration` and wakes the sleepers that are due. A negative duration has no effect.
    public func advance(by duration: Duration) {
        self.advance(to: self.now.advanced(by: duration))
    }

    /// Advances the time to `instant` and wakes the sleepers that are due. A past instant has no effect.
    package func advance(to instant: Instant) {
        while true {
            let due: Sleeper? = self.state.withLockedValue { state in
                guard let next = state.next, next.value.deadline <= instant else {
                    state.now = max(state.now, instant)
                    return nil
                }
                state.now = max(state.now, next.value.deadline)
                state.sleepers[next.key] = nil
                return next.value
            }
            guard let due else { break }
            due.continuation.resume()
        }
        self.counts.append(self.sleeperCount)
    }

    /// Advances the time to the next sleeper's deadline and wakes all sleepers that are due then.
    ///
    /// - Returns: False if no task sleeps.
    @discardableResult
    package func advanceToNextWakeUp() -> Bool {
        guard let next = self.nextWakeUp else { return false }
        self.advance(to: next)
        return true
    }

    // MARK: Sleeping

    /// Sleeps until the clock reaches `deadline`.
    ///
    /// - Throws: `CancellationError` as soon as the task is cancelled.
    public func sleep(until deadline: Instant, tolerance: Duration? = nil) async throws {
        let number = self.state.withLockedValue { state in
            state.lastNumber += 1
            return state.lastNumber
        }
        defer { self.state.withLockedValue { _ = $0.cancelled.remove(number) } }
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                enum Outcome { case sleeps, isDue, isCancelled }
                let outcome: Outcome = self.state.withLockedValue { state in
                    if state.cancelled.remove(number) != nil { return .isCancelled }
                    guard deadline > state.now else { return .isDue }
                    state.sleepers[number] = Sleeper(deadline: deadline, continuation: continuation)
                    return .sleeps
                }
                switch outcome {
                case .sleeps: self.counts.append(self.sleeperCount)
                case .isDue: continuation.resume()
                case .isCancelled: continuation.resume(throwing: CancellationError())
                }
            }
        } onCancel: {
            let sleeper = self.state.withLockedValue { state in
                guard let sleeper = state.sleepers.removeValue(forKey: number) else {
                    state.cancelled.insert(number)
                    return nil as Sleeper?
                }
                return sleeper
            }
            sleeper?.continuation.resume(throwing: CancellationError())
        }
    }

    /// Returns once at least `count` tasks sleep.
    ///
    /// - Parameters:
    ///   - count: The number of tasks; 1 by default.
    ///   - time: The time to wait, in real time; 60 s by default.
    /// - Throws: ``NothingHappened`` after that, `CancellationError` when the task is cancelled.
    public func waitForSleepers(_ count: Int = 1, within time: Duration = .seconds(60)) async throws {
        try await self.counts.wait(1, within: time, "\(count) sleepers", unless: { self.sleeperCount >= count }) {
            $0 >= count
        }
    }
}
