// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Ends of connections that were made.
extension ConnectionMachine {
    /// A connection ended unexpectedly.
    ///
    /// - Parameter verdict: The consequences, as determined by its language or by the peer.
    mutating func connectionLost(
        _ id: ConnectionID,
        because error: SocketError,
        verdict: EndVerdict = EndVerdict(),
        now: NIODeadline
    ) -> [Action] {
        if self.draining.remove(id) != nil { return [.lost(id, error)] }
        if case (var making, let attempt)? = self.handshake(of: id) {
            making.stage = .racing(Race())
            return [.close(id)] + self.attemptFailed(making, at: attempt.endpoint, because: error, now: now)
        }
        guard let ready = self.ready, ready.connection.id == id else { return [] }
        self.lastError = error
        self.lastLost = id
        let next =
            if let departure = ready.departure {
                self.lost(ready, during: departure, because: error, now: now)
            } else {
                self.lost(ready, because: error, verdict: verdict, now: now)
            }
        return [.lost(id, error), .report(.disconnected(error))] + next
    }

    private mutating func lost(
        _ ready: Ready,
        because error: SocketError,
        verdict: EndVerdict,
        now: NIODeadline
    ) -> [Action] {
        let connection = ready.connection
        self.judge(connection, now: now)
        // Failures caused by the network or by a suspension do not affect the server's score.
        if verdict.isServersFault, self.canBeReached(connection.endpoint), !self.isInBackground, !connection.isSuspect {
            self.servers.failed(connection.endpoint, now: now, using: &self.generator)
        }
        if let successor = ready.successor { return self.replaceLost(with: successor) }
        self.phase = .idle
        switch verdict.next {
        case .never:
            return self.giveUp(error, isVerdict: true)
        case .atOnce where self.reasonToHold == nil:
            return self.startMaking(now: now)
        case .afterBackoff where connection.isSuspect && self.reasonToHold == nil:
            return self.makeSoon(instead: error, now: now)
        case .atOnce, .afterBackoff:
            return self.wait(for: error, now: now)
        }
    }

    /// The departing connection is lost before it has a successor. That is not the server's fault.
    private mutating func lost(
        _ ready: Ready,
        during departure: PendingDeparture,
        because error: SocketError,
        now: NIODeadline
    ) -> [Action] {
        // A server that accepts connections only to send them away is not tried sooner than it requested.
        if !departure.wasStable { self.servers.forbidEarlyRetry(ready.connection.endpoint) }
        // Rounds that failed while the server was shutting down do not concern its successor.
        self.failures = min(self.failures, departure.failuresBefore)
        if let successor = ready.successor { return self.replaceLost(with: successor) }
        self.phase = .idle
        guard self.reasonToHold == nil else { return self.wait(for: error, now: now) }
        return self.startMaking(now: now)
    }

    /// Makes the planned successor the next connection.
    private mutating func replaceLost(with successor: Making) -> [Action] {
        self.phase = .making(successor)
        return [.beingMade]
    }

    /// Updates the server's score when a connection ends.
    mutating func judge(_ connection: Connection, now: NIODeadline) {
        guard connection.isProved || Duration(now - connection.since) >= self.settings.backoff.resetAfter else {
            return
        }
        self.failures = 0
        self.servers.proved(connection.endpoint, now: now)
    }

    /// The connection has been of use, however short it was ready: when it ends the back-off starts over. That may be
    /// found out when it has just been lost.
    mutating func connectionIsProved(_ id: ConnectionID, now: NIODeadline) -> [Action] {
        switch self.phase {
        case .ready(var ready) where ready.connection.id == id:
            ready.connection.isProved = true
            self.phase = .ready(ready)
        case .waiting(var wait) where self.lastLost == id && !wait.isForReturn:
            self.failures = 0
            wait.until = min(wait.until, now.advanced(clamping: TimeAmount(clamping: self.nextDelay())))
            self.phase = .waiting(wait)
        default:
            break
        }
        return []
    }

    /// A draining connection has finished, and is closed.
    mutating func drained(_ id: ConnectionID) {
        self.draining.remove(id)
    }

    /// The connection has proved that it lives, after a ``Action/probe(_:)``.
    mutating func connectionIsAlive(_ id: ConnectionID) {
        guard case .ready(var ready) = self.phase, ready.connection.id == id, ready.connection.isSuspect else { return }
        ready.connection.isSuspect = false
        self.phase = .ready(ready)
    }
}
