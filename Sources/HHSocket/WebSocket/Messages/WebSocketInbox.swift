import DequeModule
import NIOConcurrencyHelpers

/// Messages that have arrived and that nobody has read: bounded, since reading from the network is suspended while too
/// many wait.
package final class WebSocketInbox: Sendable {
    private struct State {
        var messages: Deque<WebSocketMessage> = []
        var bytes = 0
        /// The largest number of messages since there was none.
        var highest = 0
        var readers: Deque<UnsafeContinuation<WebSocketMessage?, Never>> = []
        var isFull = false
        var isFinished = false
        /// Whether a reader has a message, and has not come back for the next.
        var isHandling = false
        /// Called when somebody asks for a message and there is none left.
        var whenRead: (@Sendable () -> Void)?
    }

    /// The number of messages, and of their bytes, at which reading is suspended: until half of them are read.
    private static let maximumCount = 256
    private static let maximumBytes = 1 << 20

    /// The memory of more places than these is not kept.
    private static let largestKept = 8

    private let state = NIOLockedValueBox(State())
    /// Called when reading is to be suspended, or may go on; on any thread.
    private let setReading: @Sendable (_ isSuspended: Bool) -> Void

    package init(setReading: @escaping @Sendable (_ isSuspended: Bool) -> Void) {
        self.setReading = setReading
    }

    /// Takes a message for the next reader.
    func append(_ message: WebSocketMessage) {
        let (reader, isFull): (UnsafeContinuation<WebSocketMessage?, Never>?, Bool) = self.state.withLockedValue {
            guard !$0.isFinished else { return (nil, false) }
            if let reader = $0.readers.popFirst() {
                $0.isHandling = true
                return (reader, false)
            }
            $0.messages.append(message)
            $0.bytes += message.payload.readableBytes
            $0.highest = max($0.highest, $0.messages.count)
            guard !$0.isFull, $0.messages.count >= Self.maximumCount || $0.bytes >= Self.maximumBytes else {
                return (nil, false)
            }
            $0.isFull = true
            return (nil, true)
        }
        reader?.resume(returning: message)
        if isFull { self.setReading(true) }
    }

    /// Calls `body` once all messages so far have been dealt with: none is left, and no reader has one.
    func whenRead(_ body: @escaping @Sendable () -> Void) {
        let isRead = self.state.withLockedValue { state in
            if state.isFinished || (state.messages.isEmpty && !state.isHandling) { return true }
            state.whenRead = body
            return false
        }
        if isRead { body() }
    }

    /// No more messages come. Those that wait can still be read.
    package func finish() {
        let readers = self.state.withLockedValue { state in
            state.isFinished = true
            defer { state.readers = [] }
            return state.readers
        }
        for reader in readers { reader.resume(returning: nil) }
    }

    /// Waits for and returns the next message; nil if there will be none, or if the calling task was cancelled.
    package func next(isolation: isolated (any Actor)?) async -> WebSocketMessage? {
        await withTaskCancellationHandler {
            _ = isolation
            return await withUnsafeContinuation { self.read($0) }
        } onCancel: {
            self.cancelReaders()
        }
    }

    private func cancelReaders() {
        let readers = self.state.withLockedValue { state in
            defer { state.readers = [] }
            return state.readers
        }
        for reader in readers { reader.resume(returning: nil) }
    }

    private enum Read {
        case message(WebSocketMessage, goesOn: Bool)
        case over
        case waits(whenRead: (@Sendable () -> Void)?)
    }

    private func read(_ reader: UnsafeContinuation<WebSocketMessage?, Never>) {
        let isCancelled = Task.isCancelled
        let read: Read = self.state.withLockedValue { state in
            state.isHandling = false
            if let message = state.messages.popFirst() {
                state.isHandling = true
                state.bytes -= message.payload.readableBytes
                if state.messages.isEmpty {
                    if state.highest > Self.largestKept { state.messages = [] }
                    state.highest = 0
                }
                let goesOn =
                    state.isFull && state.messages.count <= Self.maximumCount / 2
                    && state.bytes <= Self.maximumBytes / 2
                if goesOn { state.isFull = false }
                return .message(message, goesOn: goesOn)
            }
            if state.isFinished || isCancelled { return .over }
            state.readers.append(reader)
            return .waits(whenRead: state.whenRead.take())
        }
        switch read {
        case .message(let message, let goesOn):
            reader.resume(returning: message)
            if goesOn { self.setReading(false) }
        case .over:
            reader.resume(returning: nil)
        case .waits(let whenRead):
            whenRead?()
        }
    }
}

/// The messages of a WebSocket, in order. While 256 of them, or 1 MiB, wait to be read, nothing more is taken from the
/// network. With several readers each message goes to one of them.
public struct WebSocketMessages: AsyncSequence, Sendable {
    public typealias Element = WebSocketMessage
    public typealias Failure = Never

    let inbox: WebSocketInbox

    package init(_ inbox: WebSocketInbox) {
        self.inbox = inbox
    }

    public struct AsyncIterator: AsyncIteratorProtocol {
        let inbox: WebSocketInbox

        public mutating func next() async -> WebSocketMessage? { await self.inbox.next(isolation: nil) }

        /// Waits for the next message; nil if there will be none.
        public mutating func next(isolation actor: isolated (any Actor)?) async -> WebSocketMessage? {
            await self.inbox.next(isolation: actor)
        }
    }

    public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(inbox: self.inbox) }
}
