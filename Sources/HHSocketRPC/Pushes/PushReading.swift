// SPDX-License-Identifier: Apache-2.0
import DequeModule

/// A reader of a mailbox, which takes pushes in batches, processes a batch without locks, and returns the rest when it
/// is released. For one task at a time.
final class PushReading {
    private let mailbox: PushMailbox
    private var batch: Deque<SocketPush> = []

    init(_ mailbox: PushMailbox) {
        self.mailbox = mailbox
    }

    deinit {
        if !self.batch.isEmpty { self.mailbox.giveBack(self.batch) }
    }

    /// Waits for and returns the next push; nil if there are no more. Cancelling the calling task ends the
    /// subscription.
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
