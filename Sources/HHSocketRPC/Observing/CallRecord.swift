// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The times and sizes of a call: the values of ``SocketTaskMetrics``.
struct CallRecord {
    /// A point in time that may be in the future.
    struct Moment {
        private var time: NIODeadline

        init(_ time: NIODeadline = .distantPast) {
            self.time = time
        }

        /// The time; nil until it has been set.
        var date: NIODeadline? { self.hasCome ? self.time : nil }
        var hasCome: Bool { self.time > .distantPast }

        /// Sets the moment unless it is set already.
        mutating func comesFirst(at time: NIODeadline) {
            if !self.hasCome { self.time = time }
        }
    }

    var queued = Moment()
    var sent = Moment()
    var firstByte = Moment()
    var completed = Moment()
    var attempts: UInt32 = 0
    var bytesSent = 0
    var bytesReceived = 0

    init() {}

    /// The record of a call that was sent at once, in its first attempt.
    init(_ facts: CallFacts, bytesSent: Int) {
        self.queued = Moment(facts.queued)
        self.sent = Moment(facts.sent)
        self.firstByte = Moment(facts.firstByte)
        self.attempts = 1
        self.bytesSent = bytesSent
    }

    /// Ends the record of a call whose answer has this length.
    mutating func isAnswered(_ length: Int, at time: NIODeadline) {
        self.firstByte.comesFirst(at: time)
        self.completed = Moment(time)
        self.bytesReceived = length
    }
}
