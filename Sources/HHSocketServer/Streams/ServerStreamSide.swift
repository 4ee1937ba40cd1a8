// SPDX-License-Identifier: Apache-2.0
import DequeModule
import HHSocket
import NIOCore

/// The session of a connection, as its streams use it.
protocol StreamSideHost: AnyObject {
    /// Whether the client sends nothing more.
    var inputIsClosed: Bool { get }
    /// The last piece of a payload has come.
    func received(whole frame: Frame, in turn: inout Turn)
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

/// The streams of one connection whose hello agreed on them: their decisions, their frames, and the server's code at
/// the end of each. On the event loop.
final class ServerStreamSide {
    /// The number of bytes that streams send before it is checked how many the system has accepted.
    private static let bytesAtOnce = 128 << 10
    /// The number of bytes of answers and pushes that may wait before nothing more is read, as for a link.
    private static let maximumPlainBytes = 1 << 20
    private static let largestKeptActions = 64

    private let link: Link<FrameLanguage>
    private let peer: ServerPeer
    private let writer: AnswerWriter
    private let counts: SessionCounts
    /// Nil once the connection has ended.
    private var host: (any StreamSideHost)?
    private let agreement: Agreement
    private var machine: ServerStreams
    /// The actions that have not been performed. Items wait here until the read that brought them is over.
    private var pending: [StreamAction] = []
    private var isPerforming = false
    /// Whether frames of the streams wait until the link accepts more.
    private var waitsForRoom = false
    /// Whether a push is being sent in pieces.
    private var pushIsUnderWay = false
    /// Whether reading is suspended because the client does not take its answers.
    private var suspendsReading = false
    /// The charge for what streams hold.
    private var hold: Hold
    /// The charge for the larger buffers of a connection that carries files.
    private var content: Hold?
    /// Ends streams that do not move.
    private var alarm: SocketLoop.TimerID?
    /// The number of bytes of received pieces.
    private var pieceBytes = 0
    private var parties: [StreamID: any StreamParty] = [:]
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
        let limits = peer.core.rules.limits
        var settings = policy.settings(
            terms,
            flags: agreement.flags,
            format: peer.listener.format,
            maximumPayloadLength: limits.maximumPayloadLength
        )
        settings.maximumUnfinished = limits.maximumInFlightPerConnection
        self.machine = ServerStreams(settings)
        self.standingChanged()
    }

    /// Sets the limits on what is held according to the client's standing.
    func standingChanged() {
        guard let policy = self.peer.core.rules.streams else { return }
        let (limits, isStranger) = (self.peer.core.rules.limits, self.peer.isStranger)
        let length = limits.maximumPayloadLength(ofStranger: isStranger)
        let (product, overflows) = length.multipliedReportingOverflow(by: limits.strangers.maximumInFlight)
        let held = min(policy.maximumHeldBytes, limits.maximumBufferedBytesPerConnection)
        // Nothing from a stranger is decompressed, whatever hello has agreed on.
        let flags = self.agreement.flags
        self.machine.accept(
            payloadsUpTo: length,
            holding: isStranger && !overflows ? min(held, product) : held,
            flags: isStranger ? flags & ~FrameType.compressionFlag : flags
        )
    }

    private var isOpen: Bool { self.host != nil && self.link.phase == .open }

    // MARK: What is open

    /// Whether nothing would change if they were tended.
    var isQuiet: Bool {
        self.machine.isQuiet && self.pending.isEmpty && self.hold.bytes == 0 && !self.waitsForRoom
            && !self.suspendsReading
    }

    /// Whether reading is suspended because the client does not take its answers.
    var isReadingSuspended: Bool { self.suspendsReading }

    /// Whether nothing is open and nothing waits.
    var isIdle: Bool { self.machine.openCount == 0 && self.machine.waitingBytes == 0 }

    /// The number of streams whose handlers wait for the client.
    var waitingForClient: Int { self.runs.values.count { self.parties[$0]?.waitsForClient ?? false } }

    /// The number of bytes of received pieces; nil if no payload is incomplete, or if the client may send no more now.
    var awaitedPieceBytes: Int? {
        self.isOpen && self.machine.hasUnfinished && !self.isWindowUsed ? self.pieceBytes : nil
    }

    /// Whether the client may send no items for now, since other streams' wait here.
    private var isWindowUsed: Bool {
        let window = self.machine.receiveWindow
        let room = window.granted - min(window.received, window.granted)
        return room < min(StreamFrames.minimumConnectionRoom, window.window / 2)
    }

    /// Notes whether a frame that looks like a whole request may not be one: the last piece of a payload, or a mistake
    /// on a stream whose answer waits behind its items. Other streams are requests in flight.
    private func noteFastPath() {
        self.host?.fastPathChanged(isClosed: self.machine.awaitsPieces || self.parties.count > self.runs.count)
    }

    // MARK: From the client

    /// Handles a frame of a stream, or a piece.
    ///
    /// - Returns: False for any other frame.
    func receive(_ frame: borrowing ArrivedFrame, isCorrupt: Bool, in turn: inout Turn) -> Bool {
        let isPiece = self.machine.awaitsPieces || frame.type & FrameType.continuesFlag != 0
        guard self.machine.receive(frame, isDamaged: isCorrupt, now: turn.now) else { return false }
        if isPiece {
            self.pieceBytes += frame.length
            self.noteFastPath()
        }
        if isCorrupt { self.counts.count(.badChecksums) }
        for _ in 0..<self.machine.takeUnproductiveFrames() { self.host?.receivedUnproductive() }
        // Items wait for the end of the read, which may bring more of them.
        if !self.machine.endsWithItem() { self.performActions(in: &turn) }
        return true
    }

    /// The client cancels the request with this serial.
    ///
    /// - Returns: False if it is neither a stream nor arrives in pieces.
    func cancel(serial: UInt32, in turn: inout Turn) -> Bool {
        guard self.machine.cancelled(serial: serial) else { return false }
        self.noteFastPath()
        self.machine.takeActions(into: &self.pending)
        self.performActions(in: &turn)
        return true
    }

    /// Returns the reason why a request does not open a stream; nil if it does.
    func refusal(toOpen kind: StreamKind, hasBody: Bool, hasKey: Bool) -> RequestGate.Refusal? {
        switch self.machine.objection(toOpen: kind, hasBody: hasBody, hasKey: hasKey) {
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
        // All that it refuses was refused before.
        guard
            case .opened(let id) = self.machine.open(
                type: arrival.frame.type,
                serial: arrival.frame.serial,
                kind: kind,
                hasBody: arrival.frame.length > 0,
                now: now
            )
        else { return nil }
        self.counts.count(.streamsOpened)
        let exchange = StreamExchange(
            id: id,
            serial: arrival.frame.serial,
            run: run,
            kind: kind,
            session: session,
            rules: self.peer.core.rules,
            agreement: self.agreement,
            executor: executor,
            load: self.peer.account,
            allowance: min(self.machine.allowance(id), StreamExchange.largestAllowance)
        )
        self.parties[id] = exchange
        self.runs[run] = id
        self.setAlarm()
        return exchange
    }

    // MARK: The end of a handler

    private func takeParty(ofRun run: UInt64) -> (any StreamParty)? {
        guard !self.runs.isEmpty, let id = self.runs.removeValue(forKey: run) else { return nil }
        return self.parties[id]
    }

    /// Handles the return of a request's handler, or its timeout.
    ///
    /// - Returns: False if it serves no stream.
    func answer(_ answer: Frame, run: UInt64, in turn: inout Turn) -> Bool {
        guard let party = self.takeParty(ofRun: run) else { return false }
        party.settle(&self.machine, isLast: true, now: turn.now)
        self.machine.answer(
            party.id,
            status: answer.status,
            flags: answer.type & FrameType.allFlags,
            payload: answer.payload
        )
        party.ended(StatusError(.cancelledByServer))
        self.tend(in: &turn)
        self.noteFastPath()
        return true
    }

    /// Ends a stream whose time is over: waiting items are not sent.
    ///
    /// - Returns: False if there is no such stream.
    func expire(run: UInt64, in turn: inout Turn) -> Bool {
        guard let party = self.takeParty(ofRun: run) else { return false }
        self.machine.fail(party.id, .deadlineExceeded)
        self.tend(in: &turn)
        return true
    }

    // MARK: Decisions

    /// Performs the actions of the streams, and sends their frames.
    func tend(in turn: inout Turn) {
        self.performActions(in: &turn)
        guard !self.isPerforming else { return }
        if self.sendFrames(in: &turn) {
            // Senders that resume have more to send after this has been flushed.
            self.waitsForRoom = true
            self.link.tellsOfRoom = true
        }
        self.performActions(in: &turn)
        self.settle(in: &turn)
        self.host?.streamsMoved(in: &turn)
    }

    private func performActions(in turn: inout Turn) {
        // Performing an action leads here again.
        guard !self.isPerforming else { return }
        self.isPerforming = true
        defer { self.isPerforming = false }
        while true {
            self.machine.takeActions(into: &self.pending)
            guard !self.pending.isEmpty else { return }
            var actions: [StreamAction] = []
            swap(&actions, &self.pending)
            self.perform(actions, in: &turn)
            guard self.host != nil else { return }
            if self.pending.isEmpty {
                actions.removeAll(keepingCapacity: actions.count <= Self.largestKeptActions)
                swap(&actions, &self.pending)
            }
        }
    }

    private func perform(_ actions: [StreamAction], in turn: inout Turn) {
        var (items, owner): (Deque<StreamItem>, StreamID?) = ([], nil)
        func hand() {
            if let owner, !items.isEmpty { self.parties[owner]?.received(&items) }
            items.removeAll(keepingCapacity: true)
        }
        for action in actions {
            if case .item(let id, let item) = action {
                if id != owner { hand() }
                owner = id
                items.append(item)
                continue
            }
            hand()
            self.perform(action, in: &turn)
        }
        hand()
    }

    private func perform(_ action: StreamAction, in turn: inout Turn) {
        switch action {
        case .item: break
        case .itemsEnded(let id): self.parties[id]?.itemsEnded()
        case .goOn(let id):
            guard let party = self.parties[id] else { return }
            party.goOn()
            party.settle(&self.machine, isLast: false, now: turn.now)
        case .ended(let id, let end): self.ended(id, end.outcome, in: &turn)
        case .whole(let frame): self.host?.received(whole: frame, in: &turn)
        case .failed(let type, let serial, let failure):
            switch failure {
            case .damaged: break
            case .tooLong, .differentPieces: self.counts.count(.illegalRequests)
            case .tooMuchHeld: self.countOverloadOfMemory()
            }
            self.host?.receivedUnproductive()
            self.host?.refused(type: type, serial: serial, failure.status)
        case .close(let fault): self.host?.streamsFailed(fault, in: &turn)
        }
    }

    private func countOverloadOfMemory() {
        self.counts.count(.overloads)
        self.counts.count(.overloadsOfMemory)
    }

    private func ended(_ id: StreamID, _ outcome: StreamOutcome, in turn: inout Turn) {
        guard let party = self.parties.removeValue(forKey: id) else { return }
        self.runs[party.run] = nil
        self.noteFastPath()
        party.ended(StatusError(outcome.status ?? .cancelledByServer))
        switch outcome {
        case .answered, .cancelled, .connectionLost: return
        case .violated, .tooLong:
            self.counts.count(.illegalRequests)
            self.host?.receivedUnproductive()
        case .damaged: self.host?.receivedUnproductive()
        case .tooMuchHeld: self.countOverloadOfMemory()
        case .idle: self.counts.count(.idleStreams)
        case .drained, .inputClosed, .failed: break
        }
        self.host?.streamEnded(serial: party.serial, run: party.run, in: &turn)
    }

    // MARK: To the client

    /// Hands the link as many frames as the system accepts; frames of other streams may pass between them.
    ///
    /// - Returns: Whether there were any.
    @discardableResult
    private func sendFrames(in turn: inout Turn) -> Bool {
        guard self.isOpen, self.link.context != nil else { return false }
        var bytes = 0
        self.waitsForRoom = true
        while self.link.canSend, bytes < Self.bytesAtOnce {
            guard let frame = self.machine.next(now: turn.now) else {
                self.waitsForRoom = false
                break
            }
            bytes += frame.payload.readableBytes + Int(StreamFrames.overhead)
            if self.pushIsUnderWay, self.peer.listener.isPush(frame), frame.type & FrameType.continuesFlag == 0 {
                self.pushIsUnderWay = false
            }
            self.writer.emit(frame, in: &turn)
        }
        if !self.waitsForRoom, self.host?.inputIsClosed == true, self.machine.openCount > 0 {
            // Streams that wait for credit would wait for ever.
            self.machine.endStarved()
        }
        self.link.tellsOfRoom = self.waitsForRoom || self.writer.wantsRoom
        return bytes > 0
    }

    /// Charges what streams hold, and resumes or suspends reading.
    private func settle(in turn: inout Turn) {
        // Not after each turn: a client that reads takes them soon.
        if self.waitsForRoom, !self.link.isWritable || self.link.knownChannelBytes > 0 { self.machine.detachWaiting() }
        self.hold.change(to: self.cost)
        // The client should take its answers before it sends more requests.
        let isBehind = self.machine.waitingPlainBytes >= Self.maximumPlainBytes
        guard self.isOpen, isBehind != self.suspendsReading else { return }
        self.suspendsReading.toggle()
        self.link.setReading(isSuspended: self.suspendsReading, in: &turn)
    }

    /// The memory that is held for streams, in bytes.
    private var cost: Int { Int(clamping: self.machine.heldMemory) + self.machine.waitingBytes }

    // MARK: Time

    /// Sets one timer for all streams: the limit is the same for all, so that later ones end later.
    private func setAlarm() {
        guard self.alarm == nil, let deadline = self.machine.nextDeadline else { return }
        self.alarm = self.peer.loop.socketLoop.setTimer(deadline) { turn in
            self.alarm = nil
            guard self.isOpen else { return }
            self.machine.timePassed(now: turn.now)
            self.tend(in: &turn)
            self.peer.takeCounts()
            self.setAlarm()
        }
    }

    // MARK: Ends

    /// The client sends nothing more.
    func inputClosed(in turn: inout Turn) {
        self.machine.inputClosed()
        self.noteFastPath()
        self.tend(in: &turn)
    }

    /// The server shuts down.
    func drain() { self.machine.drain() }

    /// The shutdown's patience is over: notifies the client of the streams that are open.
    ///
    /// - Returns: Whether there are any.
    func stop(in turn: inout Turn) -> Bool {
        guard self.machine.openCount > 0 else { return false }
        self.machine.endPatience()
        self.performActions(in: &turn)
        var bytes = 0
        while bytes < Self.bytesAtOnce, let frame = self.machine.next(now: turn.now) {
            bytes += frame.payload.readableBytes + Int(StreamFrames.overhead)
            self.writer.emit(frame, in: &turn)
        }
        return true
    }

    /// Ends all streams, since nothing more is sent or received.
    func lose() {
        self.machine.connectionLost()
        self.pending = []
        let parties = self.parties.values
        self.parties = [:]
        self.runs = [:]
        for party in parties { party.ended(StatusError(.cancelledByServer)) }
        self.machine.takeActions(into: &self.pending)
        self.pending = []
        self.hold.change(to: self.cost)
    }

    /// The connection has ended.
    func end() {
        self.lose()
        if let alarm = self.alarm.take() { self.peer.loop.socketLoop.removeTimer(alarm) }
        self.hold.change(to: 0)
        self.content = nil
        self.host = nil
    }
}

extension ServerStreamSide: PieceSender {
    var wantsRoom: Bool { self.waitsForRoom }
    var isPushing: Bool { self.pushIsUnderWay }
    var waitingBytes: Int { self.machine.waitingBytes }

    func sendInPieces(_ answer: Frame, in turn: inout Turn) {
        self.machine.sendPlain(
            type: answer.type,
            serial: answer.serial,
            status: answer.status,
            payload: answer.payload
        )
        self.tend(in: &turn)
    }

    func push(_ push: Frame, in turn: inout Turn) {
        self.pushIsUnderWay = true
        self.machine.sendPlain(type: push.type, serial: push.serial, status: push.status, payload: push.payload)
        self.sendFrames(in: &turn)
        self.hold.change(to: self.cost)
    }

    func hasRoom(in turn: inout Turn) -> Bool {
        guard self.waitsForRoom else { return false }
        guard self.link.channelBytes == 0 else {
            // The system accepts no more. Frames sent now would be ahead of the next answers.
            self.link.flushOnceWritten()
            return false
        }
        let loop = self.peer.loop.socketLoop
        if loop.turnIsOver(turn) {
            self.link.tellsOfRoom = false
            loop.afterOtherChannels(in: &turn) { turn in
                if self.isOpen { self.tend(in: &turn) }
            }
            return false
        }
        let hasSent = self.sendFrames(in: &turn)
        self.performActions(in: &turn)
        self.settle(in: &turn)
        self.host?.streamsMoved(in: &turn)
        return hasSent
    }
}

extension ServerStreamSide: StreamHost {
    func visit(_ party: some StreamParty, in turn: inout Turn) {
        guard self.isOpen, self.parties[party.id] != nil else { return }
        party.settle(&self.machine, isLast: false, now: turn.now)
        self.tend(in: &turn)
    }

    func carryContent(_ id: StreamID, window: UInt64, in turn: inout Turn) {
        guard self.isOpen else { return }
        self.useLargeBuffersOfTLS()
        self.machine.widen(id, to: window)
        self.tend(in: &turn)
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
        self.machine.fail(id, status)
        if status == .overloaded { self.countOverloadOfMemory() } else { self.counts.count(.illegalRequests) }
        self.tend(in: &turn)
    }
}
