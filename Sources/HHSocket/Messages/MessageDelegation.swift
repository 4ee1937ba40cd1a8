// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers

/// Notifies a link's delegate on the callback queue, and suspends reading while that is behind. On the socket's thread,
/// except the delegate itself.
package final class MessageDelegation<Owner: AnyObject & Sendable, Delegate: Sendable, Message: InboxElement>:
    MessageTaking
{
    private struct State {
        weak var owner: Owner?
        /// Holds the delegate weakly.
        var delegate: @Sendable () -> Delegate? = { nil }
    }

    private let state = NIOLockedValueBox(State())
    private let handOver: @Sendable (Delegate, Owner, Message) -> Void
    /// Called when it is no longer full.
    private let whenRoom = NIOLockedValueBox<(@Sendable () -> Void)?>(nil)
    private let backlog = CallbackBacklog()
    /// Called when ``isFull`` has changed; on any thread.
    private let fullnessChanged: @Sendable () -> Void

    /// - Parameter handOver: Notifies the delegate of a message; called on the callback queue.
    package init(
        _ handOver: @escaping @Sendable (Delegate, Owner, Message) -> Void,
        fullnessChanged: @escaping @Sendable () -> Void
    ) {
        self.handOver = handOver
        self.fullnessChanged = fullnessChanged
    }

    package var isFull: Bool { self.backlog.isFull }

    /// The delegate, if there is one.
    package var delegate: Delegate? { self.state.withLockedValue { $0.delegate }() }

    package func setOwner(_ owner: Owner) {
        self.state.withLockedValue { $0.owner = owner }
    }

    /// - Parameter delegate: Returns the delegate, which it holds weakly.
    package func setDelegate(_ delegate: @escaping @Sendable () -> Delegate?) {
        self.state.withLockedValue { $0.delegate = delegate }
    }

    private var receiver: (delegate: Delegate, owner: Owner)? {
        let (delegate, owner) = self.state.withLockedValue { ($0.delegate, $0.owner) }
        guard let delegate = delegate(), let owner else { return nil }
        return (delegate, owner)
    }

    /// Notifies the delegate, if there is one.
    package func notify(on loop: SocketLoop, _ body: @escaping @Sendable (Delegate, Owner) -> Void) {
        guard let receiver = self.receiver else { return }
        loop.callBack(.closure { body(receiver.delegate, receiver.owner) })
    }

    package func whenRoom(_ body: @escaping @Sendable () -> Void) {
        self.whenRoom.withLockedValue { $0 = body }
        // Checked afterwards, since there may be room by now.
        if !self.isFull { self.hasRoom() }
    }

    private func hasRoom() {
        self.whenRoom.withLockedValue { $0.take() }?()
    }

    package func deliver(_ message: Message, on loop: SocketLoop) -> Bool {
        guard let receiver = self.receiver else { return false }
        let memory = message.memory
        var message = message
        if self.backlog.isBehind { message.detach(isOneOfMany: false) }
        if self.backlog.add(bytes: memory) { self.fullnessChanged() }
        loop.callBack(
            .closure { [message] in
                self.handOver(receiver.delegate, receiver.owner, message)
                guard self.backlog.remove(bytes: memory) else { return }
                self.hasRoom()
                self.fullnessChanged()
            }
        )
        return self.isFull
    }
}
