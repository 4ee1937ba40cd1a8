// SPDX-License-Identifier: Apache-2.0
import Foundation
import NIOCore

/// Records a ``ConnectionHistory`` from the events of a connection.
struct HistoryRecorder: Sendable {
    private(set) var history = ConnectionHistory()
    private var endpoint: Endpoint?
    private var attempt = 0
    private var readySince: NIODeadline?
    private var offlineSince: NIODeadline?
    /// The name of the current network, if it is known.
    var networkName: String?

    /// - Parameters:
    ///   - now: The time of the event, for spans.
    ///   - date: The time of the event, by the wall clock.
    mutating func happened(_ event: SocketEvent, now: NIODeadline, date: Date) {
        switch event {
        case .connecting(_, let attempt):
            self.attempt = attempt
        case .connectFailed(let error):
            self.history.record(.connectFailed(count: 1), endpoint: error.endpoint, error: error, at: date)
        case .connected(let endpoint):
            let offline = self.offlineSince.map { Duration(now - $0) }
            self.history.record(.connected(attempt: self.attempt, offline: offline), endpoint: endpoint, at: date)
            self.becameReady(endpoint, now: now)
        case .switched(let from, let to):
            let ready = self.readySince.map { Duration(now - $0) }
            self.history.record(.leftForAnotherServer(ready: ready, next: to), endpoint: from, at: date)
            self.becameReady(to, now: now)
        case .goAway(let endpoint, let reason, let retryAfter):
            self.history.record(.goAway(reason: reason, retryAfter: retryAfter), endpoint: endpoint, at: date)
        case .serverFails(let endpoint, let wrong, let calls):
            self.history.record(.serverFailed(wrong: wrong, calls: calls), endpoint: endpoint, at: date)
        case .disconnected(let error):
            let ready = self.readySince.map { Duration(now - $0) } ?? .zero
            self.history.record(.lost(ready: ready), endpoint: error.endpoint ?? self.endpoint, error: error, at: date)
            self.becameOffline(now: now)
        case .gaveUp(let error):
            self.history.record(.gaveUp, error: error, at: date)
        case .networkChanged(let isReachable):
            self.history.record(isReachable ? .networkChanged(name: self.networkName) : .networkLost, at: date)
        case .enteredBackground:
            self.history.record(.enteredBackground, at: date)
        case .willEnterForeground:
            self.history.record(.enteredForeground, at: date)
        case .closed:
            self.history.record(.closedByUser, endpoint: self.readySince == nil ? nil : self.endpoint, at: date)
            self.readySince = nil
            self.offlineSince = nil
        // Each attempt of a round that failed was recorded.
        case .handshaking, .switchFailed, .waiting:
            break
        }
    }

    private mutating func becameReady(_ endpoint: Endpoint, now: NIODeadline) {
        self.endpoint = endpoint
        self.readySince = now
        self.offlineSince = nil
    }

    private mutating func becameOffline(now: NIODeadline) {
        self.readySince = nil
        self.offlineSince = now
    }
}
