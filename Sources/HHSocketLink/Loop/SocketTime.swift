// SPDX-License-Identifier: Apache-2.0
package import NIOCore

/// A clock with alarms that takes the place of the system's: that of a test, which moves it.
package protocol TimeSource: AnyObject, Sendable {
    func now() -> NIODeadline

    /// Calls `body` on the event loop once, at `deadline` or later, unless the alarm is cancelled before.
    ///
    /// - Returns: The number of the alarm, for ``cancelAlarm(_:)``.
    func setAlarm(
        at deadline: NIODeadline,
        on eventLoop: any EventLoop,
        _ body: @escaping @Sendable () -> Void
    ) -> UInt64

    /// Calls `body` in a task once, at `deadline` or later, unless the alarm is cancelled before.
    ///
    /// - Returns: The number of the alarm, for ``cancelAlarm(_:)``.
    func setAlarm(at deadline: NIODeadline, _ body: @escaping @Sendable () async -> Void) -> UInt64

    /// Cancels an alarm. Has no effect on one that has rung.
    func cancelAlarm(_ number: UInt64)
}

/// The time by which peers are judged: timeouts, heartbeats, back-offs, rates and ages. It is the system's, unless a
/// configuration has a ``TimeSource``.
///
/// The pauses by which a loop distributes its own time among channels are not measured by it: see ``LoopThread``.
package struct SocketTime: Sendable {
    /// Nil: the system's.
    private let source: (any TimeSource)?

    /// - Parameter source: The clock; nil, the default, for the system's.
    package init(_ source: (any TimeSource)? = nil) {
        self.source = source
    }

    /// Whether it is the system's.
    package var isSystem: Bool { self.source == nil }

    package func now() -> NIODeadline { self.source?.now() ?? .now() }

    /// The current time, on an event loop that may have its own clock.
    package func now(on eventLoop: any EventLoop) -> NIODeadline { self.source?.now() ?? eventLoop.now }

    /// Calls `body` on the event loop at `deadline`. Must be called on the event loop.
    package func schedule(
        at deadline: NIODeadline,
        on eventLoop: any EventLoop,
        _ body: @escaping () -> Void
    ) -> TimeAlarm {
        guard let source = self.source else {
            return TimeAlarm(eventLoop.assumeIsolated().scheduleTask(deadline: deadline, body))
        }
        let body = NIOLoopBound(body, eventLoop: eventLoop)
        return TimeAlarm(source, source.setAlarm(at: deadline, on: eventLoop) { body.value() })
    }

    /// Calls `body` on the event loop once this time has passed. Must be called on the event loop.
    package func schedule(
        in time: TimeAmount,
        on eventLoop: any EventLoop,
        _ body: @escaping () -> Void
    ) -> TimeAlarm {
        self.schedule(at: self.now(on: eventLoop).advanced(clamping: time), on: eventLoop, body)
    }

    /// Calls `body` in a task once this time has passed; nil if the time is the system's, whose alarms belong to event
    /// loops.
    package func alarm(in time: TimeAmount, _ body: @escaping @Sendable () async -> Void) -> TimeAlarm? {
        self.source.map { TimeAlarm($0, $0.setAlarm(at: $0.now().advanced(clamping: time), body)) }
    }

    /// - Throws: `CancellationError` when the task is cancelled.
    package func sleep(for time: TimeAmount) async throws {
        guard !self.isSystem else { return try await Task.sleep(nanoseconds: UInt64(max(0, time.nanoseconds))) }
        let (ringing, continuation) = AsyncStream.makeStream(of: Never.self)
        let alarm = self.alarm(in: time) { continuation.finish() }
        defer { alarm?.cancel() }
        // Ends when the task is cancelled, too.
        for await _ in ringing {}
        try Task.checkCancellation()
    }
}

/// An alarm of ``SocketTime`` that is set.
package struct TimeAlarm: Sendable {
    private enum Kind {
        case scheduled(Scheduled<Void>)
        case set(any TimeSource, UInt64)
    }

    private let kind: Kind

    fileprivate init(_ task: Scheduled<Void>) {
        self.kind = .scheduled(task)
    }

    fileprivate init(_ source: any TimeSource, _ number: UInt64) {
        self.kind = .set(source, number)
    }

    /// Has no effect on one that has rung.
    package func cancel() {
        switch self.kind {
        case .scheduled(let task): task.cancel()
        case .set(let source, let number): source.cancelAlarm(number)
        }
    }
}
