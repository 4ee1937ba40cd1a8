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
    }

    /// The first answer to a request.
    ///
    /// - Parameters:
    ///   - run: Finds it, if this is the first.
    ///   - isKept: Whether it is an answer that repeats are to get.
    /// - Returns: It, and whether it was there before.
    func answer(
        _ key: IdempotencyKey,
        _ run: () async -> KeptAnswer,
        isKept: (KeptAnswer) -> Bool
    ) async -> (KeptAnswer, isRepeat: Bool) {
        while true {
            switch await self.turn(key) {
            case .run:
                let answer = await run()
                let kept = isKept(answer) ? answer : nil
                let waiters = self.state.withLockedValue { $0.window.finish(key, kept, now: .now()) }
                for waiter in waiters { waiter.resume(returning: kept) }
                return (answer, false)
            case .over(let answer?):
                return (answer, true)
            case .over(nil) where Task.isCancelled:
                return (KeptAnswer(status: .cancelledByServer, body: ByteBuffer(), metadata: [:]), false)
            case .over(nil):
                // The first has come to nothing: perhaps it is for us to be the next.
                continue
            }
        }
    }

    private func turn(_ key: IdempotencyKey) async -> Turn {
        let number = self.state.withLockedValue { state in
            state.lastNumber += 1
            return state.lastNumber
        }
        let isFirst = NIOLockedValueBox(false)
        let answer = await withTaskCancellationHandler {
            await withCheckedContinuation { (waiter: Waiter) in
                let answer: KeptAnswer?? = self.state.withLockedValue { state in
                    switch state.window.begin(key, number: number, waiter, now: .now()) {
                    case .run:
                        isFirst.withLockedValue { $0 = true }
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
        return isFirst.withLockedValue { $0 } ? .run : .over(answer)
    }
}
