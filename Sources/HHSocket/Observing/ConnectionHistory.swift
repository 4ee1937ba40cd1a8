// SPDX-License-Identifier: Apache-2.0
public import Foundation
import HHSocketMessage

/// The latest 32 events of a connection, with their causes: the answer to "why did it reconnect?".
///
/// Its description has one line per entry, oldest first, in UTC:
/// ```
/// 2026-11-21T12:00:01.123Z lost 10.0.0.1:7000 after 63.2 s ready: connectionLost: the server closed it
/// 2026-11-21T12:00:01.480Z connect failed 10.0.0.1:7000 3 times until 2026-11-21T12:00:04.002Z: connectionRefused: …
/// 2026-11-21T12:00:06.310Z connected 10.0.0.2:7000 at attempt 4, after 5.2 s without a connection
/// ```
public struct ConnectionHistory: Sendable {
    /// The kind of event. Cases may be added; have a default when you switch over it.
    public enum Kind: Hashable, Sendable {
        /// A connection is ready, at this attempt counted from 1. `offline` is the time without a connection; nil for
        /// the first.
        case connected(attempt: Int, offline: Duration?)
        /// A connection that had been ready for this time was lost.
        case lost(ready: Duration)
        /// A number of attempts failed with the same server and code.
        case connectFailed(count: Int)
        /// No server could be reached within the allowed rounds; attempts have stopped.
        case gaveUp
        /// The user disconnected.
        case closedByUser
        /// The connection failed over, by choice, to the server `next`, after having been ready for this time. Neither
        /// value is nil in a recorded history.
        case leftForAnotherServer(ready: Duration?, next: Endpoint?)
        /// The server announced its shutdown, with a reason, and asked clients to stay away for this time.
        case goAway(reason: String, retryAfter: Duration)
        /// Too many of the latest calls failed; the client fails over, if there is another server.
        case serverFailed(wrong: Int, calls: Int)
        /// The app went to the background.
        case enteredBackground
        /// The app returned to the foreground.
        case enteredForeground
        /// The network was lost.
        case networkLost
        /// The network has changed or returned; its name, if the monitor or the app knows it.
        case networkChanged(name: String?)
    }

    /// An event, or several equal ones.
    public struct Entry: Sendable {
        /// The time of the event, or of the first of several, by the wall clock.
        public package(set) var date: Date
        /// The time of the last event.
        package var lastDate: Date
        public package(set) var kind: Kind
        /// The server concerned.
        public package(set) var endpoint: Endpoint?
        /// The cause, of the last event if there were several.
        public package(set) var error: SocketError?
    }

    /// The number of entries that are kept by default.
    package static let defaultCapacity = 32

    /// The number of entries that are kept; the oldest are dropped.
    package let capacity: Int
    /// The events, oldest first.
    public private(set) var entries: [Entry] = []

    /// - Parameter capacity: The number of entries that are kept, 32 by default, 1 at least.
    package init(capacity: Int = Self.defaultCapacity) {
        self.capacity = max(1, capacity)
    }

    /// Adds an event. Consecutive failed attempts are one entry for each server and code, so that a long outage does
    /// not displace its beginning.
    package mutating func record(
        _ kind: Kind,
        endpoint: Endpoint? = nil,
        error: SocketError? = nil,
        at date: Date
    ) {
        if case .connectFailed(let count) = kind, let index = self.indexOfFailure(like: error, at: endpoint),
            case .connectFailed(let before) = self.entries[index].kind
        {
            self.entries[index].kind = .connectFailed(count: before.addingClamped(count))
            self.entries[index].lastDate = date
            self.entries[index].error = error
            return
        }
        self.entries.append(Entry(date: date, lastDate: date, kind: kind, endpoint: endpoint, error: error))
        if self.entries.count > self.capacity { self.entries.removeFirst() }
    }

    private func indexOfFailure(like error: SocketError?, at endpoint: Endpoint?) -> Int? {
        for index in self.entries.indices.reversed() {
            guard case .connectFailed = self.entries[index].kind else { return nil }
            if self.entries[index].endpoint == endpoint, self.entries[index].error?.code == error?.code { return index }
        }
        return nil
    }
}

extension ConnectionHistory: CustomStringConvertible {
    /// One line per entry, oldest first; empty if nothing happened.
    public var description: String { self.entries.map(\.description).joined(separator: "\n") }
}

extension ConnectionHistory.Entry: CustomStringConvertible {
    /// The time, what happened, where, and why, in one line.
    public var description: String {
        let line = "\(self.date.inUTC) \(self.whatHappened)\(self.error.map { ": \($0)" } ?? "")"
        // Messages may quote text of a peer; an entry must stay one line.
        return String(line.map { $0.isNewline ? " " : $0 })
    }

    private var whatHappened: String {
        let server = self.endpoint.map { " \($0)" } ?? ""
        switch self.kind {
        case .connected(let attempt, let offline):
            let wait = offline.map { ", after \($0.forHumans) without a connection" } ?? ""
            return "connected\(server) at attempt \(attempt)\(wait)"
        case .lost(let ready):
            return "lost\(server) after \(ready.forHumans) ready"
        case .connectFailed(let count):
            return "connect failed\(server)" + (count > 1 ? " \(count) times until \(self.lastDate.inUTC)" : "")
        case .gaveUp:
            return "gave up\(server)"
        case .closedByUser:
            return "closed\(server) by the user"
        case .leftForAnotherServer(let ready, let next):
            let time = ready.map { " after \($0.forHumans) ready" } ?? ""
            return "left\(server)\(time) for \(next.map { "\($0)" } ?? "another server")"
        case .goAway(let reason, let retryAfter):
            return "go-away from\(server), for \(retryAfter.forHumans)" + (reason.isEmpty ? "" : ": \(reason)")
        case .serverFailed(let wrong, let calls):
            return "\(wrong) of \(calls) calls\(self.endpoint.map { " to \($0)" } ?? "") failed"
        case .enteredBackground:
            return "the app went to the background"
        case .enteredForeground:
            return "the app returned to the foreground"
        case .networkLost:
            return "the network was lost"
        case .networkChanged(let name):
            return "the network changed" + (name.map { " to \($0)" } ?? "")
        }
    }
}

extension Date {
    /// ISO 8601 with milliseconds, such as `2026-11-21T12:00:01.123Z`. Formatted by hand, since Foundation truncates
    /// instead of rounding, which at times turns .123 into .122. Dates are clamped to the years 0001 to 9999.
    var inUTC: String {
        let range = -62_135_596_800.0...253_402_300_799.0
        let seconds = self.timeIntervalSince1970
        let clamped = seconds.isNaN ? 0 : min(max(seconds, range.lowerBound), range.upperBound)
        let milliseconds = Int64((clamped * 1_000).rounded())
        let (whole, fraction) = milliseconds.flooringDivision(by: 1_000)
        return "\(CivilDate.text(secondsSince1970: whole)).\(fraction.padded(3))Z"
    }
}

extension Duration {
    /// A short text, independent of the locale: `250 ms`, `63.2 s`, `2 h 5 min`.
    var forHumans: String {
        // Clamped to a century, so that nothing overflows.
        let seconds = min(max(self, .zero), .seconds(100 * 365 * 86_400)).inSeconds
        let milliseconds = Int64((seconds * 1_000).rounded())
        if milliseconds < 1_000 { return "\(milliseconds) ms" }
        let tenths = Int64((seconds * 10).rounded())
        if tenths < 6_000 { return "\(tenths / 10).\(tenths % 10) s" }
        let minutes = Int64((seconds / 60).rounded())
        return minutes < 60 ? "\(minutes) min" : "\(minutes / 60) h \(minutes % 60) min"
    }
}
