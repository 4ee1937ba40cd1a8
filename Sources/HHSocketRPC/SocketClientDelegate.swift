// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOConcurrencyHelpers

/// A receiver of events and pushes that belong to no call, on the configuration's callback queue. Every method is
/// optional.
///
/// Conform in an extension: there the compiler warns of a method whose name or parameters are nearly right, which would
/// never be called.
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

/// The delegate of a client, and the client, both held weakly. Any thread.
final class DelegateReference: ClientAudience {
    private struct References {
        weak var client: SocketClient?
        weak var delegate: (any SocketClientDelegate)?
    }

    private let references = NIOLockedValueBox(References())

    /// Sets the client that is passed to the delegate.
    func setClient(_ client: SocketClient) {
        self.references.withLockedValue { $0.client = client }
    }

    var delegate: (any SocketClientDelegate)? {
        get { self.references.withLockedValue { $0.delegate } }
        set { self.references.withLockedValue { $0.delegate = newValue } }
    }

    /// The delegate and its client, if both exist.
    private var both: (delegate: any SocketClientDelegate, client: SocketClient)? {
        let (delegate, client) = self.references.withLockedValue { ($0.delegate, $0.client) }
        guard let delegate, let client else { return nil }
        return (delegate, client)
    }

    func callback(for event: SocketEvent) -> SocketCallback? {
        guard let (delegate, client) = self.both else { return nil }
        return .closure { delegate.client(client, didReceive: event) }
    }

    func callback(for push: SocketPush, _ receipt: PushReceipt) -> SocketCallback? {
        guard let (delegate, client) = self.both else { return nil }
        return .closure {
            delegate.client(client, didReceive: push)
            receipt.isHandled()
        }
    }
}
