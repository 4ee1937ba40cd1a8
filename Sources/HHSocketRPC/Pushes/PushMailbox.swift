import DequeModule
import NIOConcurrencyHelpers

/// A box in which the socket thread puts the pushes of one subscription, and from which its readers take them. For any
/// thread.
final class PushMailbox: Sendable {
    /// Unchecked: whoever removes it from the state, under the lock, resumes it once.
    private typealias Reader = UnsafeContinuation<SocketPush?, Never>

    private struct State {
        var buffer: PushBuffer<SocketPush>
        /// Readers that wait; while there are any, no push does.
        var readers: Deque<Reader> = []
        /// No push comes any more.
        var isOver = false
        /// Nobody reads any more.
        var isCancelled = false
    }

    private let state: NIOLockedValueBox<State>
    private let changed: @Sendable (PushMailbox, Change) -> Void

    /// Changes that the reader has made.
    struct Change: Equatable, Sendable {
        /// Whether nobody reads any more.
        var isOver = false
        /// Whether reading from the network was held for this mailbox and is not any more. True as often as
        /// ``append(_:)`` said that it is held.
        var releasesReading = false
    }

    /// - Parameter changed: Told, outside the lock, what the reader has changed.
    init(_ policy: PushBufferingPolicy, changed: @escaping @Sendable (PushMailbox, Change) -> Void) {
        self.state = NIOLockedValueBox(State(buffer: PushBuffer(policy)))
        self.changed = changed
    }

    /// Whether no push comes any more.
    var isOver: Bool { self.state.withLockedValue { $0.isOver } }

    /// Whether the reader is so far behind that nothing more should be read from the network. Becomes true by
    /// ``append(_:)`` alone.
    var holdsReading: Bool { self.state.withLockedValue { !$0.isOver && $0.buffer.holdsReading } }

    /// Leaves pushes that have come together, and removes them from `pushes`; if none comes here any more, they are
    /// thrown away.
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

    /// The next push, waiting for it; nil if none comes any more. Cancelling the calling task ends the subscription.
    ///
    /// - Parameter isolation: The caller's.
    func next(isolation: isolated (any Actor)?) async -> SocketPush? {
        await withTaskCancellationHandler {
            // What captures the isolation has it. Else it would begin elsewhere, and come back.
            _ = isolation
            return await withUnsafeContinuation { self.read($0) }
        } onCancel: {
            self.cancel()
        }
    }

    /// Moves the oldest pushes into `batch`, which is empty, without waiting: as many as a reader takes at once.
    func take(into batch: inout Deque<SocketPush>) {
        let releasesReading = self.state.withLockedValue { $0.buffer.take(into: &batch) }
        if releasesReading { self.changed(self, Change(releasesReading: true)) }
    }

    /// Puts back in front what a reader has taken and not used.
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

    /// Nobody reads any more: what waits is thrown away. Any number of times.
    func cancel() {
        let held = self.end { state in
            state.isCancelled = true
            state.buffer.removeAll()
        }
        self.changed(self, Change(isOver: true, releasesReading: held))
    }

    /// Nobody sends any more. What waits can still be read.
    func finish() {
        _ = self.end { _ in }
    }

    /// - Returns: Whether reading was held for this mailbox.
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
