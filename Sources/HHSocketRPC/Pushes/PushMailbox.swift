// SPDX-License-Identifier: Apache-2.0
import DequeModule
import NIOConcurrencyHelpers

/// The mailbox of one subscription: the socket thread appends pushes, and readers take them. Any thread.
final class PushMailbox: Sendable {
    /// Unchecked, since it is resumed once, by the code that removes it from the state under the lock.
    private typealias Reader = UnsafeContinuation<SocketPush?, Never>

    private struct State {
        var buffer: PushBuffer<SocketPush>
        /// The waiting readers. While there are any, the buffer is empty.
        var readers: Deque<Reader> = []
        /// Whether no more pushes are accepted.
        var isOver = false
        /// Whether the subscription was cancelled.
        var isCancelled = false
    }

    private let state: NIOLockedValueBox<State>
    private let changed: @Sendable (PushMailbox, Change) -> Void

    /// Changes that the reader has made.
    struct Change: Equatable, Sendable {
        /// Whether the subscription was cancelled.
        var isOver = false
        /// Whether reading from the network need no longer be suspended for this mailbox. True once for each time that
        /// ``append(_:)`` required it.
        var releasesReading = false
    }

    /// - Parameter changed: Notified, outside the lock, of the reader's changes.
    init(_ policy: PushBufferingPolicy, changed: @escaping @Sendable (PushMailbox, Change) -> Void) {
        self.state = NIOLockedValueBox(State(buffer: PushBuffer(policy)))
        self.changed = changed
    }

    /// Whether no more pushes are accepted.
    var isOver: Bool { self.state.withLockedValue { $0.isOver } }

    /// Whether the reader is so far behind that reading from the network must be suspended. Only ``append(_:)`` makes
    /// it true.
    var holdsReading: Bool { self.state.withLockedValue { !$0.isOver && $0.buffer.holdsReading } }

    /// Appends pushes that arrived together, and removes them from `pushes`. They are discarded if no more are
    /// accepted.
    func append(_ pushes: inout Deque<SocketPush>) -> PushBuffer<SocketPush>.Outcome {
        var resumed: [(Reader, SocketPush)] = []
        let outcome = self.state.withLockedValue { state in
            guard !state.isOver else { return PushBuffer<SocketPush>.Outcome() }
            while !state.readers.isEmpty, let push = pushes.popFirst() {
                resumed.append((state.readers.removeFirst(), push))
            }
            for index in pushes.indices where pushes[index].isSlice { pushes[index].detach() }
            return state.buffer.append(contentsOf: &pushes)
        }
        pushes.removeAll(keepingCapacity: true)
        for (reader, push) in resumed { reader.resume(returning: push) }
        return outcome
    }

    /// Waits for and returns the next push; nil if there are no more. Cancelling the calling task ends the
    /// subscription.
    ///
    /// - Parameter isolation: The caller's.
    func next(isolation: isolated (any Actor)?) async -> SocketPush? {
        await withTaskCancellationHandler {
            // A closure that captures the isolation runs in it. Otherwise it would begin elsewhere, and hop back.
            _ = isolation
            return await withUnsafeContinuation { self.read($0) }
        } onCancel: {
            self.cancel()
        }
    }

    /// Moves the oldest pushes into `batch`, which is empty, without waiting, up to the limit of a batch.
    func take(into batch: inout Deque<SocketPush>) {
        let releasesReading = self.state.withLockedValue { $0.buffer.take(into: &batch) }
        if releasesReading { self.changed(self, Change(releasesReading: true)) }
    }

    /// Returns pushes that a reader has taken but not used to the front.
    func giveBack(_ pushes: consuming Deque<SocketPush>) {
        var rest = pushes
        var resumed: [(Reader, SocketPush)] = []
        self.state.withLockedValue { state in
            guard !state.isCancelled else { return }
            while !rest.isEmpty, let reader = state.readers.popFirst() { resumed.append((reader, rest.removeFirst())) }
            state.buffer.giveBack(rest)
        }
        for (reader, push) in resumed { reader.resume(returning: push) }
    }

    private func read(_ reader: Reader) {
        let (next, mustWait) = self.state.withLockedValue { state in
            let next = state.buffer.popFirst()
            let mustWait = next == nil && !state.isOver
            if mustWait { state.readers.append(reader) }
            return (next, mustWait)
        }
        if !mustWait { reader.resume(returning: next?.element) }
        if next?.releasesReading == true { self.changed(self, Change(releasesReading: true)) }
    }

    /// Ends the subscription and discards the waiting pushes. May be called any number of times.
    func cancel() {
        let held = self.end { state in
            state.isCancelled = true
            state.buffer.removeAll()
        }
        self.changed(self, Change(isOver: true, releasesReading: held))
    }

    /// Accepts no more pushes. Waiting ones can still be read.
    func finish() {
        _ = self.end { _ in }
    }

    /// - Returns: Whether reading was suspended for this mailbox.
    private func end(_ change: (inout State) -> Void) -> Bool {
        let (readers, held) = self.state.withLockedValue { state in
            let held = !state.isOver && state.buffer.holdsReading
            state.isOver = true
            change(&state)
            defer { state.readers = [] }
            return (state.readers, held)
        }
        for reader in readers { reader.resume(returning: nil) }
        return held
    }
}
