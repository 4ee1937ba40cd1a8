// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

extension CallTable where Call: ~Copyable {
    /// A call in the table: its phase, and the attempt in progress.
    struct Entry: ~Copyable {
        /// Nil only in an entry that is being vacated.
        var call: Call?
        var facts: CallFacts
        var deadline: NIODeadline
        /// The time by which the answer must begin, or at which the back-off ends.
        var alarm = NIODeadline.distantFuture
        /// The number of bytes that it holds while it waits.
        var bytes = 0
        /// The connection on which it was sent.
        var connection = CallTable.noConnection
        var serial: UInt32 = 0
        /// The number of its valid ticket in line; its earlier tickets are stubs.
        var ticket: UInt32 = 0
        /// The number of attempts that have reached a connection.
        var attempts: UInt32 = 0
        var phase = Phase.idle
        /// Whether it keeps waiting even if no attempt to connect is in progress.
        var isPatient = false
        /// Whether it waits ahead of calls that have never been sent.
        var isReturning = false

        @inline(__always)
        init(_ call: consuming Call, _ facts: CallFacts, deadline: NIODeadline) {
            self.call = consume call
            self.facts = facts
            self.deadline = deadline
        }

        var isInFlight: Bool { self.serial != 0 }

        /// Whether the memory beside the entry is filled.
        @inline(__always)
        var keeps: Bool {
            switch self.call {
            case .some(let call): call.keeps
            case .none: false
            }
        }

        /// The flight of the call, if it has been made.
        var existingFlight: Flight? {
            switch self.call {
            case .some(let call): call.existingFlight
            case .none: nil
            }
        }

        /// Begins an attempt.
        mutating func join(_ serial: UInt32, _ connection: ConnectionID) {
            self.serial = serial
            self.phase = .sent
            self.connection = connection
            self.attempts += 1
        }

        /// Begins to wait for a connection.
        mutating func wait(bytes: Int, isPatient: Bool, isReturning: Bool) {
            self.phase = .waiting
            self.isPatient = isPatient
            self.isReturning = isReturning
            self.bytes = bytes
        }

        /// Draws a new ticket for the line and returns its number. The earlier tickets become stubs.
        mutating func nextTicket() -> UInt32 {
            self.ticket &+= 1
            return self.ticket
        }

        /// The attempt in progress counts as the one before.
        mutating func repeatsAttempt() {
            if self.attempts > 0 { self.attempts -= 1 }
        }

        /// Ends the attempt of the call, which becomes idle.
        mutating func end() {
            self.phase = .idle
            self.alarm = .distantFuture
            self.serial = 0
        }

        func stands(at ticket: UInt32) -> Bool { self.phase == .waiting && self.ticket == ticket }

        func isWaiting(until time: NIODeadline) -> Bool { self.deadline == time || self.alarm == time }
    }
}
