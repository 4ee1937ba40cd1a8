// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOConcurrencyHelpers
import NIOCore

/// A call of a mock, which is ended by what happens first: its handler returns, its time limit is reached, or its
/// caller's task is cancelled. The handler's task is cancelled then, and is not waited for.
final class MockCall<Response: Sendable>: Sendable {
    private typealias Outcome = Result<Response, SocketError>
    private typealias Waiter = CheckedContinuation<Outcome, Never>

    private struct State {
        var waiter: Waiter?
        /// The handler and the timer.
        var tasks: [Task<Void, Never>] = []
        var hasEnded = false
    }

    private let handler: @Sendable () async throws -> Response
    private let state = NIOLockedValueBox(State())

    init(_ handler: @escaping @Sendable () async throws -> Response) {
        self.handler = handler
    }

    /// Runs the handler, and returns what it returns. Must be called once.
    ///
    /// - Parameter limit: The time limit, and the error of a call that reaches it; nil, the default, for none.
    nonisolated(nonsending) func run(
        until limit: (time: MockLimit, error: SocketError)? = nil
    ) async throws(SocketError) -> Response {
        try await withTaskCancellationHandler {
            await withCheckedContinuation { self.begin($0, until: limit) }
        } onCancel: {
            self.end(.failure(.cancelledMock(delivery: .sentUnknown)))
        }.get()
    }

    private func begin(_ waiter: Waiter, until limit: (time: MockLimit, error: SocketError)?) {
        let isCancelled = self.state.withLockedValue { state in
            if !state.hasEnded { state.waiter = waiter }
            return state.hasEnded
        }
        guard !isCancelled else {
            return waiter.resume(returning: .failure(.cancelledMock(delivery: .notSent)))
        }
        if let limit { self.keep(limit.time.timer { self.end(.failure(limit.error)) }) }
        self.keep(
            Task {
                do {
                    self.end(.success(try await self.handler()))
                } catch {
                    self.end(.failure(SocketError(mocked: error)))
                }
            }
        )
    }

    /// Stores a task until the call ends, when it is cancelled.
    private func keep(_ task: Task<Void, Never>) {
        let hasEnded = self.state.withLockedValue { state in
            if !state.hasEnded { state.tasks.append(task) }
            return state.hasEnded
        }
        if hasEnded { task.cancel() }
    }

    // The outcome is consumed, so that a stream that the caller releases is not retained here for longer.
    private func end(_ outcome: consuming Outcome) {
        let (waiter, tasks) = self.state.withLockedValue { state in
            let ended = (state.waiter, state.tasks)
            state = State(hasEnded: true)
            return ended
        }
        for task in tasks { task.cancel() }
        waiter?.resume(returning: outcome)
    }
}

/// The time limit of a mocked call, which begins with it.
struct MockLimit: Sendable, CustomStringConvertible {
    /// A hundred years. The clocks of the system cannot wait much longer, and such a limit is none.
    private static let longest = Duration.seconds(3_155_760_000)

    /// Whether no time is left.
    let isReached: Bool
    /// The limit after a verb, such as `within 3.0 seconds`.
    let description: String
    private let sleep: @Sendable () async throws -> Void

    /// The earlier of the call's timeout and its deadline; nil if it has neither. The time that is left until the
    /// deadline is taken now, and passes by `clock`.
    init?(_ options: CallOptions, by clock: some Clock<Duration>) {
        let timeout = options.timeout ?? Self.longest
        let rest = options.deadline.map { Duration($0 - .now()) } ?? Self.longest
        let limit = min(timeout, rest)
        guard limit < Self.longest else { return nil }
        self.isReached = limit <= .zero
        self.description = timeout <= rest ? "within \(timeout)" : "before the call's deadline"
        let end = clock.now.advanced(by: limit)
        self.sleep = { try await clock.sleep(until: end, tolerance: nil) }
    }

    /// Starts a task that calls `action` when the limit is reached, unless it is cancelled before.
    func timer(_ action: @escaping @Sendable () -> Void) -> Task<Void, Never> {
        Task { [sleep] in
            do {
                try await sleep()
            } catch {
                return
            }
            action()
        }
    }
}
