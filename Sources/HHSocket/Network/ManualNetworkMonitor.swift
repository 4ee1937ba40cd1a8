// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers

/// A network monitor whose path is set by hand: for an app with better information than the system, and for tests.
///
/// All methods may be called from any thread.
public final class ManualNetworkMonitor: NetworkMonitor {
    private struct State {
        var path: NetworkPath
        var observers: [Int: AsyncStream<NetworkPath>.Continuation] = [:]
        var lastID = 0
    }

    private let state: NIOLockedValueBox<State>

    /// - Parameter path: The current path; reachable by default.
    public init(_ path: NetworkPath = NetworkPath(isReachable: true)) {
        self.state = NIOLockedValueBox(State(path: path))
    }

    /// The current path.
    package var path: NetworkPath { self.state.withLockedValue { $0.path } }

    /// Sets the current path, and notifies every observer if it has changed.
    public func update(_ path: NetworkPath) {
        self.state.withLockedValue { state in
            guard path != state.path else { return }
            state.path = path
            // Under the lock, so that the paths of concurrent updates arrive in the order in which they are set.
            for observer in state.observers.values { observer.yield(path) }
        }
    }

    public func paths() -> AsyncStream<NetworkPath> {
        let (stream, continuation) = AsyncStream.ofPaths()
        let id = self.state.withLockedValue { state in
            state.lastID += 1
            state.observers[state.lastID] = continuation
            continuation.yield(state.path)
            return state.lastID
        }
        continuation.onTermination = { [weak self] _ in
            self?.state.withLockedValue { _ = $0.observers.removeValue(forKey: id) }
        }
        return stream
    }

    deinit {
        for observer in self.state.withLockedValue({ Array($0.observers.values) }) { observer.finish() }
    }

    /// The number of streams being read.
    var observerCount: Int { self.state.withLockedValue { $0.observers.count } }
}
