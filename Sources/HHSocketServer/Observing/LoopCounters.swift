// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers

/// The counts of one event loop of a server.
///
/// The lock is one that no other event loop contends for.
final class LoopCounters: Sendable {
    private struct State {
        var statistics = ServerStatistics()
        var connections = 0
        /// Whether a sweep for timeouts was requested and has not ended.
        var isSweeping = false
    }

    private let state = NIOLockedValueBox(State())

    // MARK: From any thread

    var statistics: ServerStatistics { self.state.withLockedValue { $0.statistics } }
    var connectionCount: Int { self.state.withLockedValue { $0.connections } }

    func count(_ counter: ServerCounter, by increment: Int = 1) {
        self.state.withLockedValue { $0.statistics[counter] += increment }
    }

    /// Calls `submit`, inside the lock, if there is a connection and no sweep is in progress.
    func beginSweep(_ submit: () -> Void) {
        self.state.withLockedValue { state in
            guard state.connections > 0, !state.isSweeping else { return }
            state.isSweeping = true
            submit()
        }
    }

    func endSweep() {
        self.state.withLockedValue { $0.isSweeping = false }
    }

    // MARK: On the event loop

    /// Takes the counts of the sessions, before one flushes: a client that has its answer may read the statistics next.
    func take(_ counts: SessionCounts) {
        self.state.withLockedValue { counts.move(to: &$0.statistics) }
    }

    func connectionBegan() {
        self.state.withLockedValue { $0.connections += 1 }
    }

    /// A connection has ended, and its counts were taken.
    func connectionEnded() {
        self.state.withLockedValue { $0.connections -= 1 }
    }
}
