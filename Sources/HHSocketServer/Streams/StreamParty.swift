// SPDX-License-Identifier: Apache-2.0
import DequeModule
import HHSocket
import NIOCore

/// The server's code at one end of a stream, as its connection sees it. On the event loop.
protocol StreamParty: AnyObject {
    var id: StreamID { get }
    var serial: UInt32 { get }
    /// The number of the run of its handler.
    var run: UInt64 { get }
    /// Whether nothing goes on until the client sends items, or takes those that it was sent.
    var waitsForClient: Bool { get }

    /// Called when items are complete.
    ///
    /// - Parameter items: Emptied.
    func received(_ items: inout Deque<StreamItem>)
    /// Called when the client has ended its items.
    func itemsEnded()
    /// Called when the connection accepts items again.
    func goOn()
    /// Tells the streams what was taken, and hands over the items to be sent.
    ///
    /// - Parameter isLast: Whether the answer follows.
    func settle(_ machine: inout ServerStreams, isLast: Bool, now: NIODeadline)
    /// Called once, when the stream is over.
    ///
    /// - Parameter error: The status that it was ended by.
    func ended(_ error: StatusError)
}

/// The session of streams, as its handlers' sides use it. On the event loop.
protocol StreamHost: AnyObject {
    /// A handler has taken items or sends some.
    func visit(_ party: some StreamParty, in turn: inout Turn)
    /// A stream carries a file.
    func carryContent(_ id: StreamID, window: UInt64, in turn: inout Turn)
    /// An item of a stream could not be read.
    func failStream(_ id: StreamID, _ status: Status, in turn: inout Turn)
}
