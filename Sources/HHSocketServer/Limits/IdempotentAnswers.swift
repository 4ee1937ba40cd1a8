import HHSocket
import NIOConcurrencyHelpers
import NIOCore

/// Has requests with keys answered once. For any thread.
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
        /// It was there before, or another request's handler has found it.
        case `repeat`
        /// Too many wait for that handler.
        case overload
        /// The key is that of another request.
        case contradiction
    }

    /// The first answer to a request.
    ///
    /// - Parameters:
    ///   - request: What is asked for.
    ///   - run: Finds it, if this is the first.
    ///   - isKept: Whether it is an answer that repeats are to get.
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
                // A transient failure is the answer of those that waited for it too: if each of them ran the handler, a
                // thousand would run it a thousand times. A first that was cancelled leaves its place to one of them.
                let shared = kept ?? (Task.isCancelled ? nil : answer)
                for waiter in waiters { waiter.resume(returning: shared) }
                return (answer, .handler)
            case .over(let answer?):
                return (answer, .repeat)
            case .over(nil) where Task.isCancelled:
                return (KeptAnswer(status: .cancelledByServer, body: ByteBuffer(), metadata: [:]), .handler)
            case .over(nil):
                // The first has come to nothing: perhaps it is for us to be the next.
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
        // Where the window says what to do instead of waiting.
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
                        // Cancelled from here on, it is found by the handler below.
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
