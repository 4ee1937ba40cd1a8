import HHSocket

/// Told what no call tells, on the configuration's callback queue. Every method is optional.
public protocol SocketClientDelegate: AnyObject, Sendable {
    /// The connection was made, lost, given up …
    func client(_ client: SocketClient, didReceive event: SocketEvent)
    /// A push came that nobody subscribed to. While more than 8 MiB of them wait for the callback queue nothing more is
    /// read from the network, answers included.
    func client(_ client: SocketClient, didReceive push: SocketPush)
}

extension SocketClientDelegate {
    public func client(_ client: SocketClient, didReceive event: SocketEvent) {}
    public func client(_ client: SocketClient, didReceive push: SocketPush) {}
}
