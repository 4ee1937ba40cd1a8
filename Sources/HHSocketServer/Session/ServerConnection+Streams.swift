// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// Streams, and payloads in pieces, of a connection whose hello agreed on them.
extension ServerConnection {
    /// The number of bytes that streams send before it is checked how many the system has accepted.
    private static var streamBytesAtOnce: Int { 128 << 10 }

    /// Hello has agreed on streams.
    func beginStreams(_ terms: StreamTerms, flags: UInt32) {
        guard let policy = self.core.streams else { return }
        var settings = policy.settings(
            terms,
            flags: flags,
            format: self.listener.format,
            maximumPayloadLength: self.core.limits.maximumPayloadLength
        )
        settings.maximumUnfinished = self.core.limits.maximumInFlightPerConnection
        self.streams = ConnectionStreams(settings)
        self.boundStreams()
    }

    /// Sets the limits on what is held for streams according to the client's standing.
    func boundStreams() {
        guard let streams = self.streams, let policy = self.core.streams else { return }
        let (limits, isStranger) = (self.core.limits, self.greeting.isStranger)
        let length = limits.maximumPayloadLength(ofStranger: isStranger)
        let (product, overflows) = length.multipliedReportingOverflow(by: limits.strangers.maximumInFlight)
        let held = min(policy.maximumHeldBytes, limits.maximumBufferedBytesPerConnection)
        // Nothing from a stranger is decompressed, whatever hello has agreed on.
        let flags = self.greeting.agreement?.flags ?? 0
        streams.machine.accept(
            payloadsUpTo: length,
            holding: isStranger && !overflows ? min(held, product) : held,
            flags: isStranger ? flags & ~FrameType.compressionFlag : flags
        )
    }

    // MARK: From the client

    /// Handles a frame of a stream, a piece, or a cancel of either.
    ///
    /// - Returns: False for any other frame.
    func receive(
        _ frame: Frame,
        isCorrupt: Bool,
        _ streams: ConnectionStreams,
        in turn: inout Turn
    ) -> Bool {
        if frame.type == self.listener.format.layout.cancel?.type, !isCorrupt {
            return self.receiveCancel(frame.serial, streams, in: &turn)
        }
        let isPiece = streams.machine.awaitsPieces || frame.type & FrameType.continuesFlag != 0
        guard streams.machine.receive(frame, isDamaged: isCorrupt, now: turn.now) else { return false }
        if isPiece {
            streams.pieceCame(frame.payload.readableBytes)
            self.hot.fastPath.piecesChanged(areAwaited: streams.closesFastPath)
        }
        if isCorrupt { self.hot.machine.statistics.badChecksums += 1 }
        for _ in 0..<streams.machine.takeUnproductiveFrames() { self.hot.machine.receivedUnproductive() }
        // Items wait for the end of the read, which may bring more of them.
        if !streams.machine.endsWithItem() { self.performStreamActions(streams, in: &turn) }
        return true
    }

    private func receiveCancel(_ serial: UInt32, _ streams: ConnectionStreams, in turn: inout Turn) -> Bool {
        guard streams.machine.cancelled(serial: serial) else { return false }
        self.hot.fastPath.piecesChanged(areAwaited: streams.closesFastPath)
        streams.machine.takeActions(into: &streams.pending)
        self.performStreamActions(streams, in: &turn)
        // The handler is stopped as any other.
        guard !self.hot.machine.isInFlight(serial) else { return false }
        self.noteCancel(in: &turn)
        return true
    }

    /// Returns the reason why a request does not open a stream; nil if it does.
    func refusal(
        toOpen kind: StreamKind,
        _ arrival: ReceivedRequest
    ) -> SessionMachine<Task<Void, Never>>.Refusal? {
        guard let streams = self.streams else { return .noStreams }
        let objection = streams.machine.objection(
            toOpen: kind,
            hasBody: arrival.frame.payload.readableBytes > 0,
            hasKey: arrival.extras?.idempotencyKey != nil
        )
        return switch objection {
        case nil: nil
        case .malformed: .opening
        // A draining connection has answered before.
        case .draining, .tooMany: .streams
        }
    }

    /// Opens a stream whose request was admitted.
    func openStream(
        _ kind: StreamKind,
        _ arrival: ReceivedRequest,
        on executor: HandlerExecutor,
        run: UInt64,
        in turn: inout Turn
    ) -> StreamExchange? {
        guard let streams = self.streams, let session = self.hot.serverContext?.session,
            let id = self.enterStream(kind, arrival.frame, streams, now: turn.now)
        else { return nil }
        let exchange = StreamExchange(
            id: id,
            serial: arrival.frame.serial,
            run: run,
            kind: kind,
            session: session,
            core: self.core,
            agreement: self.greeting.agreement,
            executor: executor,
            load: self.load,
            allowance: min(streams.machine.allowance(id), StreamExchange.largestAllowance)
        )
        streams.add(exchange)
        self.setStreamAlarm(streams)
        return exchange
    }

    func enterStream(
        _ kind: StreamKind,
        _ frame: Frame,
        _ streams: ConnectionStreams,
        now: NIODeadline
    ) -> StreamID? {
        // All that it refuses was refused before.
        guard
            case .opened(let id) = streams.machine.open(
                type: frame.type,
                serial: frame.serial,
                kind: kind,
                hasBody: frame.payload.readableBytes > 0,
                now: now
            )
        else { return nil }
        self.hot.machine.statistics.streamsOpened += 1
        return id
    }

    // MARK: From the handlers

    /// Called when a handler has taken items or sends some.
    func visit(_ party: some StreamParty, in turn: inout Turn) {
        guard let streams = self.streams, self.hot.phase == .open, streams.party(party.id) != nil else { return }
        party.settle(&streams.machine, isLast: false, now: turn.now)
        self.tendStreams(streams, in: &turn)
    }

    /// Handles the return of a request's handler, or its timeout.
    ///
    /// - Returns: False if it serves no stream.
    func answerStream(_ answer: Frame, run: UInt64, in turn: inout Turn) -> Bool {
        guard let streams = self.streams, let party = streams.takeParty(ofRun: run) else { return false }
        party.settle(&streams.machine, isLast: true, now: turn.now)
        streams.machine.answer(
            party.id,
            status: answer.status,
            flags: answer.type & FrameType.allFlags,
            payload: answer.payload
        )
        party.ended(StatusError(.cancelledByServer))
        self.tendStreams(streams, in: &turn)
        self.hot.fastPath.piecesChanged(areAwaited: streams.closesFastPath)
        return true
    }

    /// Ends a stream whose time is over: waiting items are not sent.
    ///
    /// - Returns: False if there is no such stream.
    func expireStream(run: UInt64, in turn: inout Turn) -> Bool {
        guard let streams = self.streams, let party = streams.takeParty(ofRun: run) else { return false }
        streams.machine.fail(party.id, .deadlineExceeded)
        self.tendStreams(streams, in: &turn)
        return true
    }

    /// A stream carries a file.
    func carryContent(_ id: StreamID, window: UInt64, in turn: inout Turn) {
        guard let streams = self.streams, self.hot.phase == .open else { return }
        self.useLargeBuffersOfTLS()
        streams.machine.widen(id, to: window)
        self.tendStreams(streams, in: &turn)
    }

    /// Makes TLS read and write more at once from now on: its buffers never shrink.
    private func useLargeBuffersOfTLS() {
        guard self.contentCost == 0, let channel = self.link.context?.channel,
            let pieces = try? channel.pipeline.syncOperations.handler(type: TLSPieces.self)
        else { return }
        self.contentCost = ConnectionCost.tlsContent
        self.load.held(self.contentCost)
        pieces.length = TLSPieces.contentLength
        try? channel.syncOptions?.setOption(.recvAllocator, value: TLSReadAllocator(carriesContent: true))
    }

    /// An item of a stream could not be read.
    func failStream(_ id: StreamID, _ status: Status, in turn: inout Turn) {
        guard let streams = self.streams, self.hot.phase == .open else { return }
        streams.machine.fail(id, status)
        if status == .overloaded {
            self.hot.machine.statistics.overloads += 1
            self.hot.machine.statistics.overloadsOfMemory += 1
        } else {
            self.hot.machine.statistics.illegalRequests += 1
        }
        self.tendStreams(streams, in: &turn)
    }

    // MARK: What they decide

    /// Performs the actions of the streams, and sends their frames.
    func tendStreams(_ streams: ConnectionStreams, in turn: inout Turn) {
        self.performStreamActions(streams, in: &turn)
        guard !streams.isPerforming else { return }
        if self.sendFramesOfStreams(streams, in: &turn) {
            // Senders that resume have more to send after this has been flushed.
            streams.wantsRoom = true
            self.link.tellsOfRoom = true
        }
        self.performStreamActions(streams, in: &turn)
        self.noteStreams(streams, in: &turn)
        self.finishIfDone(in: &turn)
    }

    private func performStreamActions(_ streams: ConnectionStreams, in turn: inout Turn) {
        // Performing an action leads here again.
        guard !streams.isPerforming else { return }
        streams.isPerforming = true
        defer { streams.isPerforming = false }
        while true {
            streams.machine.takeActions(into: &streams.pending)
            guard !streams.pending.isEmpty else { return }
            var actions: [StreamAction] = []
            swap(&actions, &streams.pending)
            self.perform(actions, streams, in: &turn)
            guard self.hot.phase != .closed else { return }
            if streams.pending.isEmpty {
                actions.removeAll(keepingCapacity: actions.count <= Self.largestKeptActions)
                swap(&actions, &streams.pending)
            }
        }
    }

    private static var largestKeptActions: Int { 64 }

    private func perform(_ actions: [StreamAction], _ streams: ConnectionStreams, in turn: inout Turn) {
        var (items, owner): ([StreamItem], StreamID?) = ([], nil)
        func hand() {
            if let owner, !items.isEmpty { streams.party(owner)?.received(items) }
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
            self.perform(action, streams, in: &turn)
        }
        hand()
    }

    private func perform(_ action: StreamAction, _ streams: ConnectionStreams, in turn: inout Turn) {
        switch action {
        case .item: break
        case .itemsEnded(let id): streams.party(id)?.itemsEnded()
        case .goOn(let id):
            guard let party = streams.party(id) else { return }
            party.goOn()
            party.settle(&streams.machine, isLast: false, now: turn.now)
        case .ended(let id, let end): self.streamEnded(id, end.outcome, streams, in: &turn)
        case .whole(let frame): self.receiveWhole(frame, in: &turn)
        case .failed(let type, let serial, let failure):
            switch failure {
            case .damaged: break
            case .tooLong, .differentPieces: self.hot.machine.statistics.illegalRequests += 1
            case .tooMuchHeld:
                self.hot.machine.statistics.overloads += 1
                self.hot.machine.statistics.overloadsOfMemory += 1
            }
            self.hot.machine.receivedUnproductive()
            let arrival = ReceivedRequest(frame: Frame(type: type, serial: serial), length: 0)
            self.refused(arrival, self.core.unknownRules, failure.status)
        case .close(let fault): self.streamsFailed(fault, in: &turn)
        }
    }

    private func streamEnded(
        _ id: StreamID,
        _ outcome: StreamOutcome,
        _ streams: ConnectionStreams,
        in turn: inout Turn
    ) {
        guard let party = streams.remove(id) else { return }
        self.hot.fastPath.piecesChanged(areAwaited: streams.closesFastPath)
        party.ended(StatusError(outcome.status ?? .cancelledByServer))
        switch outcome {
        case .answered, .cancelled, .connectionLost: return
        case .violated, .tooLong:
            self.hot.machine.statistics.illegalRequests += 1
            self.hot.machine.receivedUnproductive()
        case .damaged: self.hot.machine.receivedUnproductive()
        case .tooMuchHeld:
            self.hot.machine.statistics.overloads += 1
            self.hot.machine.statistics.overloadsOfMemory += 1
        case .idle: self.hot.machine.statistics.idleStreams += 1
        case .drained, .inputClosed, .failed: break
        }
        guard let ended = self.hot.machine.end(serial: party.serial, run: party.run) else { return }
        ended.work?.cancel()
        self.stopped(party.run, in: &turn)
    }

    /// Ends the connection after the client has broken a rule that cannot be answered in any other way.
    private func streamsFailed(_ fault: StreamFault, in turn: inout Turn) {
        guard self.hot.phase == .open else { return }
        self.hot.machine.lostFraming()
        switch fault {
        case .beyondWindow: self.log("a client's streams violate the agreement", "more was sent than the window allows")
        case .tooManyUnfinished: self.log("a client's streams violate the agreement", "too many payloads were begun")
        }
        self.ends(.protocolError)
        self.stopHandlers()
        self.takeStatistics()
        self.finish(.protocolViolation, within: Self.protocolErrorTime, in: &turn)
    }

    // MARK: To the client

    /// Hands the link as many frames as the system accepts; frames of other streams may pass between them.
    ///
    /// - Returns: Whether there were any.
    @discardableResult
    func sendFramesOfStreams(_ streams: ConnectionStreams, in turn: inout Turn) -> Bool {
        guard self.hot.phase == .open, self.link.context != nil else { return false }
        var bytes = 0
        streams.wantsRoom = true
        while self.link.canSend, bytes < Self.streamBytesAtOnce {
            guard let frame = streams.machine.next(now: turn.now) else {
                streams.wantsRoom = false
                break
            }
            bytes += frame.payload.readableBytes + Int(StreamFrames.overhead)
            if streams.isPushing, self.listener.isPush(frame), frame.type & FrameType.continuesFlag == 0 {
                streams.isPushing = false
            }
            self.emit(frame, in: &turn)
        }
        if !streams.wantsRoom, self.hot.machine.inputIsClosed, streams.machine.openCount > 0 {
            // Streams that wait for credit would wait for ever.
            streams.machine.endStarved()
        }
        self.link.tellsOfRoom = streams.wantsRoom || !self.pushes.isEmpty
        return bytes > 0
    }

    /// Resumes the frames that wait, after a flush.
    ///
    /// - Returns: Whether more was sent.
    func streamsHaveRoom(_ streams: ConnectionStreams, in turn: inout Turn) -> Bool {
        guard streams.wantsRoom else { return false }
        guard self.link.channelBytes == 0 else {
            // The system accepts no more. Frames sent now would be ahead of the next answers.
            self.link.flushOnceWritten()
            return false
        }
        if self.loop.socketLoop.turnIsOver(turn) {
            self.link.tellsOfRoom = false
            self.loop.socketLoop.afterOtherChannels(in: &turn) { turn in
                guard self.hot.phase == .open, let streams = self.streams else { return }
                self.tendStreams(streams, in: &turn)
            }
            return false
        }
        let hasSent = self.sendFramesOfStreams(streams, in: &turn)
        self.performStreamActions(streams, in: &turn)
        self.noteStreams(streams, in: &turn)
        self.finishIfDone(in: &turn)
        return hasSent
    }

    /// Charges what streams hold, and resumes or suspends reading.
    private func noteStreams(_ streams: ConnectionStreams, in turn: inout Turn) {
        // Not after each turn: a client that reads takes them soon.
        if streams.wantsRoom, !self.link.isWritable || self.link.knownChannelBytes > 0 {
            streams.machine.detachWaiting()
        }
        self.noteWaiting()
        self.account()
        guard self.hot.phase == .open, streams.isBehind != streams.isReadingSuspended else { return }
        streams.isReadingSuspended.toggle()
        self.link.setReading(isSuspended: streams.isReadingSuspended, in: &turn)
    }

    /// Sends a long answer in pieces, where streams are agreed on.
    ///
    /// - Returns: False if it is sent as one frame.
    func sendInPieces(_ frame: Frame, in turn: inout Turn) -> Bool {
        guard let streams = self.streams, frame.payload.readableBytes > StreamFrames.maximumPieceLength else {
            return false
        }
        streams.machine.sendPlain(
            type: frame.type,
            serial: frame.serial,
            status: frame.status,
            payload: frame.payload
        )
        self.tendStreams(streams, in: &turn)
        return true
    }

    // MARK: Time

    /// Sets one timer for all streams: the limit is the same for all, so that later ones end later.
    func setStreamAlarm(_ streams: ConnectionStreams) {
        guard streams.alarm == nil, let deadline = streams.machine.nextDeadline else { return }
        streams.alarm = self.loop.socketLoop.setTimer(deadline) { turn in
            streams.alarm = nil
            guard self.hot.phase == .open, self.streams === streams else { return }
            streams.machine.timePassed(now: turn.now)
            self.tendStreams(streams, in: &turn)
            self.takeStatistics()
            self.setStreamAlarm(streams)
        }
    }

    // MARK: Ends

    /// The client sends nothing more.
    func inputOfStreamsClosed(_ streams: ConnectionStreams, in turn: inout Turn) {
        streams.machine.inputClosed()
        self.hot.fastPath.piecesChanged(areAwaited: streams.closesFastPath)
        self.tendStreams(streams, in: &turn)
    }

    /// Ends the grace period of a shutdown: open streams are notified, and everything else ends immediately.
    func endPatience(in turn: inout Turn) {
        guard let streams = self.streams, streams.machine.openCount > 0, self.hot.phase == .open,
            self.link.isWritable, self.link.context != nil
        else { return self.kill() }
        self.ends(.shutdown)
        streams.machine.endPatience()
        self.performStreamActions(streams, in: &turn)
        var bytes = 0
        while bytes < Self.streamBytesAtOnce, let frame = streams.machine.next(now: turn.now) {
            bytes += frame.payload.readableBytes + Int(StreamFrames.overhead)
            self.emit(frame, in: &turn)
        }
        self.stopHandlers()
        self.takeStatistics()
        self.finish(within: Self.lingerTime, in: &turn)
    }
}
