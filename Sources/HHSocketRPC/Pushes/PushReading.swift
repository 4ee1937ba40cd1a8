import DequeModule

/// The batch that one reader has taken out of a mailbox: it goes through that without locks, and puts back the rest
/// when it ends. One task at a time.
final class PushReading {
    private let mailbox: PushMailbox
    private var batch: Deque<SocketPush> = []

    init(_ mailbox: PushMailbox) {
        self.mailbox = mailbox
    }

    deinit {
        if !self.batch.isEmpty { self.mailbox.giveBack(self.batch) }
    }

    /// The next push, waiting for it; nil if none comes any more. Cancelling the calling task ends the subscription.
    ///
    /// - Parameter isolation: The caller's.
    func next(isolation: isolated (any Actor)?) async -> SocketPush? {
        if Task.isCancelled {
            self.batch = []
            self.mailbox.cancel()
            return nil
        }
        if self.batch.isEmpty { self.mailbox.take(into: &self.batch) }
        if let push = self.batch.popFirst() { return push }
        return await self.mailbox.next(isolation: isolation)
    }
}
