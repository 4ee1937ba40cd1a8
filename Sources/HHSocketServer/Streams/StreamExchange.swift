// SPDX-License-Identifier: Apache-2.0
import DequeModule
import HHSocket
import NIOConcurrencyHelpers
import NIOCore

/// The state that the handler of a stream shares with the stream's connection: the received items, and those that are
/// to be sent.
///
/// The handler takes and sends on any thread. The connection is notified once for everything that happens until it
/// calls ``StreamHost/visit(_:in:)``.
final class StreamExchange: StreamParty, Sendable {
    /// An item on its way to the connection.
    private struct Outgoing {
        var payload: ByteBuffer
        var isCompressed: Bool
        /// The number of bytes that are charged for it until the connection takes it.
        var charge = 0
        /// The task that waits until the next item may follow.
        var sender: Sender?
    }

    private struct Sender {
        var ticket: UInt64
        var continuation: UnsafeContinuation<Bool, Never>
    }

    private struct State {
        // From the client.
        /// The report that is due to the connection: the items that the handler has taken.
        var taken = ItemReceipt()
        /// The number of bytes that are charged for the item that the handler works on.
        var charge = 0
        var hasHandlerReturned = false

        // To the client.
        var outbox: Deque<Outgoing> = []
        /// The cost of items that may be sent without waiting.
        var allowance: UInt64 = 0
        /// Whether the connection accepts no items for now.
        var isBlocked = false
        /// The sender of the last item that the connection accepted, until the next may follow.
        var held: Sender?
        var lastTicket: UInt64 = 0

        /// Whether a visit of the connection has been requested.
        var isVisitDue = false
        /// The reason why the stream is over.
        var end: StatusError?
    }

    let id: StreamID
    let serial: UInt32
    let run: UInt64
    let kind: StreamKind
    private let session: ServerSession
    private let rules: RequestRules
    /// The compression of items; nil if they are not compressed.
    private let compression: CompressionPolicy?
    private let agreement: Agreement?
    private let executor: HandlerExecutor
    /// The longest body that is compressed where the handler runs.
    private let largestCompressed: Int
    /// The account of the connection.
    private let load: LedgerAccount
    private let state: NIOLockedValueBox<State>
    /// The items that the handler has not taken. They are detached, since it may keep them.
    private let inbox = Inbox<StreamItem>(.items(detaching: .all))

    init(
        id: StreamID,
        serial: UInt32,
        run: UInt64,
        kind: StreamKind,
        session: ServerSession,
        rules: RequestRules,
        agreement: Agreement?,
        executor: HandlerExecutor,
        load: LedgerAccount,
        allowance: UInt64
    ) {
        self.id = id
        self.serial = serial
        self.run = run
        self.kind = kind
        self.session = session
        self.rules = rules
        self.compression = agreement?.has(.compression) ?? false ? rules.hello.compression : nil
        self.agreement = agreement
        self.largestCompressed = executor == .connection ? AnswerSeal.largestBodyCompressedOnLoop : .max
        self.executor = executor
        self.load = load
        var state = State()
        state.allowance = allowance
        self.state = NIOLockedValueBox(state)
        if !kind.clientStreams { self.inbox.finish() }
    }

    /// Whether the stream is over.
    var isOver: Bool { self.state.withLockedValue { $0.end != nil } }

    var waitsForClient: Bool {
        self.inbox.hasWaitingReader
            || self.state.withLockedValue { state in
                state.hasHandlerReturned || state.held != nil || state.outbox.contains { $0.sender != nil }
            }
    }

    // MARK: The handler reads

    func makeReader() -> Inbox<StreamItem>.Reader { self.inbox.makeReader() }

    /// Waits for and returns the next item; nil once the client has ended them.
    func next(
        of reader: Inbox<StreamItem>.Reader,
        isolation: isolated (any Actor)?
    ) async throws(StatusError) -> ByteBuffer? {
        var item = reader.take()
        if item == nil {
            self.setCharge(0)
            item = await reader.waitForElement(isolation: isolation)
        }
        guard let item, self.takes(item) else {
            if let end = self.state.withLockedValue({ $0.end }) {
                reader.drop()
                throw end
            }
            switch reader.absence {
            case .over: return nil
            case .cancelled: throw StatusError(.cancelledByServer)
            case .busy: throw Self.isReadElsewhere
            }
        }
        return item.isCompressed ? try await self.inflated(item.payload) : item.payload
    }

    /// The handler takes an item, and no longer needs the previous one.
    ///
    /// - Returns: False if the stream is over.
    private func takes(_ item: StreamItem) -> Bool {
        let (isTaken, needsVisit, change) = self.state.withLockedValue { state in
            guard state.end == nil else { return (false, false, 0) }
            state.taken += item.receipt
            defer { state.isVisitDue = true }
            let charge = item.isCompressed ? 0 : Self.charge(for: item.payload)
            return (true, !state.isVisitDue, Self.setCharge(charge, &state))
        }
        if change != 0 { self.load.held(change) }
        if needsVisit { self.requestVisit() }
        return isTaken
    }

    private func setCharge(_ charge: Int) {
        let change = self.state.withLockedValue { Self.setCharge(charge, &$0) }
        if change != 0 { self.load.held(change) }
    }

    /// Small items are not charged while a handler works on them.
    private static func charge(for body: ByteBuffer) -> Int {
        body.readableBytes > ConnectionCost.freeItem ? body.storageCapacity : 0
    }

    /// - Returns: The change.
    private static func setCharge(_ charge: Int, _ state: inout State) -> Int {
        let charge = state.hasHandlerReturned ? 0 : charge
        guard charge != state.charge else { return 0 }
        defer { state.charge = charge }
        return charge - state.charge
    }

    /// Records that the handler has returned and no longer needs an item.
    func handlerHasReturned() {
        self.state.withLockedValue { $0.hasHandlerReturned = true }
        self.setCharge(0)
    }

    /// Prepares the connection for a file.
    func carryContent(window: UInt64) {
        self.session.port.onLoop { $0.streamHost?.carryContent(self.id, window: window, in: &$1) }
    }

    /// Whether an item waits for a reader to take it.
    var hasItem: Bool { !self.inbox.isEmpty }

    private static var isReadElsewhere: StatusError {
        let text = "the items of a stream are for one reader, and another one waits for the next"
        return StatusError(.unknown, body: ByteBuffer(string: text))
    }

    private func inflated(_ body: ByteBuffer) async throws(StatusError) -> ByteBuffer {
        let (limit, load) = (self.rules.limits.maximumPayloadLength, self.load)
        do throws(ChargedInflation.Failure) {
            let body = try await self.executor.elsewhere { () async throws(ChargedInflation.Failure) in
                try await ChargedInflation.inflate(body, limit: limit, chargedTo: load)
            }
            // Besides its own charge, which ends here.
            load.held(self.state.withLockedValue { Self.setCharge(body.bytes.storageCapacity, &$0) })
            return body.bytes
        } catch {
            if error == .cancelled {
                throw self.state.withLockedValue { $0.end } ?? StatusError(.cancelledByServer)
            }
            self.session.port.onLoop { [status = error.status] in
                $0.streamHost?.failStream(self.id, status, in: &$1)
            }
            throw StatusError(error.status)
        }
    }

    // MARK: The handler sends

    private enum Offer {
        case taken(needsVisit: Bool, charge: Int)
        /// The item waits in the outbox, and its sender is to wait, too.
        case wait(ticket: UInt64)
        case over
    }

    /// Sends an item, and returns when the next may follow.
    ///
    /// - Throws: `CancellationError` once the stream is over, or if the task is cancelled while it waits;
    ///   ``StatusError`` if the item is too long.
    nonisolated(nonsending) func send(_ body: ByteBuffer, type: UInt32, mayCompress: Bool = true) async throws {
        guard self.rules.takes(answerOf: body.readableBytes, type: type, self.session) else {
            throw StatusError(.illegalLength)
        }
        let (payload, isCompressed) = mayCompress ? self.compressed(body) : (body, false)
        switch self.offer(payload, isCompressed) {
        case .taken(let needsVisit, let charge):
            if charge > 0 { self.load.held(charge) }
            if needsVisit { self.requestVisit() }
        case .over: throw CancellationError()
        case .wait(let ticket):
            guard await self.wait(with: ticket, payload.detached, isCompressed) else { throw CancellationError() }
        }
    }

    private func compressed(_ body: ByteBuffer) -> (payload: ByteBuffer, isCompressed: Bool) {
        guard let compression = self.compression, body.readableBytes >= compression.minimumLength,
            body.readableBytes <= self.largestCompressed
        else { return (body, false) }
        var frame = Frame(type: 0, serial: self.serial, payload: body)
        AnswerSeal.seal(&frame, metadata: [:], by: self.agreement, compression)
        return (frame.payload, frame.type & FrameType.compressionFlag != 0)
    }

    private func offer(_ payload: ByteBuffer, _ isCompressed: Bool) -> Offer {
        let cost = StreamFrames.wholeCost(payload.readableBytes)
        return self.state.withLockedValue { state in
            guard state.end == nil else { return .over }
            guard cost <= state.allowance, !state.isBlocked else {
                state.lastTicket += 1
                return .wait(ticket: state.lastTicket)
            }
            state.allowance -= cost
            // The visit takes small ones soon.
            let charge = Self.charge(for: payload)
            state.outbox.append(Outgoing(payload: payload, isCompressed: isCompressed, charge: charge))
            defer { state.isVisitDue = true }
            return .taken(needsVisit: !state.isVisitDue, charge: charge)
        }
    }

    /// - Returns: False if the stream is over, or the task was cancelled.
    private nonisolated(nonsending) func wait(
        with ticket: UInt64,
        _ payload: ByteBuffer,
        _ isCompressed: Bool
    ) async -> Bool {
        await withTaskCancellationHandler {
            await withUnsafeContinuation { (continuation: UnsafeContinuation<Bool, Never>) in
                enum Step { case refuse, visit, none }
                // It may wait as long as the client likes.
                let charge = payload.storageCapacity
                self.load.held(charge)
                let step: Step = self.state.withLockedValue { state in
                    // A cancellation from now on finds the sender.
                    guard state.end == nil, !Task.isCancelled else { return .refuse }
                    let sender = Sender(ticket: ticket, continuation: continuation)
                    state.outbox.append(
                        Outgoing(payload: payload, isCompressed: isCompressed, charge: charge, sender: sender)
                    )
                    // A blocked exchange is visited when it is unblocked.
                    guard !state.isBlocked, !state.isVisitDue else { return .none }
                    state.isVisitDue = true
                    return .visit
                }
                switch step {
                case .refuse:
                    self.load.held(-charge)
                    continuation.resume(returning: false)
                case .visit: self.requestVisit()
                case .none: break
                }
            }
        } onCancel: {
            self.withdraw(ticket)
        }
    }

    /// Withdraws the item of a cancelled sender, if the connection has not taken it.
    private func withdraw(_ ticket: UInt64) {
        let (sender, charge): (Sender?, Int) = self.state.withLockedValue { state in
            if state.held?.ticket == ticket { return (state.held.take(), 0) }
            if let index = state.outbox.firstIndex(where: { $0.sender?.ticket == ticket }) {
                let item = state.outbox.remove(at: index)
                return (item.sender, item.charge)
            }
            return (nil, 0)
        }
        if charge > 0 { self.load.held(-charge) }
        sender?.continuation.resume(returning: false)
    }

    private func requestVisit() {
        self.session.port.onLoop { $0.streamHost?.visit(self, in: &$1) }
    }

    // MARK: On the event loop

    func received(_ items: inout Deque<StreamItem>) { self.inbox.append(contentsOf: &items) }

    func itemsEnded() { self.inbox.finish() }

    /// Tells the connection's streams what the handler has taken, and hands over the items that it sends.
    ///
    /// - Parameter isLast: Whether the handler has returned, so that all items leave before the answer.
    func settle(_ machine: inout ServerStreams, isLast: Bool, now: NIODeadline) {
        var (taken, outbox, isBlocked) = self.state.withLockedValue { state in
            state.isVisitDue = false
            defer { state.taken = ItemReceipt() }
            var outbox: Deque<Outgoing> = []
            if !state.isBlocked || isLast { swap(&outbox, &state.outbox) }
            return (state.taken, outbox, state.isBlocked && !isLast)
        }
        if taken != ItemReceipt() { machine.took(self.id, taken, now: now) }
        var held: Sender?
        var charge = 0
        while !isBlocked, let item = outbox.popFirst() {
            charge += item.charge
            switch machine.send(self.id, item.payload, isCompressed: item.isCompressed) {
            case .goOn:
                item.sender?.continuation.resume(returning: true)
            case .wait where isLast:
                item.sender?.continuation.resume(returning: true)
            case .wait:
                isBlocked = true
                held = item.sender
            case .over:
                item.sender?.continuation.resume(returning: false)
            }
        }
        // The connection charges them from now on.
        if charge > 0 { self.load.held(-charge) }
        self.leave(outbox, held, isBlocked: isBlocked, allowance: machine.allowance(self.id))
    }

    /// Puts back what the connection does not accept yet.
    private func leave(_ rest: Deque<Outgoing>, _ held: Sender?, isBlocked: Bool, allowance: UInt64) {
        // Nothing ends the stream meanwhile: that happens on the event loop as well.
        self.state.withLockedValue { state in
            if !rest.isEmpty { state.outbox.prepend(contentsOf: rest) }
            if isBlocked { state.isBlocked = true }
            if let held { state.held = held }
            let waiting = state.outbox.reduce(0) { $0 + StreamFrames.wholeCost($1.payload.readableBytes) }
            let allowance = isBlocked ? 0 : min(allowance, Self.largestAllowance)
            state.allowance = allowance > waiting ? allowance - waiting : 0
        }
    }

    /// The cost of items that a handler may send before the connection visits.
    static let largestAllowance: UInt64 = 256 << 10

    /// Resumes sending when the connection accepts items again.
    func goOn() {
        let held = self.state.withLockedValue { state in
            state.isBlocked = false
            return state.held.take()
        }
        held?.continuation.resume(returning: true)
    }

    func ended(_ error: StatusError) {
        let (held, outbox) = self.state.withLockedValue { state in
            defer { state.outbox = [] }
            if state.end == nil { state.end = error }
            return (state.held.take(), state.outbox)
        }
        self.inbox.cancel()
        held?.continuation.resume(returning: false)
        let charge = outbox.reduce(0) { $0 + $1.charge }
        if charge > 0 { self.load.held(-charge) }
        for item in outbox { item.sender?.continuation.resume(returning: false) }
    }

    /// The charge for memory that the handler holds for the stream, in bytes.
    func hold(_ bytes: Int) -> Hold { Hold(.memory(bytes), of: self.load) }
}
