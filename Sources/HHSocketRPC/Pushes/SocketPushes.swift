// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// The pushes that ``SocketClient/pushes(ofType:buffering:)`` and ``SocketClient/pushes(buffering:)`` subscribe to.
///
/// The subscription ends when this sequence and its iterators are released, when a Swift task that reads it is
/// cancelled, and when the client is released; in the last case waiting pushes can still be read. Several iterators
/// share the pushes: each push goes to one of them. For a second reader of every push, subscribe once more.
///
/// An iterator takes waiting pushes in batches, and processes a batch without locks and thread hops. When it is
/// released, the rest of its batch is returned to the buffer.
public struct SocketPushes: AsyncSequence, Sendable {
    public typealias Failure = Never

    /// Held by the sequence and its iterators. Its release ends the subscription.
    fileprivate final class Subscription: Sendable {
        let inbox: PushInbox

        init(_ inbox: PushInbox) {
            self.inbox = inbox
        }

        deinit {
            self.inbox.cancel()
        }
    }

    private let subscription: Subscription

    init(_ inbox: PushInbox) {
        self.subscription = Subscription(inbox)
    }

    public struct Iterator: AsyncIteratorProtocol {
        // Released before the subscription, whose end discards the waiting pushes.
        private let reader: PushInbox.Reader
        private let subscription: Subscription

        fileprivate init(_ subscription: Subscription) {
            self.reader = subscription.inbox.makeReader()
            self.subscription = subscription
        }

        /// Waits for and returns the next push; nil once the subscription has ended.
        public mutating func next() async -> SocketPush? { await self.next(isolation: nil) }

        /// Waits where the caller runs, and returns the next push; nil once the subscription has ended.
        public mutating func next(isolation actor: isolated (any Actor)? = #isolation) async -> SocketPush? {
            defer { withExtendedLifetime(self.subscription) {} }
            return await self.reader.next(isolation: actor)
        }
    }

    public func makeAsyncIterator() -> Iterator { Iterator(self.subscription) }
}
