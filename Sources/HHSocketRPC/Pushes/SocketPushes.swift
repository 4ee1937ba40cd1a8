/// The pushes that ``SocketClient/pushes(ofType:buffering:)`` and ``SocketClient/pushes(buffering:)`` subscribe to.
///
/// The subscription ends when this sequence and its iterators are gone, when a Swift task that reads it is cancelled,
/// and when the client is released; in the last case what waits can still be read. Several iterators share the pushes:
/// each push goes to one of them. For a second reader of all, subscribe once more.
///
/// An iterator takes pushes that wait in batches, and goes through a batch without locks and changes of threads. What
/// is left of its batch when the iterator goes waits again.
public struct SocketPushes: AsyncSequence, Sendable {
    public typealias Element = SocketPush
    public typealias Failure = Never

    /// Held by all that read; when it goes, nobody reads any more.
    fileprivate final class Subscription: Sendable {
        let mailbox: PushMailbox

        init(_ mailbox: PushMailbox) {
            self.mailbox = mailbox
        }

        deinit {
            self.mailbox.cancel()
        }
    }

    private let subscription: Subscription

    init(_ mailbox: PushMailbox) {
        self.subscription = Subscription(mailbox)
    }

    public struct Iterator: AsyncIteratorProtocol {
        // Before the subscription, whose end throws away what waits.
        private let reading: PushReading
        private let subscription: Subscription

        fileprivate init(_ subscription: Subscription) {
            self.reading = PushReading(subscription.mailbox)
            self.subscription = subscription
        }

        /// The next push, waiting for it; nil once the subscription has ended.
        public mutating func next() async -> SocketPush? { await self.next(isolation: nil) }

        /// The next push, waiting for it where the caller runs; nil once the subscription has ended.
        public mutating func next(isolation actor: isolated (any Actor)? = #isolation) async -> SocketPush? {
            defer { withExtendedLifetime(self.subscription) {} }
            return await self.reading.next(isolation: actor)
        }
    }

    public func makeAsyncIterator() -> Iterator { Iterator(self.subscription) }
}
