// SPDX-License-Identifier: Apache-2.0
import HHSocket
public import HHSocketFoundation
import NIOCore

/// Times and sizes of a call, as in `URLSessionTaskMetrics`.
public struct SocketTaskMetrics: Sendable, Hashable {
    /// The time at which the socket thread accepted the call.
    public let queued: Date
    /// The time at which the sending of the request began, the last time if there were several; nil if it was never
    /// sent.
    public let sent: Date?
    /// The time at which the first byte of the answer arrived; nil if none did.
    public let firstByte: Date?
    /// The time at which the call completed.
    public let completed: Date
    /// The time from ``queued`` to ``completed``, by a clock that cannot be set.
    public let duration: Duration
    /// The server that the request was sent to last; nil if it was never sent.
    public let server: Endpoint?
    /// The number of times that the request was sent, or queued because the server does not read.
    public let attempts: Int
    /// The number of bytes of bodies that were sent, in all attempts.
    public let bytesSent: Int
    /// The number of bytes of the answer's body that have arrived.
    public let bytesReceived: Int

    /// The metrics of a complete task; nil if the client never accepted it.
    init?(_ record: CallRecord, server: Endpoint?, by time: SocketTime) {
        guard let queued = record.queued.date, let completed = record.completed.date else { return nil }
        // The current time by both clocks, which diverge when the device sleeps or its clock is set.
        let (today, now) = (Date(), time.now())
        func date(_ moment: NIODeadline) -> Date {
            today.addingTimeInterval(Double((moment - now).nanoseconds) / 1e9)
        }
        self.queued = date(queued)
        self.sent = record.sent.date.map { date($0) }
        self.firstByte = record.firstByte.date.map { date($0) }
        self.completed = date(completed)
        self.duration = Duration(completed - queued)
        self.server = server
        self.attempts = Int(record.attempts)
        self.bytesSent = record.bytesSent
        self.bytesReceived = record.bytesReceived
    }
}
