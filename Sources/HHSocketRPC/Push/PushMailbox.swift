import DequeModule
import NIOConcurrencyHelpers

/// Where the socket thread leaves the pushes of one subscription, and its reader finds them. Any thread.
final class PushMailbox: Sendable {
    typealias Appended = PushBuffer<SocketPush>.Appended
    private typealias Reader = CheckedContinuation<SocketPush?, Never>

    private struct State {
        var buffer: PushBuffer<SocketPush>
        /// Readers that wait; while there are any, no push does.
        var readers: Deque<Reader> = []
        /// No push comes any more.
        var isOver = false
    }

    private let state: NIOLockedValueBox<State>
    private let changed: @Sendable (PushMailbox, Change) -> Void

    /// What the reader has changed.
    struct Change: Equatable, Sendable {
        /// Whether nobody reads any more.
        var isOver = false
        /// Whether reading from the network was held for this mailbox and is not any more. True as often as ``append(_:)`` said that
        /// it is held.
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

    /// Nil if no push comes here any more.
    func append(_ push: SocketPush) -> Appended? {
        let (reader, appended) = self.state.withLockedValue { state -> (Reader?, Appended?) in
            guard !state.isOver else { return (nil, nil) }
            if let reader = state.readers.popFirst() { return (reader, .kept) }
            return (nil, state.buffer.append(push.detached))
        }
        reader?.resume(returning: push)
        return appended
    }

    /// The next push; nil if none comes any more. Cancelling the calling task ends the subscription.
    func next() async -> SocketPush? {
        await withTaskCancellationHandler {
            // For what waits already no continuation need be allocated.
            if let push = self.take() { return push }
            return await withCheckedContinuation { self.read($0) }
        } onCancel: {
            self.cancel()
        }
    }

    /// The oldest push that waits; nil if none does.
    func take() -> SocketPush? {
        let next = self.state.withLockedValue { $0.buffer.popFirst() }
        if next?.releasesReading == true { self.changed(self, Change(releasesReading: true)) }
        return next?.element
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
        let held = self.end { $0.removeAll() }
        self.changed(self, Change(isOver: true, releasesReading: held))
    }

    /// Nobody sends any more. What waits can still be read.
    func finish() {
        _ = self.end { _ in }
    }

    /// - Returns: Whether reading was held for this mailbox.
    private func end(_ change: (inout PushBuffer<SocketPush>) -> Void) -> Bool {
        let (readers, held) = self.state.withLockedValue { state in
            let held = !state.isOver && state.buffer.holdsReading
            state.isOver = true
            change(&state.buffer)
            defer { state.readers = [] }
            return (state.readers, held)
        }
        for reader in readers { reader.resume(returning: nil) }
        return held
    }
}
