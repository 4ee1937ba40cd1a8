import DequeModule
import NIOConcurrencyHelpers
import NIOCore

/// A message that may wait to be read.
package protocol InboxMessage: Sendable {
    /// The number of bytes that it keeps.
    var length: Int { get }
}

/// Messages that have arrived and were not read yet: bounded, since reading from the network is suspended while too
/// many wait.
package final class MessageInbox<Message: InboxMessage>: Sendable {
    /// One iterator. Where it is released while it has a message, the message counts as handled.
    package final class Reader: @unchecked Sendable {
        // Proof of Sendable: the inbox is Sendable itself; the variables are touched under its lock alone, and by the
        // last reference.
        private let inbox: MessageInbox
        /// Whether it has a message, and has not come back for the next.
        fileprivate var isHandling = false
        /// Whether the task that asks for a message was cancelled.
        fileprivate var isCancelled = false

        fileprivate init(_ inbox: MessageInbox) {
            self.inbox = inbox
        }

        deinit {
            if self.isHandling { self.inbox.handled() }
        }

        /// Waits for and returns the next message; nil if there will be none, or if the calling task was cancelled.
        package func next(isolation: isolated (any Actor)?) async -> Message? {
            self.inbox.begin(self)
            return await withTaskCancellationHandler {
                _ = isolation
                return await withUnsafeContinuation { self.inbox.read(self, $0) }
            } onCancel: {
                self.inbox.cancel(self)
            }
        }
    }

    private struct State {
        var messages: Deque<Message> = []
        var bytes = 0
        /// The largest number of messages since there was none.
        var highest = 0
        /// Those that wait for a message, the first come first.
        var waiting: Deque<(reader: Reader, continuation: UnsafeContinuation<Message?, Never>)> = []
        /// The number of readers that have a message.
        var handling = 0
        var isFull = false
        var isFinished = false
        /// Called when all messages have been handled.
        var whenRead: (@Sendable () -> Void)?

        /// Called when it is not full any more.
        var whenRoom: (@Sendable () -> Void)?

        /// Takes the callback where all messages have been handled.
        mutating func takeWhenRead() -> (@Sendable () -> Void)? {
            self.messages.isEmpty && self.handling == 0 ? self.whenRead.take() : nil
        }

        mutating func release(_ reader: Reader) {
            guard reader.isHandling else { return }
            reader.isHandling = false
            self.handling -= 1
        }

        mutating func hand(to reader: Reader) {
            guard !reader.isHandling else { return }
            reader.isHandling = true
            self.handling += 1
        }

        /// Takes the oldest message.
        mutating func popMessage() -> Message? {
            guard let message = self.messages.popFirst() else { return nil }
            self.bytes -= message.length
            if self.messages.isEmpty {
                if self.highest > MessageInbox.largestKept { self.messages = [] }
                self.highest = 0
            }
            return message
        }
    }

    /// The number of messages, and of their bytes, at which reading is suspended: until half of them are read.
    private static var maximumCount: Int { 256 }
    private static var maximumBytes: Int { 1 << 20 }
    /// The number of messages, and of their bytes, from which on messages are dropped that come at the end of a
    /// connection, when they cannot be left with it.
    private static var maximumLastCount: Int { 65_536 }
    private static var maximumLastBytes: Int { 32 << 20 }

    /// The memory of more places than these is not kept.
    private static var largestKept: Int { 8 }

    private let state = NIOLockedValueBox(State())
    /// Called when ``isFull`` has changed, on any thread: it is asked anew where reading is suspended, since two calls
    /// may come in either order.
    private let fullnessChanged: @Sendable () -> Void

    package init(fullnessChanged: @escaping @Sendable () -> Void) {
        self.fullnessChanged = fullnessChanged
    }

    /// Whether nothing more should be read for now.
    package var isFull: Bool { self.state.withLockedValue { $0.isFull } }

    /// Calls `body` once it is not full.
    func whenRoom(_ body: @escaping @Sendable () -> Void) {
        let hasRoom = self.state.withLockedValue { state in
            guard state.isFull, !state.isFinished else { return true }
            state.whenRoom = body
            return false
        }
        if hasRoom { body() }
    }

    /// Takes a message for the next reader.
    ///
    /// - Parameter isLast: Whether the connection ends, and the message would be lost if it were not taken now.
    /// - Returns: Whether nothing more should come for now.
    @discardableResult
    func append(_ message: Message, isLast: Bool = false) -> Bool {
        let (reader, isFull, hasChanged): (UnsafeContinuation<Message?, Never>?, Bool, Bool) =
            self.state.withLockedValue { state in
                guard !state.isFinished else { return (nil, false, false) }
                if let (reader, continuation) = state.waiting.popFirst() {
                    state.hand(to: reader)
                    return (continuation, false, false)
                }
                let hasPlace = state.bytes < Self.maximumLastBytes && state.messages.count < Self.maximumLastCount
                guard !isLast || hasPlace else { return (nil, true, false) }
                state.messages.append(message)
                state.bytes += message.length
                state.highest = max(state.highest, state.messages.count)
                let wasFull = state.isFull
                state.isFull =
                    wasFull || state.messages.count >= Self.maximumCount || state.bytes >= Self.maximumBytes
                return (nil, state.isFull, state.isFull != wasFull)
            }
        reader?.resume(returning: message)
        if hasChanged { self.fullnessChanged() }
        return isFull
    }

    /// Calls `body` once all messages so far have been handled: none is left, and no reader has one.
    func whenRead(_ body: @escaping @Sendable () -> Void) {
        let isRead = self.state.withLockedValue { state in
            if state.isFinished || (state.messages.isEmpty && state.handling == 0) { return true }
            state.whenRead = body
            return false
        }
        if isRead { body() }
    }

    /// No more messages come. Those that wait can still be read.
    package func finish() {
        let readers = self.state.withLockedValue { state in
            state.isFinished = true
            defer { state.waiting = [] }
            return state.waiting
        }
        for reader in readers { reader.continuation.resume(returning: nil) }
    }

    // MARK: Readers

    package func makeReader() -> Reader { Reader(self) }

    /// The reader asks for a message: it has handled the one before.
    private func begin(_ reader: Reader) {
        let whenRead = self.state.withLockedValue { state in
            reader.isCancelled = false
            state.release(reader)
            return state.takeWhenRead()
        }
        whenRead?()
    }

    private func cancel(_ reader: Reader) {
        let cancelled = self.state.withLockedValue { state in
            reader.isCancelled = true
            defer { state.waiting.removeAll { $0.reader === reader } }
            return state.waiting.filter { $0.reader === reader }
        }
        for reader in cancelled { reader.continuation.resume(returning: nil) }
    }

    /// A reader that has a message was released.
    private func handled() {
        let whenRead = self.state.withLockedValue { state in
            state.handling -= 1
            return state.takeWhenRead()
        }
        whenRead?()
    }

    private enum Read {
        case message(Message, goesOn: Bool, whenRoom: (@Sendable () -> Void)?)
        case over
        case waits
    }

    private func read(_ reader: Reader, _ continuation: UnsafeContinuation<Message?, Never>) {
        let read: Read = self.state.withLockedValue { state in
            if let message = state.popMessage() {
                state.hand(to: reader)
                let goesOn =
                    state.isFull && state.messages.count <= Self.maximumCount / 2
                    && state.bytes <= Self.maximumBytes / 2
                guard goesOn else { return .message(message, goesOn: false, whenRoom: nil) }
                state.isFull = false
                return .message(message, goesOn: true, whenRoom: state.whenRoom.take())
            }
            if state.isFinished || reader.isCancelled { return .over }
            state.waiting.append((reader, continuation))
            return .waits
        }
        switch read {
        case .message(let message, let goesOn, let whenRoom):
            continuation.resume(returning: message)
            whenRoom?()
            if goesOn { self.fullnessChanged() }
        case .over:
            continuation.resume(returning: nil)
        case .waits:
            break
        }
    }
}
