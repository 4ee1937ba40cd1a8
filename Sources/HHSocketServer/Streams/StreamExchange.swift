// SPDX-License-Identifier: Apache-2.0
import DequeModule
import HHSocketLink
import NIOConcurrencyHelpers
import NIOCore

/// A stream as its handler and its connection see it. The handler takes and sends on any thread.
final class StreamExchange: StreamParty, Sendable {
    private struct State {
        var hasHandlerReturned = false
        /// The reason why the stream is over.
        var end: StatusError?
    }

    /// The number of items of a batch whose memory is kept for the next.
    private static let largestKeptBatch = 64

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
    let port: StreamPort
    private let state = NIOLockedValueBox(State())

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
        // Items are detached, since a handler may keep them.
        self.port = StreamPort(
            inbox: Inbox(.items(detaching: .all), account: nil),
            account: load,
            freeItem: ConnectionCost.freeItem,
            largestRoom: Self.largestAllowance
        )
        self.port.open(compression: nil, allowance: allowance)
        if !kind.clientStreams { self.port.inbox.finish() }
    }

    /// Whether the stream is over.
    var isOver: Bool { self.port.isOver }

    var waitsForClient: Bool {
        self.port.inbox.hasWaitingReader || self.port.hasWaitingSender
            || self.state.withLockedValue { $0.hasHandlerReturned }
    }

    /// The error of a handler that gets no more items.
    private var end: StatusError? { self.state.withLockedValue { $0.end } }

    // MARK: The handler reads

    func makeReader() -> Inbox<StreamItem>.Reader { self.port.inbox.makeReader() }

    /// Waits for and returns the next item; nil once the client has ended them.
    func next(
        of reader: Inbox<StreamItem>.Reader,
        isolation: isolated (any Actor)?
    ) async throws(StatusError) -> ByteBuffer? {
        var item = reader.take()
        if item == nil {
            self.port.holdNothing()
            item = await reader.waitForElement(isolation: isolation)
        }
        guard let item, self.takes(item) else {
            reader.drop()
            if let end = self.end { throw end }
            switch reader.absence {
            case .over: return nil
            case .cancelled: throw StatusError(.cancelledByServer)
            case .busy: throw Self.isReadElsewhere
            }
        }
        return item.isCompressed ? try await self.inflated(item.payload) : item.payload
    }

    /// The handler takes an item, and no longer needs the previous one. Returns false if the stream is over.
    private func takes(_ item: StreamItem) -> Bool {
        let charge = item.isCompressed ? 0 : self.port.charge(for: item.payload)
        return self.port.took(item.receipt, holding: charge, visit: self.requestVisit)
    }

    /// Records that the handler has returned and no longer needs an item.
    func handlerHasReturned() {
        self.state.withLockedValue { $0.hasHandlerReturned = true }
        self.port.holdNothing(isForGood: true)
    }

    /// Prepares the connection for a file.
    func carryContent(window: UInt64) {
        self.session.port.onLoop { $0.streamHost?.carryContent(self.id, window: window, in: &$1) }
    }

    /// Whether an item waits for a reader to take it.
    var hasItem: Bool { !self.port.inbox.isEmpty }

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
            load.held(self.port.hold(body.bytes.storageCapacity))
            return body.bytes
        } catch {
            if error == .cancelled { throw self.end ?? StatusError(.cancelledByServer) }
            self.session.port.onLoop { [status = error.status] in
                $0.streamHost?.failStream(self.id, status, in: &$1)
            }
            throw StatusError(error.status)
        }
    }

    // MARK: The handler sends

    /// The cost of items that a handler may send before the connection visits.
    static let largestAllowance: UInt64 = 256 << 10

    /// Sends an item, and returns when the next may follow.
    ///
    /// - Throws: `CancellationError` once the stream is over, or if the task is cancelled while it waits;
    ///   ``StatusError`` if the item is too long.
    nonisolated(nonsending) func send(_ body: ByteBuffer, type: UInt32, mayCompress: Bool = true) async throws {
        guard self.rules.takes(answerOf: body.readableBytes, type: type, self.session) else {
            throw StatusError(.illegalLength)
        }
        let (payload, isCompressed) = mayCompress ? self.compressed(body) : (body, false)
        var put = self.port.put(payload, isCompressed: isCompressed, mayWait: false, visit: self.requestVisit)
        if put == .full {
            // It may wait as long as the client likes.
            put = self.port.put(payload.detached, isCompressed: isCompressed, visit: self.requestVisit)
        }
        switch put {
        case .proceed: return
        case .wait(let ticket): try await self.waitForRoom(with: ticket)
        case .over, .finished, .full, .compress: throw CancellationError()
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

    private nonisolated(nonsending) func waitForRoom(with ticket: UInt64) async throws {
        await withTaskCancellationHandler {
            await withUnsafeContinuation { (continuation: UnsafeContinuation<Void, Never>) in
                let waiter = TurnWaiter(continuation, isHere: false)
                if !self.port.awaitRoom(.task(waiter), ticket: ticket) { continuation.resume() }
            }
        } onCancel: {
            self.port.withdraw(ticket)?.resume()
        }
        if Task.isCancelled || self.isOver { throw CancellationError() }
    }

    private func requestVisit() {
        self.session.port.onLoop { $0.streamHost?.visit(self, self.id, in: &$1) }
    }

    // MARK: On the event loop

    func received(_ items: inout Deque<StreamItem>, in turn: inout Turn) {
        let isLong = items.count > Self.largestKeptBatch
        self.port.inbox.append(contentsOf: &items)
        // The memory of a long batch is not kept, since nothing is charged for it.
        if isLong { items = [] }
    }

    func sent(_: StreamPort.Settled) {}

    func resume(_ sender: StreamPort.Sender, in turn: inout Turn) { sender.resume() }

    func ended(_ end: StreamEnd, in turn: inout Turn) {
        self.ended(StatusError(end.outcome.status ?? .cancelledByServer))
    }

    func ended(_ error: StatusError) {
        self.state.withLockedValue { if $0.end == nil { $0.end = error } }
        self.port.end { $0.resume() }
        self.port.inbox.cancel()
    }

    /// The charge for memory that the handler holds for the stream, in bytes.
    func hold(_ bytes: Int) -> Hold { Hold(.memory(bytes), of: self.load) }
}

extension StreamPort.Sender {
    /// Resumes a handler's task at once.
    fileprivate func resume() {
        if case .task(let waiter) = self { waiter.resume() }
    }
}
