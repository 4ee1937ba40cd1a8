// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOConcurrencyHelpers
import NIOCore

/// Items that are sent.
extension StreamCall {
    /// The outcome of sending an item.
    enum Put: Sendable {
        /// The next may be sent.
        case goOn
        /// The next item may be sent after ``awaitRoom(_:)``.
        case wait
        /// The stream, or this side's items, have ended.
        case refused(SocketError)
    }

    /// Accepts an item from its sender. Any thread.
    func put(_ body: ByteBuffer) -> Put {
        guard self.kind.clientStreams else { return .refused(self.sendsNoItems()) }
        guard body.readableBytes <= self.maximumItemLength else {
            return .refused(Self.tooLong(body, self.maximumItemLength))
        }
        let item = OutgoingItem(body: body, isCompressed: false)
        switch self.enter(item, mayBeCompressed: true) {
        case .done(let put): return put
        case .compress(let level):
            // On the sender's thread.
            let compressed = Envelope.deflate(body, level: level).map { OutgoingItem(body: $0, isCompressed: true) }
            guard case .done(let put) = self.enter(compressed ?? item, mayBeCompressed: false) else { return .wait }
            return put
        }
    }

    /// The outcome of putting an item into the outbox.
    private enum Entry {
        case done(Put)
        /// The item must be compressed first.
        case compress(level: Int)
    }

    private func enter(_ item: OutgoingItem, mayBeCompressed: Bool) -> Entry {
        let (entry, mustVisit) = self.state.withLockedValue { state -> (Entry, Bool) in
            if let end = state.end { return (.done(.refused(self.noItemIsSent(after: end))), false) }
            guard !state.isFinished else { return (.done(.refused(Self.isFinished)), false) }
            if mayBeCompressed, let policy = state.compression, item.body.readableBytes >= policy.minimumLength {
                return (.compress(level: policy.level), false)
            }
            state.outbox.append(item)
            state.outboxCost += item.cost
            let mustVisit = state.isOpen && state.asksForVisit()
            return (.done(state.hasRoom ? .goOn : .wait), mustVisit)
        }
        if mustVisit { self.submitVisit() }
        return entry
    }

    /// Registers a sender that waits until the next item may be sent.
    ///
    /// - Returns: Whether there is something to wait for.
    func awaitRoom(_ sender: Sender) -> Bool {
        self.state.withLockedValue { state in
            guard state.end == nil, !state.hasRoom else { return false }
            state.senders.append(sender)
            return true
        }
    }

    /// Ends this side's items. Any thread.
    func finish() {
        let mustVisit = self.state.withLockedValue { state in
            guard self.kind.clientStreams, !state.isFinished, state.end == nil else { return false }
            state.isFinished = true
            return state.isOpen && state.asksForVisit()
        }
        if mustVisit { self.submitVisit() }
    }

    // MARK: Socket thread

    /// Takes the items of the outbox, in order.
    ///
    /// - Returns: The items that readers have taken, and whether the application sends no more.
    func takeOutbox() -> (taken: ItemReceipt, isFinished: Bool) {
        self.state.withLockedValue { state in
            state.isVisitDue = false
            let taken = state.taken
            state.taken = ItemReceipt()
            // Nothing is taken before the opening was sent, so that the stream can still be opened on another
            // connection.
            guard self.flight.hasLeft else { return (taken, false) }
            if self.flight.backlog.isEmpty {
                swap(&self.flight.backlog, &state.outbox)
            } else {
                self.flight.backlog.append(contentsOf: state.outbox)
                state.outbox.removeAll()
            }
            state.room = state.room > state.outboxCost ? state.room - state.outboxCost : 0
            state.outboxCost = 0
            return (taken, state.isFinished)
        }
    }

    /// Sets the amount that the outbox may hold, and resumes senders if there is room.
    func offer(_ room: UInt64, takesItems: Bool, in turn: inout Turn) {
        let senders = self.state.withLockedValue { state in
            state.room = min(room, Self.maximumOutboxCost)
            state.takesItems = takesItems
            guard state.hasRoom, !state.senders.isEmpty else { return [Sender]() }
            defer { state.senders.removeAll(keepingCapacity: true) }
            return Array(state.senders)
        }
        for sender in senders {
            switch sender {
            case .task(let waiter): turn.resume(waiter)
            case .handler(let handler): self.callBack { handler(.success(())) }
            }
        }
    }

    // MARK: Errors

    private static var isFinished: SocketError {
        SocketError(.invalidArgument, message: "no item may be sent after finish()")
    }

    private func sendsNoItems() -> SocketError {
        SocketError(
            .invalidArgument,
            message: "the client sends no items on a stream of this kind: its one message is the body of the request"
        )
    }

    private static func tooLong(_ body: ByteBuffer, _ limit: Int) -> SocketError {
        SocketError(
            .frameTooLarge,
            message: """
                an item of \(body.readableBytes) bytes is over the limit of \(limit); raise maximumPayloadLength on both \
                sides or send less. It was not sent, and the stream continues
                """
        )
    }
}

extension StreamCall.State {
    /// Whether another item may be sent.
    fileprivate var hasRoom: Bool { self.takesItems && self.outboxCost <= self.room }
}
