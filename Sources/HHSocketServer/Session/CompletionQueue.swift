// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOConcurrencyHelpers
import NIOCore

/// Carries the results of handlers from their tasks to the connection's event loop, waking it once per burst.
final class CompletionQueue: Sendable {
    /// The kind of a completion, for its count.
    enum Kind: Sendable {
        case ordinary
        /// The handler threw an error that is not a status.
        case failed
        /// The deadline had passed before the handler began.
        case late
        /// The answer was kept for the idempotency key.
        case repeated
        /// The body could not be decompressed, or its key is another request's.
        case illegal
        /// Too many requests with the same key wait for an answer.
        case waiting
        /// Too many bytes are held for the body to be decompressed.
        case overload
    }

    struct Completion: Sendable {
        var answer: Frame
        /// The handler's run that produced the result.
        var run: UInt64
        var requestCost: RequestCost
        /// The number of bytes that are charged for the answer until it is taken.
        var answerCost = 0
        var kind = Kind.ordinary
    }

    private struct State {
        var waiting: [Completion] = []
        var wake: (@Sendable (inout Turn) -> Void)?
    }

    private let loop: SocketLoop
    private let state: NIOLockedValueBox<State>

    /// - Parameter wake: Run in a turn of the event loop whenever there are results to take; nil: the queue is closed.
    init(loop: SocketLoop, wake: (@Sendable (inout Turn) -> Void)?) {
        self.loop = loop
        self.state = NIOLockedValueBox(State(wake: wake))
    }

    /// Closes the queue: results that are added later are dropped.
    ///
    /// - Returns: The results that were not taken.
    func close() -> [Completion] {
        self.state.withLockedValue { state in
            defer { state = State() }
            return state.waiting
        }
    }

    /// - Returns: Whether the result will be taken, or is among the results that ``close()`` returns.
    func append(_ completion: Completion) -> Bool {
        self.state.withLockedValue { state in
            guard let wake = state.wake else { return false }
            state.waiting.append(completion)
            // Submitted inside the lock, so that the event loop is never given anything after `close()`: it may be gone
            // by then.
            if state.waiting.count == 1 { self.loop.submit(wake) }
            return true
        }
    }

    func takeAll() -> [Completion] {
        self.state.withLockedValue { state in
            defer { state.waiting = [] }
            return state.waiting
        }
    }
}
