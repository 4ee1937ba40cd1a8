// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The receiver of the units of one connection: first the connection being made, then the session. All methods are
/// called on the socket's thread.
package protocol LinkReceiver<Language>: AnyObject {
    associatedtype Language: LinkLanguage

    /// Units may have arrived. Units that are not pulled are offered again.
    ///
    /// - Throws: ``LinkError`` if the bytes are invalid, which ends the link.
    func received(_ batch: inout Batch<Language>, in turn: inout Turn) throws(LinkError)
    /// Everything available has been read, and either a unit is incomplete or ``Link/reportsReads`` is set.
    func finishedReading(in turn: inout Turn)
    /// A waiting unit is about to be sent. Returning false drops it, because it is no longer needed.
    func unitWillBeSent(_ unit: Language.Unit, in turn: inout Turn) -> Bool
    /// A piece of a unit has been sent.
    func unitProgressed(_ outgoing: Outgoing<Language.Unit>, in turn: inout Turn)
    /// Everything that could be sent has been flushed for now, if ``Link/reportsRoom`` is set. Returns whether more was
    /// sent.
    func hasRoom(in turn: inout Turn) -> Bool
    /// Everything that a closing link could send has been flushed for now, if ``Link/reportsRoom`` is set.
    func hasLeft(in turn: inout Turn)
    /// The link ends with `end`. Returns its cause, which the peer may have sent before.
    func explain(_ end: LinkEnd) -> LinkEnd
    /// The link has ended. The sending of these units has not begun; others may or may not have arrived. Called once,
    /// before the link's host is notified.
    func linkEnded(returning units: [Language.Unit], in turn: inout Turn)
}

extension LinkReceiver {
    package func finishedReading(in turn: inout Turn) {}
    package func unitWillBeSent(_ unit: Language.Unit, in turn: inout Turn) -> Bool { true }
    package func unitProgressed(_ outgoing: Outgoing<Language.Unit>, in turn: inout Turn) {}
    package func hasRoom(in turn: inout Turn) -> Bool { false }
    package func hasLeft(in turn: inout Turn) {}
    package func explain(_ end: LinkEnd) -> LinkEnd { end }
    package func linkEnded(returning units: [Language.Unit], in turn: inout Turn) {}
}

/// The host of a link, which is notified of its state: the driver of a client, the session of a server.
package protocol LinkHost: AnyObject {
    func linkChanged(_ change: LinkChange, _ id: ConnectionID, in turn: inout Turn)
}

/// A change of a link.
package enum LinkChange {
    /// The channel of a link that existed before it has been connected.
    case active
    /// The link has ended unexpectedly. Reported once, and not after it was closed.
    case ended(LinkEnd)
    /// The peer sends nothing more, and may still read.
    case inputClosed
    /// A byte has arrived after ``DrivenLink/probe(isUrgent:in:)``, whether or not it answers a ping.
    case alive
    /// A ping was answered, or will never be.
    case beat(HeartbeatMonitor.Outcome)
    case beatSent
    /// A beat could not be made, and was skipped.
    case beatFailed(any Error)
    /// The channel is closed: the last notification.
    case gone
}

/// The reason why a link ended without our doing.
package struct LinkEnd: Sendable {
    package enum Cause: Sendable {
        /// The peer closed it, with the number of bytes of an incomplete unit; and whether anything had arrived before.
        case closedByPeer(unfinishedBytes: Int, hasReceived: Bool)
        case failed(any Error)
        /// The peer's bytes are malformed.
        case protocolViolation(LinkError)
        /// Too few of our bytes reached the peer.
        case writeStalled
        /// Nothing was received for this time.
        case peerIsDead(silentFor: TimeAmount, wePing: Bool)
        /// The peer announced in its language that it ends the connection, with the reason.
        case said(SocketError)
    }

    package var cause: Cause
    package var verdict: EndVerdict

    package init(_ cause: Cause, _ verdict: EndVerdict = EndVerdict()) {
        self.cause = cause
        self.verdict = verdict
    }
}

/// An end that the transport of the link has detected: an error of the channel.
struct LinkEndError: Error {
    var end: LinkEnd

    init(_ end: LinkEnd) {
        self.end = end
    }
}

/// The consequences of the end of a connection: when the next is made, and whether the server is blamed.
package struct EndVerdict: Sendable, Equatable {
    package enum Next: Sendable, Equatable {
        /// After the back-off; at once if the network has changed below the connection.
        case afterBackoff
        case atOnce
        case never
    }

    package var next: Next
    /// Whether it is held against the server.
    package var isServersFault: Bool

    package init(_ next: Next = .afterBackoff, isServersFault: Bool = true) {
        self.next = next
        self.isServersFault = isServersFault
    }
}

/// A link without its units, as the driver of a client uses it.
package protocol DrivenLink: AnyObject {
    var id: ConnectionID { get }
    /// The number of bytes that were sent and have not been handed to the kernel; zero if the channel accepts them
    /// without waiting.
    var queuedBytes: Int { get }
    /// Returns the traffic since the last call.
    func takeTraffic() -> Traffic
    /// Starts the beats and the other timers.
    func startBeats(interval: Duration?, in turn: inout Turn)
    func changeBeats(_ change: BeatsChange, in turn: inout Turn)
    /// Probes at once whether the peer lives, if it can be probed.
    ///
    /// - Parameter isUrgent: Whether one unanswered ping is enough to consider it dead.
    func probe(isUrgent: Bool, in turn: inout Turn)
    /// Suspends or resumes reading. A closing link continues to read.
    func setReading(isSuspended: Bool, in turn: inout Turn)
    /// Ends the connection by choice, after the queue has been sent.
    ///
    /// - Returns: A future that completes when the channel is closed; nil if it is.
    @discardableResult
    func close(_ reason: CloseReason, in turn: inout Turn) -> EventLoopFuture<Void>?
    /// Closes the channel at once.
    func kill()
}

/// A change of the beats of a link.
package enum BeatsChange: Sendable {
    /// No pings, and no death for the lack of answers.
    case pause
    case resume
    /// The interval, from the same bytes as before.
    case interval(Duration)
}
