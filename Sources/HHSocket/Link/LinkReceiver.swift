// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The floor above a link: the receiver of what arrives on one connection. First the connection that is being made,
/// then the session. All on the socket's thread.
package protocol LinkReceiver<Language>: AnyObject {
    associatedtype Language: LinkLanguage

    /// Units may have come. What is not pulled comes again.
    ///
    /// - Throws: ``LinkError`` when the bytes make no sense; the link ends by it.
    func received(_ batch: inout Batch<Language>, in turn: inout Turn) throws(LinkError)
    /// All that there was to read has been handed over, and where ``Link/tellsOfReads`` does not ask for more, a unit
    /// has not come whole.
    func finishedReading(in turn: inout Turn)
    /// A unit that had to wait is about to leave. False drops it, because nobody wants it any more.
    func unitWillBeSent(_ unit: Language.Unit, in turn: inout Turn) -> Bool
    /// A piece of a unit has left the queue.
    func unitProgressed(_ outgoing: Outgoing<Language.Unit>, in turn: inout Turn)
    /// All that could leave has left for now, where ``Link/tellsOfRoom`` asks for that. True if more was sent.
    func hasRoom(in turn: inout Turn) -> Bool
    /// All that could leave of a link that closes has left for now, where ``Link/tellsOfRoom`` asks for that.
    func hasLeft(in turn: inout Turn)
    /// The link ends by `end`. The peer may have said before what that means.
    func explain(_ end: LinkEnd) -> LinkEnd
    /// The link has ended, and these units of it have not begun to leave; those that have may or may not have arrived.
    /// Called once, before the link's host is notified.
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

/// Notified of what becomes of a link: the driver of a client, the session of a server.
package protocol LinkHost: AnyObject {
    func linkChanged(_ change: LinkChange, _ id: ConnectionID, in turn: inout Turn)
}

/// A change of a link.
package enum LinkChange {
    /// The channel of a link that was there before it has been connected.
    case active
    /// It has ended without our doing. Told once, and not after it was closed.
    case ended(LinkEnd)
    /// The peer sends nothing more, and may still read.
    case inputClosed
    /// A byte has come after ``DrivenLink/probe(isUrgent:in:)``, whether or not it answers a ping.
    case alive
    /// A ping was answered, or will never be.
    case beat(HeartbeatMonitor.Outcome)
    /// A beat was sent.
    case beatSent
    /// A beat could not be made, and was skipped.
    case beatFailed(any Error)
    /// The channel is gone: the last notification.
    case gone
}

/// How a link ended without our doing.
package struct LinkEnd: Sendable {
    package enum Cause: Sendable {
        /// The peer closed it, with the number of bytes of an incomplete unit; and whether anything had arrived before.
        case closedByPeer(unfinishedBytes: Int, hasReceived: Bool)
        case failed(any Error)
        /// The peer's bytes make no sense.
        case protocolViolation(LinkError)
        /// Too few of our bytes reached the peer.
        case writeStalled
        /// Nothing was received for this time.
        case peerIsDead(silentFor: TimeAmount, wePing: Bool)
        /// The peer said in its language that it ends the connection, and why.
        case said(SocketError)
    }

    package var cause: Cause
    package var verdict: EndVerdict

    package init(_ cause: Cause, _ verdict: EndVerdict = EndVerdict()) {
        self.cause = cause
        self.verdict = verdict
    }
}

/// An end that what carries the link has found: an error of the channel.
struct LinkEndError: Error {
    var end: LinkEnd

    init(_ end: LinkEnd) {
        self.end = end
    }
}

/// The consequences of the end of a connection: when the next is made, and whether the server is blamed.
package struct EndVerdict: Sendable, Equatable {
    package enum Next: Sendable, Equatable {
        /// After the back-off; at once where the network has changed below the connection.
        case afterBackoff
        case atOnce
        /// After the back-off, and not before this time has passed.
        case notBefore(Duration)
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

/// A link as the driver of a client sees it, which knows no units.
package protocol DrivenLink: AnyObject {
    var id: ConnectionID { get }
    /// The number of bytes that were sent and have not been handed to the kernel; zero where that is no more than what
    /// the channel takes without being asked.
    var queuedBytes: Int { get }
    /// Returns the traffic since the last call.
    func takeTraffic() -> Traffic
    /// From now on time counts: beats begin.
    func startBeats(interval: Duration?, in turn: inout Turn)
    func changeBeats(_ change: BeatsChange, in turn: inout Turn)
    /// Asks at once whether the peer lives, where it can be asked.
    ///
    /// - Parameter isUrgent: Whether one unanswered ping is enough to take it for dead.
    func probe(isUrgent: Bool, in turn: inout Turn)
    /// Takes no bytes from the network, or goes on. A link that closes reads on.
    func setReading(isSuspended: Bool, in turn: inout Turn)
    /// Ends the connection by choice, after what is queued has left.
    ///
    /// - Returns: Completes when the channel is gone; nil where it is.
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
