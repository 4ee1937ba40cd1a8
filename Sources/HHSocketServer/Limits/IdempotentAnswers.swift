import HHSocket
import NIOConcurrencyHelpers
import NIOCore

/// The answers to requests with keys, for each of which the handler runs once. Any thread.
final class IdempotentAnswers: Sendable {
    private typealias Waiter = CheckedContinuation<KeptAnswer?, Never>

    private struct State {
        var window: IdempotencyWindow<Waiter>
        var lastNumber: UInt64 = 0
    }

    private let state: NIOLockedValueBox<State>

    init(_ policy: IdempotencyPolicy) {
        self.state = NIOLockedValueBox(State(window: IdempotencyWindow(policy)))
    }

    private enum Turn: Sendable {
        case run
        case over(KeptAnswer?)
        case refused(Source)
    }

    /// The origin of an answer.
    enum Source: Sendable {
        case handler
        /// The answer was kept, or another request's handler has returned it.
        case `repeat`
        /// Too many repeats wait for the handler.
        case overload
        /// The key is that of another request.
        case contradiction
    }

    /// Returns the first answer to a request.
    ///
    /// - Parameters:
    ///   - request: The fingerprint of the request.
    ///   - run: Runs the handler, if this is the first.
    ///   - isKept: Whether an answer is kept for repeats.
    func answer(
        _ key: IdempotencyKey,
        _ request: RequestFingerprint,
        _ run: () async -> KeptAnswer,
        isKept: (KeptAnswer) -> Bool
    ) async -> (KeptAnswer, Source) {
        while true {
            switch await self.turn(key, request) {
            case .run:
                let answer = await run()
                let kept = isKept(answer) ? answer : nil
                let waiters = self.state.withLockedValue { $0.window.finish(key, kept, now: .now()) }
                // A transient failure also answers the repeats that waited for it: if each of them ran the handler, a
                // thousand would run it a thousand times. If the first was cancelled, one of them takes its place.
                let shared = kept ?? (Task.isCancelled ? nil : answer)
                for waiter in waiters { waiter.resume(returning: shared) }
                return (answer, .handler)
            case .over(let answer?):
                return (answer, .repeat)
            case .over(nil) where Task.isCancelled:
                return (KeptAnswer(status: .cancelledByServer, body: ByteBuffer(), metadata: [:]), .handler)
            case .over(nil):
                // The first has no answer: perhaps this request is the next.
                continue
            case .refused(let source):
                let status: Status = source == .overload ? .overloaded : .illegalFormat
                let reason = source == .overload ? "too many repeats wait" : "this key is that of another request"
                return (KeptAnswer(status: status, body: ByteBuffer(string: reason), metadata: [:]), source)
            }
        }
    }

    private func turn(_ key: IdempotencyKey, _ request: RequestFingerprint) async -> Turn {
        let number = self.state.withLockedValue { state in
            state.lastNumber += 1
            return state.lastNumber
        }
        // The decision of the window, if it is not to wait.
        let instead = NIOLockedValueBox<Turn?>(nil)
        let answer = await withTaskCancellationHandler {
            await withCheckedContinuation { (waiter: Waiter) in
                let answer: KeptAnswer?? = self.state.withLockedValue { state in
                    switch state.window.begin(key, request, number: number, waiter, now: .now()) {
                    case .run:
                        instead.withLockedValue { $0 = .run }
                        return .some(nil)
                    case .full:
                        instead.withLockedValue { $0 = .refused(.overload) }
                        return .some(nil)
                    case .contradiction:
                        instead.withLockedValue { $0 = .refused(.contradiction) }
                        return .some(nil)
                    case .answered(let answer):
                        return answer
                    case .wait:
                        guard Task.isCancelled else { return nil }
                        // If it is cancelled later, the handler below finds it.
                        _ = state.window.abandon(key, number)
                        return .some(nil)
                    }
                }
                if let answer { waiter.resume(returning: answer) }
            }
        } onCancel: {
            self.state.withLockedValue { $0.window.abandon(key, number) }?.resume(returning: nil)
        }
        return instead.withLockedValue { $0 } ?? .over(answer)
    }
}
