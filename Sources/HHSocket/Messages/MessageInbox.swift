// SPDX-License-Identifier: Apache-2.0
import DequeModule
import NIOConcurrencyHelpers
import NIOCore

/// A message that may wait to be read.
package protocol InboxMessage: Sendable {
    /// The memory that its bytes keep once it is detached, in bytes.
    var memory: Int { get }
    /// Detaches it from the read that it may be a slice of (`ByteBuffer.detached`): it waits for its reader.
    ///
    /// - Parameter isOneOfMany: Whether very many messages may wait, so that even a small block of memory for each is
    ///   too much.
    mutating func detach(isOneOfMany: Bool)
}

/// The remaining bytes of a connection that has ended, which contain messages. They are decoded as they are read, since
/// many small messages need more memory than their bytes.
package protocol InboxRest<Message>: Sendable {
    associatedtype Message: InboxMessage

    /// The memory that the remaining bytes keep; 0 if there are none.
    var memory: Int { get }
    /// The next message; nil if there is none.
    mutating func next() -> Message?
}

/// Messages that have arrived and were not read yet: bounded, since reading from the network is suspended while too
/// many wait.
package final class MessageInbox<Message: InboxMessage>: Sendable {
    /// One iterator. Where it is released while it has a message, the message counts as handled.
    package final class Reader: @unchecked Sendable {
        // Proof of Sendable: the inbox is Sendable itself; the variables are accessed only under its lock, and by the
        // last reference.
        private let inbox: MessageInbox
        /// Whether the reader has a message, and has not requested the next one.
        fileprivate var isHandling = false
        /// The cost of that message, in bytes.
        fileprivate var cost = 0
        /// Whether the task that requests a message was cancelled.
        fileprivate var isCancelled = false

        fileprivate init(_ inbox: MessageInbox) {
            self.inbox = inbox
        }

        deinit {
            if self.isHandling { self.inbox.handled(self.cost) }
        }

        /// Waits for and returns the next message; nil if there are no more, or if the calling task was cancelled.
        package func next(isolation: isolated (any Actor)?) async -> Message? {
            self.inbox.begin(self)
            let message = await withTaskCancellationHandler {
                _ = isolation
                return await withUnsafeContinuation { self.inbox.read(self, $0) }
            } onCancel: {
                self.inbox.cancel(self)
            }
            // The resuming thread has held the lock before, which the thread sanitizer sees.
            if ThreadSanitizer.isRunning { _ = self.inbox.isFull }
            return message
        }
    }

    private struct State {
        var messages: Deque<Message> = []
        /// The remaining bytes of ended connections, each after a number of the messages.
        var rests: Deque<(count: Int, rest: any InboxRest<Message>)> = []
        /// The cost of all of them.
        var bytes = 0
        /// The largest number of messages since the inbox was empty.
        var highest = 0
        /// The readers that wait for a message, in the order of arrival.
        var waiting: Deque<(reader: Reader, continuation: UnsafeContinuation<Message?, Never>)> = []
        /// The number of readers that have a message.
        var handling = 0
        /// The cost of those messages.
        var handledBytes = 0
        /// The number of bytes charged to the account.
        var charged = 0
        var isFull = false
        var isFinished = false
        /// Called when all messages have been handled.
        var whenRead: (@Sendable () -> Void)?

        /// Called when it is no longer full.
        var whenRoom: (@Sendable () -> Void)?

        /// Whether no message remains.
        var isEmpty: Bool { self.messages.isEmpty && self.rests.isEmpty }

        /// Removes the callback if all messages have been handled.
        mutating func takeWhenRead() -> (@Sendable () -> Void)? {
            self.isEmpty && self.handling == 0 ? self.whenRead.take() : nil
        }

        mutating func release(_ reader: Reader) {
            guard reader.isHandling else { return }
            reader.isHandling = false
            self.handling -= 1
            self.handledBytes -= reader.cost
            reader.cost = 0
        }

        mutating func hand(_ message: Message, to reader: Reader) {
            let cost = MessageInbox.cost(of: message)
            self.handledBytes += cost - reader.cost
            reader.cost = cost
            guard !reader.isHandling else { return }
            reader.isHandling = true
            self.handling += 1
        }

        /// Removes the oldest message.
        mutating func popMessage() -> Message? {
            while self.rests.first?.count == 0 {
                let memory = self.rests[0].rest.memory
                if let message = self.rests[0].rest.next() {
                    self.bytes -= memory - self.rests[0].rest.memory
                    return message
                }
                self.bytes -= memory
                self.rests.removeFirst()
            }
            guard let message = self.messages.popFirst() else { return nil }
            for index in self.rests.indices { self.rests[index].count -= 1 }
            self.bytes -= MessageInbox.cost(of: message)
            if self.messages.isEmpty {
                if self.highest > MessageInbox.largestKept { self.messages = [] }
                self.highest = 0
            }
            return message
        }
    }

    /// The number of messages, and their cost in bytes, at which reading is suspended: until half of them are read.
    private static var maximumCount: Int { 256 }
    private static var maximumBytes: Int { 1 << 20 }
    /// The number of messages, and their cost in bytes, above which messages at the end of a connection are dropped,
    /// when they cannot stay with it. An account may have room for fewer.
    private static var maximumLastCount: Int { 65_536 }
    private static var maximumLastBytes: Int { 32 << 20 }

    /// The largest capacity that is kept.
    private static var largestKept: Int { 8 }
    /// The memory of a message that waits, beside its bytes: its place in a growing queue, and the header of its
    /// allocation.
    private static var placeCost: Int { 128 }

    /// The memory that a message costs from its arrival until its reader requests the next one, in bytes: even an empty
    /// one takes a place.
    private static func cost(of message: Message) -> Int { message.memory + self.placeCost }

    private let state = NIOLockedValueBox(State())
    /// The account that is charged for waiting bytes, and for those that readers have.
    private let account: (any LinkAccount)?
    /// Called when ``isFull`` has changed, on any thread: the value is read again when reading is suspended, since two
    /// calls may arrive in either order.
    private let fullnessChanged: @Sendable () -> Void

    package init(account: (any LinkAccount)? = nil, fullnessChanged: @escaping @Sendable () -> Void) {
        self.account = account
        self.fullnessChanged = fullnessChanged
    }

    deinit {
        let charged = self.state.withLockedValue { $0.charged }
        if charged != 0 { self.account?.held(-charged) }
    }

    /// Changes the state, and charges the account for its memory.
    private func withState<Result>(_ body: (inout State) -> Result) -> Result {
        guard let account = self.account else { return self.state.withLockedValue(body) }
        let (result, change) = self.state.withLockedValue { state in
            let result = body(&state)
            let held = state.bytes + state.handledBytes
            defer { state.charged = held }
            return (result, held - state.charged)
        }
        if change != 0 { account.held(change) }
        return result
    }

    /// Whether nothing more should be read for now.
    package var isFull: Bool { self.state.withLockedValue { $0.isFull } }

    /// The cost of the messages that wait to be read, in bytes.
    package var bufferedBytes: Int { self.state.withLockedValue { $0.bytes } }

    /// Calls `body` once it is not full.
    package func whenRoom(_ body: @escaping @Sendable () -> Void) {
        let hasRoom = self.state.withLockedValue { state in
            guard state.isFull, !state.isFinished else { return true }
            state.whenRoom = body
            return false
        }
        if hasRoom { body() }
    }

    /// Stores a message for the next reader.
    ///
    /// - Parameter isLast: Whether the connection ends, so that the message would be lost if it were not accepted now.
    /// - Returns: Whether no further messages should be delivered for now.
    @discardableResult
    package func append(_ message: Message, isLast: Bool = false) -> Bool {
        let (reader, isFull, hasChanged): (UnsafeContinuation<Message?, Never>?, Bool, Bool) =
            self.withState { state in
                guard !state.isFinished else { return (nil, false, false) }
                if let (reader, continuation) = state.waiting.popFirst() {
                    state.hand(message, to: reader)
                    return (continuation, false, false)
                }
                var message = message
                message.detach(isOneOfMany: isLast)
                let cost = Self.cost(of: message)
                guard !isLast || self.hasPlace(forLast: cost, state) else { return (nil, true, false) }
                state.messages.append(message)
                state.bytes += cost
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

    /// Whether a message of an ending connection may wait. The peer cannot be closed to free its memory any more, so it
    /// must not fill the account.
    private func hasPlace(forLast cost: Int, _ state: borrowing State) -> Bool {
        state.bytes < Self.maximumLastBytes && state.messages.count < Self.maximumLastCount
            && self.account?.hasRoom(forLast: cost) ?? true
    }

    /// Stores the remaining bytes of an ended connection. If there are very many bytes of others, they are dropped.
    package func append(rest: some InboxRest<Message>) {
        var rest = rest
        var served: [(UnsafeContinuation<Message?, Never>, Message)] = []
        let hasChanged = self.withState { state in
            guard !state.isFinished, state.bytes < Self.maximumLastBytes else { return false }
            while !state.waiting.isEmpty {
                guard let message = rest.next(), let (reader, continuation) = state.waiting.popFirst() else {
                    return false
                }
                state.hand(message, to: reader)
                served.append((continuation, message))
            }
            guard rest.memory > 0 else { return false }
            state.rests.append((state.messages.count, rest))
            state.bytes += rest.memory
            defer { state.isFull = true }
            return !state.isFull
        }
        for (reader, message) in served { reader.resume(returning: message) }
        if hasChanged { self.fullnessChanged() }
    }

    /// Calls `body` once all present messages have been handled: none remains, and no reader has one.
    package func whenRead(_ body: @escaping @Sendable () -> Void) {
        let isRead = self.state.withLockedValue { state in
            if state.isFinished || (state.isEmpty && state.handling == 0) { return true }
            state.whenRead = body
            return false
        }
        if isRead { body() }
    }

    /// Ends the sequence. Waiting messages can still be read.
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

    /// The reader requests a message, so it has handled the previous one.
    private func begin(_ reader: Reader) {
        let whenRead = self.withState { state in
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
    private func handled(_ cost: Int) {
        let whenRead = self.withState { state in
            state.handling -= 1
            state.handledBytes -= cost
            return state.takeWhenRead()
        }
        whenRead?()
    }

    private enum Read {
        case message(Message)
        case over
        case waits
    }

    private func read(_ reader: Reader, _ continuation: UnsafeContinuation<Message?, Never>) {
        typealias Callback = (@Sendable () -> Void)?
        let (read, goesOn, whenRoom, whenRead): (Read, Bool, Callback, Callback) = self.withState { state in
            let message = state.popMessage()
            let hasRoom =
                state.rests.isEmpty && state.messages.count <= Self.maximumCount / 2
                && state.bytes <= Self.maximumBytes / 2
            let goesOn = state.isFull && hasRoom
            if goesOn { state.isFull = false }
            let whenRoom = goesOn ? state.whenRoom.take() : nil
            if let message {
                state.hand(message, to: reader)
                return (.message(message), goesOn, whenRoom, nil)
            }
            // A rest may have turned out to be no message.
            let whenRead = state.takeWhenRead()
            if state.isFinished || reader.isCancelled { return (.over, goesOn, whenRoom, whenRead) }
            state.waiting.append((reader, continuation))
            return (.waits, goesOn, whenRoom, whenRead)
        }
        switch read {
        case .message(let message): continuation.resume(returning: message)
        case .over: continuation.resume(returning: nil)
        case .waits: break
        }
        whenRoom?()
        whenRead?()
        if goesOn { self.fullnessChanged() }
    }
}
