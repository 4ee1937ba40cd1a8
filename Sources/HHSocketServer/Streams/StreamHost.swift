// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

/// The session of streams, as its handlers' sides use it. On the event loop.
protocol StreamHost: AnyObject {
    /// A handler has taken items or sends some.
    func visit(_ party: any StreamParty, _ id: StreamID, in turn: inout Turn)
    /// A stream carries a file.
    func carryContent(_ id: StreamID, window: UInt64, in turn: inout Turn)
    /// An item of a stream could not be read.
    func failStream(_ id: StreamID, _ status: Status, in turn: inout Turn)
}
