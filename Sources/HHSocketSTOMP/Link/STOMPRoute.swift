// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOConcurrencyHelpers

/// The path of a subscription's messages to the user.
final class STOMPRoute: @unchecked Sendable {
    // Proof of Sendable: the constants are Sendable; the failure is locked; the rest is accessed only on the socket's
    // thread.

    /// The progress of SUBSCRIBE on the current connection.
    private enum State {
        case unsent
        case awaited(receipt: String)
        case confirmed
    }

    let id: String
    let ackMode: STOMPAckMode
    let delivery: MessageDelivery<STOMPMessage>
    /// The messages that wait to be read; nil if a handler or a delegate receives them.
    let inbox: Inbox<STOMPMessage>?
    private let failure = NIOLockedValueBox<SocketError?>(nil)
    private var state = State.unsent
    private var isAmongFirst = false
    private var refusals = 0
    /// The operations that wait for the subscription to be made.
    private var waiters: [STOMPOperation] = []

    init(
        id: String,
        _ ackMode: STOMPAckMode,
        _ delivery: MessageDelivery<STOMPMessage>,
        inbox: Inbox<STOMPMessage>?
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

    /// Whether the broker has dealt with it.
    var isConfirmed: Bool {
        if case .confirmed = self.state { true } else { false }
    }

    /// Whether the latest SUBSCRIBE was among the first frames of its connection.
    var isRestored: Bool { self.isAmongFirst }

    // MARK: Progress

    /// The subscription is among those that a connection begins with.
    func restore() { self.isAmongFirst = true }

    /// SUBSCRIBE is sent.
    func send(receipt: String) { self.state = .awaited(receipt: receipt) }

    /// The broker has dealt with SUBSCRIBE.
    ///
    /// - Returns: The operations that waited for that.
    func confirm() -> [STOMPOperation] {
        self.refusals = 0
        self.state = .confirmed
        return self.takeWaiters()
    }

    /// The connection has ended.
    func reset() {
        self.state = .unsent
        self.isAmongFirst = false
    }

    /// The broker has closed a connection with a close frame while only this subscription awaited confirmation.
    ///
    /// - Returns: The number of those in succession.
    func suspect() -> Int {
        self.refusals += 1
        return self.refusals
    }

    /// An operation waits for the subscription to be made.
    func wait(_ operation: STOMPOperation) {
        self.waiters.removeAll { !$0.isOpen }
        self.waiters.append(operation)
    }

    /// The operations that wait for the subscription to be made.
    var waiting: [STOMPOperation] { self.waiters }

    /// Returns the operations that wait for the subscription to be made, which no longer do.
    func takeWaiters() -> [STOMPOperation] {
        defer { self.waiters = [] }
        return self.waiters
    }

    /// The reason why no more messages arrive; nil if the user has ended the subscription.
    var error: SocketError? { self.failure.withLockedValue { $0 } }

    /// Ends the messages. Those that wait can still be read.
    func finish(_ error: SocketError?) {
        self.failure.withLockedValue { $0 = $0 ?? error }
        self.inbox?.finish()
    }
}
