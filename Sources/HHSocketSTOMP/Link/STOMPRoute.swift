// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOConcurrencyHelpers

/// The path of a subscription's messages to the user.
final class STOMPRoute: @unchecked Sendable {
    // Proof of Sendable: the constants are Sendable; the failure is locked; the rest is accessed only on the socket's
    // thread.

    /// The progress of SUBSCRIBE on the current connection.
    enum State {
        case unsent
        case awaited(receipt: String)
        case confirmed
    }

    let id: String
    let ackMode: STOMPAckMode
    let delivery: MessageDelivery<STOMPMessage>
    /// The messages that wait to be read; nil if a handler or a delegate receives them.
    let inbox: MessageInbox<STOMPMessage>?
    private let failure = NIOLockedValueBox<SocketError?>(nil)
    var state = State.unsent
    /// Whether the latest SUBSCRIBE was among the first frames of its connection.
    var isRestored = false
    /// The number of connections in succession that the broker has closed with a close frame while only this
    /// subscription awaited confirmation.
    var refusals = 0
    /// The operations that wait for the subscription to be made.
    var waiters: [STOMPOperation] = []

    init(
        id: String,
        _ ackMode: STOMPAckMode,
        _ delivery: MessageDelivery<STOMPMessage>,
        inbox: MessageInbox<STOMPMessage>?
    ) {
        self.id = id
        self.ackMode = ackMode
        self.delivery = delivery
        self.inbox = inbox
    }

    /// The receipt that is awaited.
    var receipt: String? {
        if case .awaited(let receipt) = self.state { receipt } else { nil }
    }

    /// Whether SUBSCRIBE has been sent on the current connection.
    var isSent: Bool {
        if case .unsent = self.state { false } else { true }
    }

    /// The reason why no more messages arrive; nil if the user has ended the subscription.
    var error: SocketError? { self.failure.withLockedValue { $0 } }

    /// Ends the messages. Those that wait can still be read.
    func finish(_ error: SocketError?) {
        self.failure.withLockedValue { $0 = $0 ?? error }
        self.inbox?.finish()
    }
}
