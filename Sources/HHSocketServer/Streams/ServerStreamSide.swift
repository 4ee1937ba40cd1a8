// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

/// The session of a connection, as its streams use it.
protocol StreamSideHost: AnyObject {
    /// Whether the client sends nothing more.
    var inputIsClosed: Bool { get }
    /// The last piece of a payload has come.
    func receivedPayload(_ frame: Frame, in turn: inout Turn)
    /// A payload in pieces is not completed, and was answered.
    func refused(type: UInt32, serial: UInt32, _ status: Status)
    /// A request is over, whose stream has ended before its handler has returned.
    func streamEnded(serial: UInt32, run: UInt64, in turn: inout Turn)
    /// Whether a frame that looks like a whole request may not be one has changed.
    func fastPathChanged(isClosed: Bool)
    /// A frame was of no use.
    func receivedUnproductive()
    /// The client has broken a rule that cannot be answered.
    func streamsFailed(_ fault: StreamFault, in turn: inout Turn)
    /// Something may have been the last that the connection waits for.
    func streamsMoved(in turn: inout Turn)
}

/// The streams of one connection whose hello agreed on them, as the rest of its session sees them: their shell, what
/// they cost, and the runs of their handlers. On the event loop.
final class ServerStreamSide {
    /// The number of bytes that streams send before it is checked how many the system has accepted.
    private static let bytesAtOnce = 128 << 10
    /// The number of bytes of answers and pushes that may wait before nothing more is read, as for a link.
    private static let maximumPlainBytes = 1 << 20

    private let link: Link<FrameLanguage>
    private let peer: ServerPeer
    private let writer: AnswerWriter
    private let counts: SessionCounts
    /// Nil once the connection has ended.
    private var host: (any StreamSideHost)?
    private let agreement: Agreement
    private let shell: StreamShell<ServerStreams>
    /// Whether a push is being sent in pieces.
    private var pushIsUnderWay = false
    /// Whether reading is suspended because the client does not take its answers.
    private var suspendsReading = false
    /// The charge for what streams hold.
    private var hold: Hold
    /// The charge for the larger buffers of a connection that carries files.
    private var content: Hold?
    /// The number of bytes of received pieces.
    private var pieceBytes = 0
    private var exchanges: [StreamID: StreamExchange] = [:]
    /// The streams of handlers that have not returned.
    private var runs: [UInt64: StreamID] = [:]

    /// - Parameters:
    ///   - terms: The streams that hello has agreed on.
    ///   - isStranger: Whether the client has not identified itself.
    init(
        over link: Link<FrameLanguage>,
        of peer: ServerPeer,
        _ writer: AnswerWriter,
        agreement: Agreement,
        terms: StreamTerms,
        policy: StreamPolicy,
        host: any StreamSideHost
    ) {
        self.link = link
        self.peer = peer
        self.hold = Hold(.memory(0), of: peer.account)
        self.writer = writer
        self.counts = peer.loop.sessionCounts
        self.agreement = agreement
        self.host = host
        let limits = peer.parts.rules.limits
        var settings = policy.settings(
            terms,
            flags: agreement.flags,
            format: peer.listener.format,
            maximumPayloadLength: limits.maximumPayloadLength
        )
        settings.maximumUnfinished = limits.maximumInFlightPerConnection
        self.shell = StreamShell(ServerStreams(settings), over: link, largestBurst: Self.bytesAtOnce)
        self.shell.begin(self)
        self.standingChanged()
    }

    /// Sets the limits on what is held according to the client's standing.
    func standingChanged() {
        guard let policy = self.peer.parts.rules.streams else { return }
        let (limits, isStranger) = (self.peer.parts.rules.limits, self.peer.isStranger)
        let length = limits.maximumPayloadLength(ofStranger: isStranger)
        let (product, overflows) = length.multipliedReportingOverflow(by: limits.strangers.maximumInFlight)
        let held = min(policy.maximumHeldBytes, limits.maximumBufferedBytesPerConnection)
        // Nothing from a stranger is decompressed, whatever hello has agreed on.
        let flags = self.agreement.flags
        self.shell.with {
            $0.accept(
                payloadsUpTo: length,
                holding: isStranger && !overflows ? min(held, product) : held,
                flags: isStranger ? flags & ~FrameType.compressionFlag : flags
            )
        }
    }

    private var isOpen: Bool { self.host != nil && self.link.phase == .open }

    // MARK: What is open

    /// Whether nothing would change if they were tended.
    var isQuiet: Bool { self.shell.isQuiet && self.hold.bytes == 0 && !self.suspendsReading }

    /// Whether reading is suspended because the client does not take its answers.
    var isReadingSuspended: Bool { self.suspendsReading }

    /// Whether nothing is open and nothing waits.
    var isIdle: Bool { self.shell.with { $0.openCount == 0 && $0.waitingBytes == 0 } }

    /// The number of streams whose handlers wait for the client.
    var waitingForClient: Int { self.runs.values.count { self.exchanges[$0]?.waitsForClient ?? false } }

    /// The number of bytes of received pieces; nil if no payload is incomplete, or if the client may send no more now.
    var awaitedPieceBytes: Int? {
        self.isOpen && self.shell.with { $0.hasUnfinished && !$0.receiveWindow.isUsed } ? self.pieceBytes : nil
    }

    /// Notes whether a frame that looks like a whole request may not be one: the last piece of a payload, or a mistake
    /// on a stream whose answer waits behind its items. Other streams are requests in flight.
    private func noteFastPath() {
        self.host?.fastPathChanged(isClosed: self.shell.awaitsPieces || self.exchanges.count > self.runs.count)
    }

    // MARK: From the client

    /// Handles a frame of a stream, or a piece.
    ///
    /// - Returns: False for any other frame.
    func receive(_ frame: borrowing ArrivedFrame, isCorrupt: Bool, in turn: inout Turn) -> Bool {
        let isPiece = self.shell.awaitsPieces || frame.type & FrameType.continuesFlag != 0
        guard self.shell.receive(frame, isDamaged: isCorrupt, in: &turn) else { return false }
        if isPiece {
            self.pieceBytes += frame.length
            self.noteFastPath()
        }
        if isCorrupt { self.counts.count(.badChecksums) }
        for _ in 0..<self.shell.takeUnproductiveFrames() { self.host?.receivedUnproductive() }
        self.shell.perform(in: &turn)
        return true
    }

    /// The client cancels the request with this serial.
    ///
    /// - Returns: False if it is neither a stream nor arrives in pieces.
    func cancel(serial: UInt32, in turn: inout Turn) -> Bool {
        guard self.shell.with({ $0.cancelled(serial: serial) }) else { return false }
        self.noteFastPath()
        self.shell.perform(in: &turn)
        return true
    }

    /// Returns the reason why a request does not open a stream; nil if it does.
    func refusal(toOpen kind: StreamKind, hasBody: Bool, hasKey: Bool) -> RequestGate.Refusal? {
        switch self.shell.with({ $0.objection(toOpen: kind, hasBody: hasBody, hasKey: hasKey) }) {
        case nil: nil
        case .malformed: .opening
        // A draining connection has answered before.
        case .draining, .tooMany: .streams
        }
    }

    /// Opens a stream whose request was admitted.
    func open(
        _ kind: StreamKind,
        for arrival: borrowing ReceivedRequest,
        of session: ServerSession,
        on executor: HandlerExecutor,
        run: UInt64,
        now: NIODeadline
    ) -> StreamExchange? {
        let (type, serial, hasBody) = (arrival.frame.type, arrival.frame.serial, arrival.frame.length > 0)
        let opening = self.shell.with { machine -> (StreamID, UInt64)? in
            let opening = machine.open(type: type, serial: serial, kind: kind, hasBody: hasBody, now: now)
            guard case .opened(let id) = opening else { return nil }
            return (id, machine.allowance(id))
        }
        // All that it refuses was refused before.
        guard let (id, allowance) = opening else { return nil }
        self.counts.count(.streamsOpened)
        let exchange = StreamExchange(
            id: id,
            serial: serial,
            run: run,
            kind: kind,
            session: session,
            rules: self.peer.parts.rules,
            agreement: self.agreement,
            executor: executor,
            load: self.peer.account,
            allowance: min(allowance, StreamExchange.largestAllowance)
        )
        self.exchanges[id] = exchange
        self.runs[run] = id
        self.shell.add(exchange, as: id, serial: serial)
        return exchange
    }

    // MARK: The end of a handler

    private func takeExchange(ofRun run: UInt64) -> StreamExchange? {
        guard !self.runs.isEmpty, let id = self.runs.removeValue(forKey: run) else { return nil }
        return self.exchanges[id]
    }

    /// Handles the return of a request's handler, or its timeout.
    ///
    /// - Returns: False if it serves no stream.
    func answer(_ answer: Frame, run: UInt64, in turn: inout Turn) -> Bool {
        guard let exchange = self.takeExchange(ofRun: run) else { return false }
        self.shell.settle(exchange, exchange.id, isLast: true, in: &turn)
        self.shell.with {
            $0.answer(
                exchange.id,
                status: answer.status,
                flags: answer.type & FrameType.allFlags,
                payload: answer.payload
            )
        }
        exchange.ended(StatusError(.cancelledByServer))
        self.tend(in: &turn)
        self.noteFastPath()
        return true
    }

    /// Ends a stream whose time is over: waiting items are not sent.
    ///
    /// - Returns: False if there is no such stream.
    func expire(run: UInt64, in turn: inout Turn) -> Bool {
        guard let exchange = self.takeExchange(ofRun: run) else { return false }
        self.shell.change(in: &turn) { $0.fail(exchange.id, .deadlineExceeded) }
        return true
    }

    // MARK: Tending

    /// Performs the actions of the streams, and sends their frames.
    func tend(in turn: inout Turn) { self.shell.tend(in: &turn) }

    private func countOverloadOfMemory() {
        self.counts.count(.overloads)
        self.counts.count(.overloadsOfMemory)
    }

    // MARK: Ends

    /// The client sends nothing more.
    func inputClosed(in turn: inout Turn) {
        self.shell.with { $0.inputClosed() }
        self.noteFastPath()
        self.tend(in: &turn)
    }

    /// The server shuts down.
    func drain() { self.shell.with { $0.drain() } }

    /// The shutdown's patience is over: notifies the client of the streams that are open.
    ///
    /// - Returns: Whether there are any.
    func stop(in turn: inout Turn) -> Bool {
        guard self.shell.count > 0 else { return false }
        self.shell.with { $0.endPatience() }
        self.shell.sendLast(in: &turn)
        return true
    }

    /// Ends all streams, since nothing more is sent or received.
    func lose() {
        self.shell.abandon()
        let exchanges = self.exchanges.values
        (self.exchanges, self.runs) = ([:], [:])
        for exchange in exchanges { exchange.ended(StatusError(.cancelledByServer)) }
        self.hold.change(to: 0)
    }

    /// The connection has ended.
    func end() {
        self.lose()
        self.content = nil
        self.host = nil
    }
}

extension ServerStreamSide: StreamSide {
    func receivedPayload(_ frame: Frame, in turn: inout Turn) { self.host?.receivedPayload(frame, in: &turn) }

    func receivedBrokenPayload(_ failure: PayloadFailure, type: UInt32, serial: UInt32, in turn: inout Turn) {
        switch failure {
        case .damaged: break
        case .tooLong, .differentPieces: self.counts.count(.illegalRequests)
        case .tooMuchHeld: self.countOverloadOfMemory()
        }
        self.host?.receivedUnproductive()
        self.host?.refused(type: type, serial: serial, failure.status)
    }

    func willSend(_ frame: inout Frame, in turn: inout Turn) -> Bool {
        if self.pushIsUnderWay, frame.type & FrameType.continuesFlag == 0, self.peer.listener.isPush(frame) {
            self.pushIsUnderWay = false
        }
        return self.writer.mayEmit(frame, in: &turn)
    }

    func ended(_ id: StreamID, serial: UInt32, _ end: StreamEnd, in turn: inout Turn) {
        guard let exchange = self.exchanges.removeValue(forKey: id) else { return }
        self.runs[exchange.run] = nil
        self.noteFastPath()
        switch end.outcome {
        case .answered, .cancelled, .connectionLost: return
        case .violated, .tooLong:
            self.counts.count(.illegalRequests)
            self.host?.receivedUnproductive()
        case .damaged: self.host?.receivedUnproductive()
        case .tooMuchHeld: self.countOverloadOfMemory()
        case .idle:
            self.counts.count(.idleStreams)
            self.peer.takeCounts()
        case .drained, .inputClosed, .failed: break
        }
        self.host?.streamEnded(serial: serial, run: exchange.run, in: &turn)
    }

    func faulted(_ fault: StreamFault, in turn: inout Turn) { self.host?.streamsFailed(fault, in: &turn) }

    /// Charges what streams hold, and resumes or suspends reading.
    func settled(in turn: inout Turn) {
        if !self.shell.wantsRoom, self.host?.inputIsClosed == true, self.shell.count > 0 {
            // Streams that wait for credit would wait for ever.
            self.shell.with { $0.endStarved() }
            self.shell.perform(in: &turn)
        }
        if self.writer.wantsRoom { self.link.reportsRoom = true }
        // Not after each turn: a client that reads takes them soon.
        let detaches = self.shell.wantsRoom && (!self.link.isWritable || self.link.knownChannelBytes > 0)
        let (cost, isBehind) = self.shell.with { machine in
            if detaches { machine.detachWaiting() }
            return (machine.cost, machine.waitingPlainBytes >= Self.maximumPlainBytes)
        }
        self.hold.change(to: cost)
        // The client should take its answers before it sends more requests.
        if self.isOpen, isBehind != self.suspendsReading {
            self.suspendsReading.toggle()
            self.link.setReading(isSuspended: self.suspendsReading, in: &turn)
        }
        self.host?.streamsMoved(in: &turn)
    }
}

extension ServerStreamSide: PieceSender {
    var wantsRoom: Bool { self.shell.wantsRoom }
    var isPushing: Bool { self.pushIsUnderWay }
    var waitingBytes: Int { self.shell.with { $0.waitingBytes } }

    func sendInPieces(_ frame: Frame, in turn: inout Turn) {
        self.shell.change(in: &turn) { $0.sendPlain(frame) }
    }

    func push(_ push: Frame, in turn: inout Turn) {
        self.pushIsUnderWay = true
        self.sendInPieces(push, in: &turn)
    }

    func hasRoom(in turn: inout Turn) -> Bool {
        guard self.shell.wantsRoom else { return false }
        guard self.link.channelBytes == 0 else {
            // The system accepts no more. Frames sent now would be ahead of the next answers.
            self.link.flushOnceWritten()
            return false
        }
        let loop = self.peer.loop.socketLoop
        if loop.turnIsOver(turn) {
            self.link.reportsRoom = false
            loop.afterOtherChannels(in: &turn) { turn in
                if self.isOpen { self.tend(in: &turn) }
            }
            return false
        }
        return self.shell.tend(in: &turn)
    }
}

extension ServerStreamSide: StreamHost {
    func visit(_ party: any StreamParty, _ id: StreamID, in turn: inout Turn) {
        if self.isOpen, self.shell.isOpen(id) { self.shell.visit(party, id, in: &turn) }
    }

    func carryContent(_ id: StreamID, window: UInt64, in turn: inout Turn) {
        guard self.isOpen else { return }
        self.useLargeBuffersOfTLS()
        self.shell.change(in: &turn) { $0.widen(id, to: window) }
    }

    /// Makes TLS read and write more at once from now on: its buffers never shrink.
    private func useLargeBuffersOfTLS() {
        guard self.content == nil, let channel = self.link.context?.channel,
            let pieces = try? channel.pipeline.syncOperations.handler(type: TLSPieces.self)
        else { return }
        self.content = Hold(.memory(ConnectionCost.tlsContent), of: self.peer.account)
        pieces.carryContent()
        try? channel.syncOptions?.setOption(.recvAllocator, value: TLSReadAllocator(carriesContent: true))
    }

    func failStream(_ id: StreamID, _ status: Status, in turn: inout Turn) {
        guard self.isOpen else { return }
        self.shell.with { $0.fail(id, status) }
        if status == .overloaded { self.countOverloadOfMemory() } else { self.counts.count(.illegalRequests) }
        self.tend(in: &turn)
    }
}
