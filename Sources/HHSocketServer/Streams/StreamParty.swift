// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// The server's code at one end of a stream, as its connection sees it. On the event loop.
protocol StreamParty: AnyObject {
    var id: StreamID { get }
    var serial: UInt32 { get }
    /// The number of the run of its handler.
    var run: UInt64 { get }

    /// Items have come whole.
    func received(_ items: [StreamItem])
    /// The client sends no more items.
    func itemsEnded()
    /// The connection takes items again.
    func goOn()
    /// Tells the streams what was taken, and hands them what is to be sent.
    ///
    /// - Parameter isLast: Whether the answer follows.
    func settle(_ machine: inout ServerStreams, isLast: Bool, now: NIODeadline)
    /// The stream is over. Told once.
    ///
    /// - Parameter error: The status that it was ended by.
    func ended(_ error: StatusError)
}
