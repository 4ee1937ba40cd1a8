import NIOCore

/// The floor above a connection. Every method is called on the socket thread.
package protocol FrameConsumer: AnyObject {
    /// Frames may be sent from now on, and leave by this connection, on which hello has led to `agreement`; nil: there was
    /// none, or the server does without. If another one was ready, it is told of by ``connectionDrains(_:)`` next.
    func connectionIsReady(_ id: ConnectionID, _ endpoint: Endpoint, _ agreement: Agreement?)
    /// The server of the ready connection is about to end: nothing new should be sent by it, and a successor will be made. What
    /// is in flight on it may still be answered.
    func connectionIsLeaving(_ id: ConnectionID)
    /// The next attempts to connect begin later, by themselves: who waits for them calls ``FrameCarrier/pullForward()``.
    func attemptIsPutOff()
    /// A go-away has come, on a connection that is ready, draining or in its handshake. What it says; nil if it is to be
    /// ignored. Without an own implementation the server is left without a look at what the frame says.
    func receivedGoAway(_ frame: Frame, on id: ConnectionID) -> ServerDeparture?
    /// The connection has a successor. What is in flight on it may still be answered; call
    /// ``FrameCarrier/finishDraining(_:)`` as soon as nothing is.
    func connectionDrains(_ id: ConnectionID)
    /// The connection is no more; what was in flight on it will not be answered.
    func connectionWasLost(_ id: ConnectionID, _ error: SocketError)
    /// Nothing is ready and no attempt is in progress; `error` is the last attempt's.
    func connectionIsOffline(_ error: SocketError)
    /// Nothing is ready, and a connection is being made.
    func connectionIsBeingMade()
    /// A response or a push, whose type has its flags, whatever was agreed on. Heartbeats and other control frames do not come
    /// here.
    func received(_ frame: Frame, on id: ConnectionID)
    /// The same for a frame of the standard format that has come whole, as nearly all do: the parts of one.
    func received(_ header: FrameHeader, _ payload: consuming ByteBuffer, on id: ConnectionID)
    /// The same with a wrong checksum.
    func received(corrupt frame: Frame, _ mismatch: FrameDecoder.ChecksumMismatch, on id: ConnectionID)
    /// So much of a response or a push has come so far. Once for each read that ends inside of one.
    func isReceiving(_ arriving: FrameDecoder.Arriving)
    /// A frame that had to wait is about to leave. False drops it, because nobody wants it any more.
    func frameWillLeave(type: UInt32, serial: UInt32, on id: ConnectionID) -> Bool
    /// So many bytes of the frame's payload have left the queue. Only for payloads that leave in slices.
    func frameProgressed(type: UInt32, serial: UInt32, payloadBytes: Int)
    func happened(_ event: SocketEvent)
    /// The moment asked for by ``FrameCarrier/setConsumerTimer(_:)`` has come.
    func timerFired()
    /// A turn is about to end, or a read: what is sent now still leaves with its flush.
    func turnEnds()
    /// A turn has ended: what it did can be measured.
    func turnEnded()
    /// The socket is gone for good: complete what there is.
    func socketWasInvalidated()
}

extension FrameConsumer {
    package func connectionIsLeaving(_ id: ConnectionID) {}

    package func attemptIsPutOff() {}

    package func turnEnds() {}

    package func receivedGoAway(_ frame: Frame, on id: ConnectionID) -> ServerDeparture? { ServerDeparture() }

    package func received(_ header: FrameHeader, _ payload: consuming ByteBuffer, on id: ConnectionID) {
        self.received(Frame(header, payload), on: id)
    }
}
