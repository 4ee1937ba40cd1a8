// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketMessage
import NIOCore

/// Fail-over from servers that are about to end, without losing a call.
///
/// Once a server has announced its end, by go-away or by answering 504, no call is sent on its connection. It still
/// answers the requests that it has received. Those that it answers with 504 it has not run, and those still queued
/// here it has never seen: both wait, with new calls, for the connection's successor.
extension ClientCore {
    /// The number of times that a call is sent again after a 504. In a rolling restart it may meet several servers that
    /// are about to end, but not forever.
    static let maximumResends = 3
    /// The size, in bytes, of the longest go-away that is parsed.
    private static let maximumGoAwayLength = 64 << 10

    func receivedGoAway(_ frame: Frame, on id: ConnectionID) -> GoAway? {
        self.count(\.goAways)
        // Only a connection's first go-away is parsed, so that a flood of them costs only the counting.
        guard id != self.life.goneAway, self.left[id] == nil else { return nil }
        self.life.goneAway = id
        guard frame.payload.readableBytes <= Self.maximumGoAwayLength,
            let message = try? frame.payload.message(as: WireGoAway.self)
        else {
            self.count(\.malformedGoAways)
            return GoAway()
        }
        return GoAway(message)
    }

    func connectionGoesAway(_ id: ConnectionID, in turn: inout Turn) {
        guard id == self.connection?.id else { return }
        self.connection?.streams?.drains()
        for attempt in self.hot.table.linkGoesAway() {
            if let stream = attempt.call.flight.stream { self.connection?.streams?.drop(stream, in: &turn) }
            // It was never sent.
            attempt.call.flight.attempts = max(1, attempt.call.flight.attempts) - 1
            self.attemptAgain(attempt, isReturning: false, in: &turn)
        }
        self.endStreamLine(in: &turn)
    }

    func reconnectIsDeferred(in turn: inout Turn) {
        self.life.isReconnectDeferred = true
        let isInUse = self.hot.table.link == .goingAway && self.hot.table.inFlightCount > 0
        if isInUse || self.hot.table.waitingCount > 0 { self.reconnectSooner(in: &turn) }
    }

    func reconnectSooner(in turn: inout Turn) {
        self.life.isReconnectDeferred = false
        self.driver.perform(.reconnectSooner, in: &turn)
    }

    /// Sends a call again that the server did not run because it is shutting down: on the next connection, within its
    /// deadline, whatever its retry policy.
    ///
    /// - Returns: Whether it was sent again; otherwise the call fails.
    func isSentAgain(_ attempt: Attempt, _ error: SocketError, in turn: inout Turn) -> Bool {
        guard error.code == .draining, error.delivery == .answered, !self.driver.isClosed else { return false }
        // Even if the server has sent no go-away.
        if attempt.connection == self.hot.connectionID, self.hot.table.link == .ready {
            let departure = GoAway(reason: "it answers that it is about to end (504)")
            self.driver.perform(.goAway(attempt.connection, departure, isAnnounced: false), in: &turn)
        }
        let task = attempt.call
        guard task.flight.resends < Self.maximumResends, task.flight.stream?.flight.mayOpenAgain ?? true,
            attempt.connection != self.hot.connectionID || self.hot.table.link != .ready
        else { return false }
        task.flight.resends += 1
        task.flight.lastFailure = error
        if task.progressStartsOver() { self.showProgress(of: task, in: &turn) }
        self.reporter.isSentAgain(task.originalRequest.type, task.flight, after: error)
        self.attemptAgain(attempt, isReturning: true, in: &turn)
        return true
    }

    private func attemptAgain(_ attempt: Attempt, isReturning: Bool, in turn: inout Turn) {
        let request = self.request(of: attempt.call)
        let priority = attempt.call.priority
        let submission = self.hot.table.attemptAgain(
            attempt.key,
            priority,
            bytes: request.waitingLength,
            isReturning: isReturning
        )
        self.follow(submission, attempt.call, attempt.key, request, priority, in: &turn)
    }
}
