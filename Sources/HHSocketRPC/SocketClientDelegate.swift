// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// A receiver of events and pushes that belong to no call, on the configuration's callback queue. Every method is
/// optional.
public protocol SocketClientDelegate: AnyObject, Sendable {
    /// Called for each event of the connection, such as when it was made or lost.
    func client(_ client: SocketClient, didReceive event: SocketEvent)
    /// Called with a push that has no subscriber. While more than 8 MiB of them wait for the callback queue, nothing
    /// more is read from the network, including answers.
    func client(_ client: SocketClient, didReceive push: SocketPush)
}

extension SocketClientDelegate {
    public func client(_ client: SocketClient, didReceive event: SocketEvent) {}
    public func client(_ client: SocketClient, didReceive push: SocketPush) {}
}
