// SPDX-License-Identifier: Apache-2.0
public import HHSocket

/// An observer of a ``STOMPClient``, notified on the configuration's callback queue, in the order of events. Every
/// method is optional.
///
/// Conform in an extension: there the compiler warns of a method whose name or parameters are nearly right, which would
/// never be called.
public protocol STOMPClientDelegate: AnyObject, Sendable {
    /// A broker has accepted the connection. Subscriptions are made, and waiting messages are sent now.
    func stompClient(_ client: STOMPClient, didConnect agreement: STOMPAgreement)
    /// A message of a subscription that was made while there was a delegate has arrived. While more than 8 MiB of them
    /// wait for the callback queue, reading from the network is suspended.
    func stompClient(_ client: STOMPClient, didReceive message: STOMPMessage)
    /// A message of no subscription has arrived, such as an answer to a temporary queue of RabbitMQ.
    func stompClient(_ client: STOMPClient, didReceiveUnclaimed message: STOMPMessage)
    /// An accepted connection has ended, by this error; nil: by ``STOMPClient/disconnect()``. Its `underlying` is a
    /// ``STOMPServerError`` if the broker has sent ERROR. The next attempt follows automatically, unless the user has
    /// closed it or the configuration says otherwise.
    func stompClient(_ client: STOMPClient, didCloseWith error: SocketError?)
    /// An attempt failed; the next one follows after the back-off.
    func stompClient(_ client: STOMPClient, didFailToConnectWith error: SocketError)
    /// Attempts have stopped: the broker refused CONNECT, or as many rounds as are allowed have failed.
    func stompClient(_ client: STOMPClient, didGiveUpWith error: SocketError)
}

extension STOMPClientDelegate {
    public func stompClient(_ client: STOMPClient, didConnect agreement: STOMPAgreement) {}
    public func stompClient(_ client: STOMPClient, didReceive message: STOMPMessage) {}
    public func stompClient(_ client: STOMPClient, didReceiveUnclaimed message: STOMPMessage) {}
    public func stompClient(_ client: STOMPClient, didCloseWith error: SocketError?) {}
    public func stompClient(_ client: STOMPClient, didFailToConnectWith error: SocketError) {}
    public func stompClient(_ client: STOMPClient, didGiveUpWith error: SocketError) {}
}
