// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// The owner of a client's streams, as the streams of one connection see it. On the socket thread.
protocol StreamSide: AnyObject {
    /// Whether a plain call waits for the answer to this serial on this connection.
    func isAwaited(_ serial: UInt32, on id: ConnectionID) -> Bool
    /// The pieces so far of the answer to a plain call amount to `gathered` bytes, and others follow.
    func isReceiving(_ serial: UInt32, gathered: Int, on id: ConnectionID, in turn: inout Turn)
    /// An answer or a push is complete, or the answer that ends a stream.
    func received(whole frame: Frame, on id: ConnectionID, in turn: inout Turn)
    /// An answer or a push arrived in pieces that cannot be joined.
    func received(
        broken failure: PayloadFailure,
        type: UInt32,
        serial: UInt32,
        on id: ConnectionID,
        in turn: inout Turn
    )
    /// A frame of a call is about to be sent. Returns false if it is no longer needed.
    func willSend(type: UInt32, serial: UInt32, on id: ConnectionID, in turn: inout Turn) -> Bool
    /// `payloadBytes` of the payload of a call's request have been sent.
    func sent(type: UInt32, serial: UInt32, payloadBytes: Int, on id: ConnectionID, in turn: inout Turn)
    /// A stream has ended because of the server, or locally. The server has been notified.
    func failed(_ call: StreamCall, _ outcome: StreamOutcome, in turn: inout Turn)
    /// An open stream ends by an error of this side.
    func fail(_ call: StreamCall, _ error: SocketError, in turn: inout Turn)
    /// A stream has ended, so that another may be opened.
    func streamEnded(in turn: inout Turn)
}
