// SPDX-License-Identifier: Apache-2.0
import HHSocket

extension CallTable where Call: ~Copyable {
    /// Whether calls can be sent now.
    enum LinkState: Sendable {
        case offline, connecting, ready
        /// The connection only finishes calls in flight. Other calls wait for its successor.
        case goingAway
    }

    /// The progress of a call.
    enum Phase: Sendable {
        /// Waits for a connection; has no serial yet.
        case waiting
        /// Queued because the peer does not read; no byte has been sent.
        case queued
        /// Bytes have been sent.
        case sent
        /// Waits for the next attempt.
        case backingOff
        /// No attempt is in progress: the previous one has ended, or the first has not begun.
        case idle
    }

    /// The decision on a call that should be sent.
    enum Submission {
        case send(DispatchKey, serial: UInt32)
        case wait(DispatchKey)
        /// The call stays in the table without an attempt.
        case refuse(Refusal)
    }

    enum Refusal: Hashable, Sendable {
        case offline, tooManyInFlight, queueFull
    }

    /// The classification of an answer.
    enum Reception {
        case answer(Attempt)
        /// Its call timed out or was cancelled before.
        case late
        /// Its call was answered before.
        case duplicate
        /// No call had this serial.
        case unknown

        init(_ unawaited: Serials.Unawaited) {
            self =
                switch unawaited {
                case .late: .late
                case .duplicate: .duplicate
                case .unknown: .unknown
                }
        }
    }

    /// An attempt of a call, with its progress when it began or ended.
    struct Attempt {
        var key: DispatchKey
        var flight: Flight
        var phase: Phase
        /// The serial of the attempt, if it has one.
        var serial: UInt32?
        /// The connection on which it was sent, if it was.
        var connection = CallTable.noConnection
        /// The number of the call's attempts that have reached a connection.
        var count = 0
    }

    /// A call that was answered, and is no longer in the table.
    struct Answered: ~Copyable {
        let call: Call
        let facts: CallFacts

        @inline(__always)
        consuming func take() -> Call { self.call }
    }

    /// An event at a point in time.
    enum Alarm {
        /// The call's deadline has passed; it has been removed from the table.
        case expired(Attempt)
        /// An attempt has ended because its answer did not begin in time.
        case noFirstResponse(Attempt)
        /// The back-off is over: the next attempt is due.
        case retry(DispatchKey, Flight)
    }

    /// The connection of calls that have not been sent.
    static var noConnection: ConnectionID { ConnectionID(number: 0) }
}
