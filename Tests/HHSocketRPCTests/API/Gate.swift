import NIOConcurrencyHelpers

/// Where tasks wait until a test lets them pass.
final class Gate: Sendable {
    private struct State {
        var isOpen = false
        var waiting: [Int: CheckedContinuation<Void, any Error>] = [:]
        var last = 0
        var cancelled: Set<Int> = []
    }

    private let state = NIOLockedValueBox(State())

    /// How many have come so far.
    var count: Int { self.state.withLockedValue { $0.last } }
    var waitingCount: Int { self.state.withLockedValue { $0.waiting.count } }

    /// From now on everybody passes.
    func open() {
        let waiting = self.state.withLockedValue { state in
            state.isOpen = true
            defer { state.waiting = [:] }
            return state.waiting.values
        }
        for continuation in waiting { continuation.resume() }
    }

    /// - Throws: `CancellationError` when the task is cancelled.
    func wait() async throws {
        let number = self.state.withLockedValue { state in
            state.last += 1
            return state.last
        }
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                let result: Result<Void, any Error>? = self.state.withLockedValue { state in
                    if state.cancelled.remove(number) != nil { return .failure(CancellationError()) }
                    if state.isOpen { return .success(()) }
                    state.waiting[number] = continuation
                    return nil
                }
                if let result { continuation.resume(with: result) }
            }
        } onCancel: {
            let continuation = self.state.withLockedValue { state in
                guard let continuation = state.waiting.removeValue(forKey: number) else {
                    state.cancelled.insert(number)
                    return nil as CheckedContinuation<Void, any Error>?
                }
                return continuation
            }
            continuation?.resume(throwing: CancellationError())
        }
    }
}
