/// The pushes that ``SocketClient/pushes(ofType:buffering:)`` and ``SocketClient/pushes(buffering:)`` subscribe to.
///
/// The subscription ends when this sequence and its iterators are gone, when a Swift task that reads it is cancelled, and when
/// the client is released; in the last case what waits can still be read. Several iterators share the pushes: each push goes
/// to one of them. For a second reader of all, subscribe once more.
public struct SocketPushes: AsyncSequence, Sendable {
    public typealias Element = SocketPush
    public typealias Failure = Never

    /// Held by all that read; when it goes, nobody reads any more.
    fileprivate final class Reader: Sendable {
        private let mailbox: PushMailbox

        init(_ mailbox: PushMailbox) {
            self.mailbox = mailbox
        }

        deinit {
            self.mailbox.cancel()
        }

        func next() async -> SocketPush? { await self.mailbox.next() }
    }

    private let reader: Reader

    init(_ mailbox: PushMailbox) {
        self.reader = Reader(mailbox)
    }

    public struct Iterator: AsyncIteratorProtocol {
        fileprivate let reader: SocketPushes.Reader

        /// The next push, waiting for it; nil once the subscription has ended.
        public mutating func next() async -> SocketPush? { await self.reader.next() }
    }

    public func makeAsyncIterator() -> Iterator { Iterator(reader: self.reader) }
}
