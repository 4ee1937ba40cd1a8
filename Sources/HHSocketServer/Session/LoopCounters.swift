import HHSocket
import NIOConcurrencyHelpers

/// What one event loop counts for its server: what its connections count in a turn is published when the turn ends.
///
/// The lock is one that no other event loop contends for.
final class LoopCounters: TurnHost, @unchecked Sendable {
    // Proof of Sendable: the variables are touched on the event loop alone, the rest is locked.
    private struct Published {
        var statistics = ServerStatistics()
        var connections = 0
        /// Whether a look after what takes too long has been asked for and has not ended.
        var isSweeping = false
    }

    private let published = NIOLockedValueBox(Published())
    /// What was counted in this turn; nil where nothing was.
    private var ofThisTurn: ServerStatistics?

    // MARK: From any thread

    var statistics: ServerStatistics { self.published.withLockedValue { $0.statistics } }
    var connectionCount: Int { self.published.withLockedValue { $0.connections } }

    func count(_ number: WritableKeyPath<ServerStatistics, Int>) {
        self.published.withLockedValue { $0.statistics[keyPath: number] += 1 }
    }

    /// Calls `submit`, inside the lock, if there is a connection and no sweep is under way.
    func beginSweep(_ submit: () -> Void) {
        self.published.withLockedValue { published in
            guard published.connections > 0, !published.isSweeping else { return }
            published.isSweeping = true
            submit()
        }
    }

    func endSweep() {
        self.published.withLockedValue { $0.isSweeping = false }
    }

    // MARK: On the event loop

    /// Takes what a connection has counted.
    func take(_ statistics: inout ServerStatistics) {
        var sum = self.ofThisTurn ?? ServerStatistics()
        sum += statistics
        self.ofThisTurn = sum
        statistics = ServerStatistics()
    }

    /// Shows everybody what was counted in this turn so far.
    func publish() {
        self.publish { _ in }
    }

    func connectionBegan() {
        self.published.withLockedValue { $0.connections += 1 }
    }

    /// A connection is not there any more, and what it has counted was taken.
    func connectionEnded() {
        // Together: whoever sees that it is gone may look at the statistics next.
        self.publish { $0.connections -= 1 }
    }

    private func publish(_ change: (inout Published) -> Void) {
        let counted = self.ofThisTurn.take()
        self.published.withLockedValue { published in
            if let counted { published.statistics += counted }
            change(&published)
        }
    }

    func turnEnds(in turn: inout Turn) {
        // Before the flush: a client that has its answer may look at the statistics next.
        if self.ofThisTurn != nil { self.publish() }
    }

    func turnEnded() {
        if self.ofThisTurn != nil { self.publish() }
    }
}
