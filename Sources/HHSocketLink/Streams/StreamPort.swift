// SPDX-License-Identifier: Apache-2.0
import DequeModule
import NIOConcurrencyHelpers
package import NIOCore

/// The part of a stream that the application's threads share with the connection's, on either side: the items that have
/// arrived, and those that are to be sent. Any thread.
///
/// The connection is asked for one visit for everything that happens until it comes.
package final class StreamPort: Sendable {
    /// A sender that waits until the next item may be sent.
    package enum Sender: Sendable {
        case task(TurnWaiter)
        case handler(@Sendable (SocketError?) -> Void)
    }

    /// The outcome of sending an item.
    package enum Put: Hashable, Sendable {
        /// The next may be sent.
        case proceed
        /// The next may be sent after ``awaitRoom(_:ticket:)``.
        case wait(ticket: UInt64)
        /// The item has to wait, and was not accepted.
        case full
        /// The item must be compressed first.
        case compress(level: Int)
        /// No item is sent after ``finish(visit:)``.
        case finished
        /// The stream has ended.
        case over
    }

    private struct Outgoing {
        var payload: ByteBuffer
        var isCompressed: Bool
        var ticket: UInt64
        /// The number of bytes that are charged for it until the connection takes it.
        var charge: Int

        var cost: UInt64 { StreamFrames.wholeCost(self.payload.readableBytes) }
    }

    private struct State {
        /// Whether it has been handed to a connection, which can be asked for visits.
        var isOpen = false
        var isOver = false
        /// Whether a visit of the connection is due.
        var isVisitDue = false

        // Sending.
        var outbox: Deque<Outgoing> = []
        var outboxCost: UInt64 = 0
        /// The amount that the outbox may hold before senders wait.
        var room: UInt64 = 0
        /// Whether an item may be put into the outbox, as far as it is known.
        var takesItems = false
        /// Whether the connection accepts no items until it says so.
        var isBlocked = false
        /// Whether the application sends no more items.
        var isFinished = false
        var senders: Deque<(ticket: UInt64?, sender: Sender)> = []
        var lastTicket: UInt64 = 0
        var compression: CompressionPolicy?

        // Receiving.
        /// The receipts of the items that were taken since the last visit.
        var taken = ItemReceipt()
        /// The number of bytes that are charged for the item that the application works on.
        var held = 0
        /// Whether the application holds nothing any more.
        var holdsNothing = false

        var hasRoom: Bool { self.takesItems && self.outboxCost <= self.room }

        /// Asks for a visit. Returns false if one is due.
        mutating func asksForVisit() -> Bool {
            defer { self.isVisitDue = true }
            return !self.isVisitDue
        }

        /// Returns the change of the charge.
        mutating func hold(_ charge: Int) -> Int {
            let charge = self.holdsNothing ? 0 : charge
            defer { self.held = charge }
            return charge - self.held
        }
    }

    package let inbox: Inbox<StreamItem>
    private let account: (any LinkAccount)?
    /// The size of the items for which nothing is charged while they do not wait.
    private let freeItem: Int
    private let largestRoom: UInt64
    private let state = NIOLockedValueBox(State())

    /// - Parameters:
    ///   - account: The account that is charged for items on their way to the connection, and for the one that the
    ///     application works on; nil at a client.
    ///   - freeItem: The size of items that are charged only while they wait.
    ///   - largestRoom: The largest cost of items that are accepted without a visit.
    package init(
        inbox: Inbox<StreamItem>,
        account: (any LinkAccount)?,
        freeItem: Int = 0,
        largestRoom: UInt64
    ) {
        self.inbox = inbox
        self.account = account
        self.freeItem = freeItem
        self.largestRoom = largestRoom
    }

    /// The stream has been handed to a connection.
    ///
    /// - Parameters:
    ///   - compression: The policy for compressing items; nil if they are not compressed here.
    ///   - allowance: The cost of items that may be sent; nil if none is accepted until a visit.
    package func open(compression: CompressionPolicy?, allowance: UInt64? = nil) {
        self.state.withLockedValue { state in
            state.isOpen = true
            state.isBlocked = false
            state.compression = compression
            state.takesItems = allowance != nil
            state.room = min(allowance ?? 0, self.largestRoom)
        }
    }

    package var isOver: Bool { self.state.withLockedValue { $0.isOver } }
    package var hasWaitingSender: Bool { self.state.withLockedValue { !$0.senders.isEmpty } }

    private func charge(_ change: Int) {
        if change != 0 { self.account?.held(change) }
    }

    /// The charge for an item that does not wait.
    package func charge(for payload: ByteBuffer) -> Int {
        self.account != nil && payload.readableBytes > self.freeItem ? payload.storageCapacity : 0
    }

    // MARK: Sending

    /// Accepts an item from its sender.
    ///
    /// - Parameters:
    ///   - isCompressed: Nil if the port's policy decides.
    ///   - mayWait: Whether an item is accepted for which there is no room. Its sender should wait.
    ///   - visit: Asks the connection for a visit.
    package func put(
        _ payload: ByteBuffer,
        isCompressed: Bool?,
        mayWait: Bool = true,
        visit: () -> Void
    ) -> Put {
        let cost = StreamFrames.wholeCost(payload.readableBytes)
        let (put, mustVisit, charge): (Put, Bool, Int) = self.state.withLockedValue { state in
            guard !state.isOver else { return (.over, false, 0) }
            guard !state.isFinished else { return (.finished, false, 0) }
            if isCompressed == nil, let policy = state.compression, payload.readableBytes >= policy.minimumLength {
                return (.compress(level: policy.level), false, 0)
            }
            let waits = !state.takesItems || state.outboxCost + cost > state.room
            guard mayWait || !waits else { return (.full, false, 0) }
            let charge = waits && self.account != nil ? payload.storageCapacity : self.charge(for: payload)
            state.lastTicket += 1
            state.outbox.append(
                Outgoing(
                    payload: payload,
                    isCompressed: isCompressed ?? false,
                    ticket: state.lastTicket,
                    charge: charge
                )
            )
            state.outboxCost += cost
            let mustVisit = state.isOpen && !state.isBlocked && state.asksForVisit()
            return (waits ? .wait(ticket: state.lastTicket) : .proceed, mustVisit, charge)
        }
        self.charge(charge)
        if mustVisit { visit() }
        return put
    }

    /// Registers a sender that waits until the next item may be sent.
    ///
    /// - Parameter ticket: The ticket by which it can be withdrawn; nil if it cannot.
    /// - Returns: Whether there is something to wait for.
    package func awaitRoom(_ sender: Sender, ticket: UInt64? = nil) -> Bool {
        self.state.withLockedValue { state in
            // A cancellation from now on finds the sender.
            guard !state.isOver, !state.hasRoom, ticket == nil || !Task.isCancelled else { return false }
            state.senders.append((ticket, sender))
            return true
        }
    }

    /// Withdraws a sender that waits, and its item if the connection has not taken it.
    package func withdraw(_ ticket: UInt64) -> Sender? {
        let (sender, charge): (Sender?, Int) = self.state.withLockedValue { state in
            var charge = 0
            if let index = state.outbox.firstIndex(where: { $0.ticket == ticket }) {
                let item = state.outbox.remove(at: index)
                state.outboxCost -= item.cost
                charge = item.charge
            }
            let index = state.senders.firstIndex { $0.ticket == ticket }
            return (index.map { state.senders.remove(at: $0).sender }, charge)
        }
        self.charge(-charge)
        return sender
    }

    /// Ends this side's items.
    package func finish(visit: () -> Void) {
        let mustVisit = self.state.withLockedValue { state in
            guard !state.isFinished, !state.isOver else { return false }
            state.isFinished = true
            return state.isOpen && state.asksForVisit()
        }
        if mustVisit { visit() }
    }

    // MARK: Receiving

    /// Reports that items were taken, the last of which is charged while the application works on it.
    ///
    /// - Returns: False if the stream is over.
    @discardableResult
    package func took(_ taken: ItemReceipt, holding charge: Int = 0, visit: () -> Void) -> Bool {
        let (isOver, mustVisit, change) = self.state.withLockedValue { state in
            state.taken += taken
            return (state.isOver, state.asksForVisit(), state.hold(state.isOver ? 0 : charge))
        }
        self.charge(change)
        if mustVisit { visit() }
        return !isOver
    }

    /// Charges for the item that the application works on.
    ///
    /// - Returns: The change.
    package func hold(_ charge: Int) -> Int { self.state.withLockedValue { $0.hold(charge) } }

    /// The application works on no item.
    ///
    /// - Parameter isForGood: Whether it will not get another.
    package func holdNothing(isForGood: Bool = false) {
        let change = self.state.withLockedValue { state in
            if isForGood { state.holdsNothing = true }
            return state.hold(0)
        }
        self.charge(change)
    }

    // MARK: The connection's thread

    /// The items that a visit has passed on.
    package struct Settled: Sendable {
        package var count = 0
        package var bytes = 0
        /// Whether no more items follow.
        package var isFinished = false
    }

    /// Reports to the machine what was taken, and hands over the items that are to be sent.
    ///
    /// - Parameters:
    ///   - sends: Whether items may be sent: not before the opening was.
    ///   - isLast: Whether all items are handed over, since nothing follows.
    ///   - resume: Resumes a sender.
    @_specialize(where Machine == ClientStreams)
    @_specialize(where Machine == ServerStreams)
    package func settle<Machine: ItemMachine & ~Copyable>(
        _ id: StreamID,
        _ machine: inout Machine,
        sends: Bool = true,
        isLast: Bool = false,
        now: NIODeadline,
        resume: (Sender) -> Void
    ) -> Settled {
        var (taken, outbox, isBlocked) = self.state.withLockedValue { state in
            state.isVisitDue = false
            defer { state.taken = ItemReceipt() }
            var outbox: Deque<Outgoing> = []
            guard sends, !state.isBlocked || isLast else { return (state.taken, outbox, state.isBlocked) }
            swap(&outbox, &state.outbox)
            state.room = state.room > state.outboxCost ? state.room - state.outboxCost : 0
            state.outboxCost = 0
            return (state.taken, outbox, false)
        }
        if taken != ItemReceipt() { machine.took(id, taken, now: now) }
        var (settled, charge) = (Settled(), 0)
        while !isBlocked, let item = outbox.popFirst() {
            charge += item.charge
            settled.count += 1
            settled.bytes += item.payload.readableBytes
            switch machine.send(id, item.payload, isCompressed: item.isCompressed) {
            case .proceed: break
            case .wait: isBlocked = !isLast
            case .over:
                charge += outbox.reduce(0) { $0 + $1.charge }
                outbox = []
            }
        }
        // The connection charges them from now on.
        self.charge(-charge)
        let allowance = machine.allowance(id)
        let senders: [Sender] = self.state.withLockedValue { state in
            if !outbox.isEmpty {
                state.outboxCost += outbox.reduce(0) { $0 + $1.cost }
                state.outbox.prepend(contentsOf: outbox)
            }
            state.isBlocked = isBlocked
            state.takesItems = sends && !isBlocked
            state.room = state.takesItems ? min(allowance, self.largestRoom) : 0
            settled.isFinished = sends && state.isFinished && state.outbox.isEmpty
            guard state.hasRoom, !state.senders.isEmpty else { return [] }
            defer { state.senders.removeAll(keepingCapacity: true) }
            return state.senders.map(\.sender)
        }
        for sender in senders { resume(sender) }
        return settled
    }

    /// The connection accepts items again.
    package func unblock() { self.state.withLockedValue { $0.isBlocked = false } }

    /// The visit does not come, since the stream is not open on a connection.
    package func visitFails() { self.state.withLockedValue { $0.isVisitDue = false } }

    /// The stream is over: waiting items are not sent.
    package func end(resume: (Sender) -> Void) {
        let (senders, charge) = self.state.withLockedValue { state in
            state.isOver = true
            defer { (state.outbox, state.outboxCost, state.senders) = ([], 0, []) }
            return (state.senders, state.outbox.reduce(0) { $0 + $1.charge })
        }
        self.charge(-charge)
        for (_, sender) in senders { resume(sender) }
    }
}
