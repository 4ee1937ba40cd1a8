/// The floor above a connection. Every method is called on the socket thread.
package protocol FrameConsumer: AnyObject {
    /// Frames may be sent from now on.
    func connectionIsReady(_ endpoint: Endpoint)
    /// The connection that was ready is no more; what was in flight will not be answered.
    func connectionWasLost(_ error: SocketError)
    /// Nothing is ready and no attempt is in progress; `error` is the last attempt's.
    func connectionIsOffline(_ error: SocketError)
    /// A round of attempts has begun.
    func connectionIsBeingMade()
    /// A response or a push. Heartbeats and other control frames do not come here.
    func received(_ frame: Frame)
    /// The same with a wrong checksum.
    func received(corrupt frame: Frame, _ mismatch: FrameDecoder.ChecksumMismatch)
    /// A frame that had to wait is about to leave. False drops it, because nobody wants it any more.
    func frameWillLeave(type: UInt32, serial: UInt32) -> Bool
    /// So many bytes of the frame's payload have left the queue. Only for payloads that leave in slices.
    func frameProgressed(type: UInt32, serial: UInt32, payloadBytes: Int)
    func happened(_ event: SocketEvent)
    /// The socket is gone for good: complete what there is.
    func socketWasInvalidated()
}
