// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// The connections that have a successor, with the numbers of their calls in flight: each has drained after its last
/// call.
struct DrainCounts {
    /// The connections with calls in flight.
    private var counts: [ConnectionID: Int] = [:]
    /// The drained connections that have not been returned yet.
    private var drained: [ConnectionID] = []

    /// Begins to drain a connection with this number of calls in flight.
    mutating func begin(_ connection: ConnectionID, inFlight: Int) {
        if inFlight > 0 {
            self.counts[connection] = inFlight
        } else {
            self.drained.append(connection)
        }
    }

    /// Records that a call in flight on this connection has ended. Has no effect on one that is not draining.
    mutating func callEnded(on connection: ConnectionID) {
        guard let count = self.counts[connection] else { return }
        self.counts[connection] = count > 1 ? count - 1 : nil
        if count <= 1 { self.drained.append(connection) }
    }

    /// Ends the draining of a connection that was lost.
    mutating func connectionWasLost(_ connection: ConnectionID) {
        self.counts[connection] = nil
    }

    /// Whether ``nextDrained()`` returns a connection.
    var hasDrained: Bool { !self.drained.isEmpty }

    /// Removes and returns a drained connection.
    mutating func nextDrained() -> ConnectionID? { self.drained.popLast() }
}
