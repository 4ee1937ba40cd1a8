// SPDX-License-Identifier: Apache-2.0
/// An observer of a ``Socket``, notified on the configuration's callback queue. Every method is optional.
///
/// Conform in an extension: there the compiler warns of a method whose name or parameters are nearly right, which would
/// never be called.
public protocol SocketDelegate: AnyObject, Sendable {
    /// The connection is ready; frames may be sent.
    func socket(_ socket: Socket, didConnectTo endpoint: Endpoint)
    /// An attempt failed; the next server is tried, or a wait begins.
    func socket(_ socket: Socket, didFailToConnectWith error: SocketError)
    /// A ready connection was lost, and the next attempt follows automatically; or it failed over to another server, to
    /// which a connection is already ready: then ``socket(_:didConnectTo:)`` is called next.
    func socket(_ socket: Socket, didDisconnectWith error: SocketError)
    /// No server could be reached within the allowed rounds, and attempts have stopped. The error is the last one.
    func socket(_ socket: Socket, didGiveUpWith error: SocketError)
    /// ``Socket/disconnect()`` was called.
    func socketDidClose(_ socket: Socket)
    /// A response or a push arrived. Heartbeats are answered by the socket itself. While more than 8 MiB of frames wait
    /// for the callback queue, reading from the network is suspended.
    func socket(_ socket: Socket, didReceive frame: Frame)
    /// A frame with a wrong checksum arrived; its payload must not be used.
    func socket(_ socket: Socket, didReceiveCorrupt frame: Frame)
    /// Bytes that are not a frame arrived, in a format whose frames end with separators: reading continues after the
    /// next one.
    func socket(_ socket: Socket, didReceiveMalformed error: FrameError)
}

extension SocketDelegate {
    public func socket(_ socket: Socket, didConnectTo endpoint: Endpoint) {}
    public func socket(_ socket: Socket, didFailToConnectWith error: SocketError) {}
    public func socket(_ socket: Socket, didDisconnectWith error: SocketError) {}
    public func socket(_ socket: Socket, didGiveUpWith error: SocketError) {}
    public func socketDidClose(_ socket: Socket) {}
    public func socket(_ socket: Socket, didReceive frame: Frame) {}
    public func socket(_ socket: Socket, didReceiveCorrupt frame: Frame) {}
    public func socket(_ socket: Socket, didReceiveMalformed error: FrameError) {}
}
