import NIOConcurrencyHelpers

/// A value that comes once, from any thread, and that tasks wait for. Those that come later are ignored.
final class FirstValue<Value: Sendable>: Sendable {
    private enum State {
        case awaited([CheckedContinuation<Value, Never>])
        case fulfilled(Value)
    }

    private let state = NIOLockedValueBox(State.awaited([]))

    func fulfil(_ value: Value) {
        let waiting: [CheckedContinuation<Value, Never>] = self.state.withLockedValue { state in
            guard case .awaited(let waiting) = state else { return [] }
            state = .fulfilled(value)
            return waiting
        }
        for continuation in waiting { continuation.resume(returning: value) }
    }

    var value: Value {
        get async {
            await withCheckedContinuation { continuation in
                let value: Value? = self.state.withLockedValue { state in
                    switch state {
                    case .fulfilled(let value): return value
                    case .awaited(let waiting):
                        state = .awaited(waiting + [continuation])
                        return nil
                    }
                }
                if let value { continuation.resume(returning: value) }
            }
        }
    }
}
