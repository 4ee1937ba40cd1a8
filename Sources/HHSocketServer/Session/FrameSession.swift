// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

/// A peer that speaks frames: hello, requests up to the start of their handlers, and the fast path of those that are
/// answered at once. ``RequestGate`` refuses requests, ``HandlerRuns`` runs handlers, ``AnswerWriter`` sends, and
/// ``ServerStreamSide`` has the streams.
final class FrameSession: LinkReceiver {
    typealias Language = FrameLanguage
    private typealias Machine = SessionMachine<Task<Void, Never>>

    /// Larger bodies are written without copying, between their header and trailer; smaller ones are copied together,
    /// which is cheaper than vectored writes.
    static let largestCopiedBody = 16 << 10
    /// The time that a client whose bytes could not be decoded may take to read the last answer.
    private static let protocolErrorTime = TimeAmount.seconds(5)
    /// The number of requests after which the duration of the turn is checked, on the fast path and on the slow one.
    private static let requestsBetweenChecks = 32
    private static let slowRequestsBetweenChecks: UInt8 = 8

    private enum Phase {
        case open
        /// The last answers are being sent; input is discarded.
        case finishing
        case closed
    }

    /// State that every request touches.
    private struct Hot {
        var machine: Machine
        // These fit in the gap before the next property.
        var phase = Phase.open
        /// Whether hello has led to an agreement.
        var hasAgreed = false
        /// The number of requests on the slow path, up to the number at which the turn is checked.
        var slowRequests: UInt8 = 0
        var serverContext: ServerContext?
        var cachedRoute: CachedRoute
        var fastPath: FastPath
        var runs = HandlerRuns()
        /// The number of bytes that are charged for the requests in flight.
        var charged = 0
    }

    private let peer: ServerPeer
    private let rules: RequestRules
    private let listener: ListenerSettings
    let link: Link<FrameLanguage>
    // Not taken from the peer's loop and the books, as every read uses them.
    private let counts: SessionCounts
    private let counters: LoopCounters
    private let writer: AnswerWriter
    /// The client's hello; nil before it.
    private var greeting: ClientGreeting?
    // Unchecked: a request accesses it some five times, only on the event loop, and every access ends before any other
    // code is called.
    #if !DEBUG && !CHECKED_EXCLUSIVITY
    @exclusivity(unchecked)
    #endif
    private var hot: Hot
    private var gate: RequestGate
    /// The WebSocket that carries the frames.
    private var carriage: WebSocketCarriage?
    /// The streams, once hello has agreed on them.
    private var streams: ServerStreamSide?
    /// The requests that the client may still cancel; nil before the first, and if there is no limit.
    private var cancels: TokenBucket?

    init(_ peer: ServerPeer, _ arrival: Arrival) {
        peer.arrived(from: arrival.address, refusal: arrival.refusal)
        let (rules, listener) = (peer.parts.rules, peer.listener)
        self.peer = peer
        self.rules = rules
        self.listener = listener
        self.counts = peer.loop.sessionCounts
        self.counters = peer.loop.counters
        let limits = rules.limits
        let isStranger = rules.hasStrangers
        var decoder = FrameDecoder(
            direction: .request,
            format: listener.format,
            maximumPayloadLength: limits.maximumPayloadLength(ofStranger: isStranger),
            copyLimit: 0,
            maximumCorruptRun: limits.maximumCorruptRun
        )
        if listener.supportsHello { decoder.accept(hellosUpTo: HelloLimits.maximumLength) }
        self.link = peer.makeLink(
            // Slices of the read buffer: a synchronous handler's request costs no allocation. Asynchronous ones get a
            // copy of a small body instead, see `begin`.
            FrameLanguage(decoder: decoder, encoder: listener.encoder, largestCopied: Self.largestCopiedBody),
            listener.linkSettings
        )
        self.writer = AnswerWriter(self.link, peer)
        self.gate = RequestGate(rules, listener, now: peer.parts.books.time.now())
        self.hot = Hot(
            machine: SessionMachine(
                maximumInFlight: limits.maximumInFlight(ofStranger: isStranger),
                format: listener.format,
                numbersAll: rules.answersInOrder,
                counts: self.counts
            ),
            // Applications may have that type, in some formats.
            cachedRoute: CachedRoute(type: 0, route: rules.routes[0]),
            fastPath: FastPath(rules: rules, listener: listener)
        )
        self.link.receiver = self
        self.link.reportsReads = true
        peer.serve(self, over: self.link, isStranger: isStranger)
    }

    /// A WebSocket carries the frames.
    func use(_ carriage: WebSocketCarriage, isCompressed: Bool) {
        self.carriage = carriage
        if isCompressed { self.greeting = ClientGreeting(self.link, self.peer, isCompressed: true) }
    }

    private var books: ServerBooks { self.peer.parts.books }
    /// The results of hello; nil before.
    private var agreement: Agreement? { self.hot.hasAgreed ? self.greeting?.agreement : nil }

    // MARK: Frames of the client

    func received(_ batch: inout Batch<FrameLanguage>, in turn: inout Turn) throws(LinkError) {
        guard self.hot.phase == .open else { return }
        self.hot.runs.batchBegins()
        do throws(FrameError) {
            try self.receiveAll(&batch, in: &turn)
        } catch {
            self.lostFraming(error, in: &turn)
        }
    }

    @inline(__always)
    private func receiveAll(_ batch: inout Batch<FrameLanguage>, in turn: inout Turn) throws(FrameError) {
        var count = 0
        while true {
            self.answerOnFastPath(&batch, in: &turn)
            guard batch.continues else {
                // Sent answers leave before the turn ends, and a client that has its answer may read the statistics
                // next.
                return self.counters.take(self.counts)
            }
            if batch.isFinished() { return }
            // Their handlers run once nothing is borrowed: requests answered within the turn were never in flight. If
            // the connection has ended there is no other turn, and requests beyond the limit are refused.
            if self.hot.runs.hasStartedHere, self.hot.machine.isAtLimit, self.link.yield(in: &turn) { continue }
            guard try self.receiveNext(&batch, in: &turn) else { return }
            count += 1
            if count % Self.requestsBetweenChecks == 0 { self.link.endTurnInTime(&turn) }
        }
    }

    /// - Returns: False where more bytes are needed, or nothing more is received.
    private func receiveNext(_ batch: inout Batch<FrameLanguage>, in turn: inout Turn) throws(FrameError) -> Bool {
        var frame = ArrivedFrame()
        switch try batch.next(into: &frame) {
        case .nothing: return false
        case .sound: self.receive(frame, isCorrupt: false, in: &turn)
        case .corrupt: self.receive(frame, isCorrupt: true, in: &turn)
        case .malformed(let error): self.receive(malformed: error, in: &turn)
        }
        if self.hot.machine.unproductiveFrames > 0 {
            self.peer.charge(unproductive: self.hot.machine.takeUnproductiveFrames(), in: &turn)
        }
        return self.hot.phase == .open
    }

    /// Answers bytes that are no frame, in a format with separators, where it can be read which request they should
    /// have been.
    private func receive(malformed error: FrameError, in turn: inout Turn) {
        self.peer.log("a client sent bytes that are no frame", "\(error)")
        guard self.hot.machine.receivedMalformed(type: error.type, serial: error.serial),
            let type = error.type, let serial = error.serial
        else { return }
        let request = ArrivedFrame(Frame(type: type, serial: serial))
        self.writer.emit(self.gate.emptyAnswer(to: request, .illegalFormat), in: &turn)
    }

    /// Answers bytes that cannot be decoded, if they can be attributed to a request, and ends the connection.
    private func lostFraming(_ error: FrameError, in turn: inout Turn) {
        self.hot.machine.lostFraming()
        if error.code == .payloadTooLarge, let type = error.type, let serial = error.serial {
            self.writer.emit(Frame(type: type, serial: serial, status: .illegalLength), in: &turn)
        }
        let reason: CloseReason = error.code == .payloadTooLarge ? .tooLarge : .protocolViolation
        self.violated("a client violated the protocol", "\(error)", because: reason, in: &turn)
    }

    func finishedReading(in turn: inout Turn) {
        if let streams = self.streams, !streams.isQuiet { streams.tend(in: &turn) }
        if self.hot.phase == .open { self.settle() }
        self.counters.take(self.counts)
        self.finishIfDone(in: &turn)
    }

    func hasRoom(in turn: inout Turn) -> Bool { self.hot.phase == .open && self.writer.hasRoom(in: &turn) }

    private func receive(_ frame: consuming ArrivedFrame, isCorrupt: Bool, in turn: inout Turn) {
        guard self.listener.supportsHello else {
            let length = frame.length
            return self.receive(frame, nil, length: length, isCorrupt: isCorrupt, in: &turn)
        }
        if frame.type == FrameType.hello, frame.serial == FrameSerial.hello, !isCorrupt {
            return self.receiveHello(frame.lend(), in: &turn)
        }
        if let streams = self.streams {
            if frame.type == self.listener.format.layout.cancel?.type, !isCorrupt {
                if self.receiveCancel(frame.serial, streams, in: &turn) { return }
            } else if streams.receive(frame, isCorrupt: isCorrupt, in: &turn) {
                return
            }
        }
        self.receiveWhole(frame, isCorrupt: isCorrupt, in: &turn)
    }

    private func receiveCancel(_ serial: UInt32, _ streams: ServerStreamSide, in turn: inout Turn) -> Bool {
        // The handler of a stream is stopped as any other.
        guard streams.cancel(serial: serial, in: &turn), !self.hot.machine.isInFlight(serial) else { return false }
        self.noteCancel(in: &turn)
        return true
    }

    /// Handles a frame that is not a piece of another, or whose pieces are complete. A compressed body stays so.
    private func receiveWhole(_ frame: consuming ArrivedFrame, isCorrupt: Bool = false, in turn: inout Turn) {
        let length = frame.length
        var envelope: Envelope.Contents?
        do throws(EnvelopeError) {
            if isCorrupt {
                frame.type &= ~FrameType.allFlags
            } else if frame.type & FrameType.allFlags != 0 {
                envelope = try Envelope.open(&frame, agreedFlags: self.agreement?.flags ?? 0)
            }
        } catch {
            self.writer.reserve()
            let number = self.hot.machine.receivedIllegal()
            let answer = self.gate.emptyAnswer(to: frame, .illegalFormat)
            self.refused(ReceivedRequest(frame: frame, length: length), self.rules.unknownRules, with: .illegalFormat)
            return self.writer.answer(answer, number, in: &turn)
        }
        self.receive(frame, envelope, length: length, isCorrupt: isCorrupt, in: &turn)
    }

    /// - Parameters:
    ///   - frame: The frame without its envelope.
    ///   - envelope: The contents of its envelope beside the body.
    ///   - length: The length of both in bytes.
    private func receive(
        _ frame: consuming ArrivedFrame,
        _ envelope: Envelope.Contents?,
        length: Int,
        isCorrupt: Bool,
        in turn: inout Turn
    ) {
        let isControl = self.listener.format.isControlType(frame.type)
        let extras = isControl ? nil : self.extras(envelope?.metadata, now: turn.now)
        let isCompressed = envelope?.isCompressed ?? false
        let known = isControl ? nil : self.route(for: frame.type)
        // Unknown types take the same path as those with a handler, so that a client that may call none of them cannot
        // find out which exist.
        let route = isControl ? nil : known ?? self.rules.unknownTypeRoute
        let handling: Machine.Handling =
            switch route?.handling {
            // Finding out whether the request is the first with its key takes a task, and decompressing takes too long
            // for this thread.
            case .synchronous: extras?.idempotencyKey == nil && !isCompressed ? .synchronous : .asynchronous
            case .asynchronous, .stream: .asynchronous
            case nil: .none
            }
        if !isControl { self.writer.reserve() }
        let reception = self.hot.machine.receive(
            type: frame.type,
            serial: frame.serial,
            isCorrupt: isCorrupt,
            handling: handling
        )
        switch reception {
        case .admit(let admission):
            guard let route else { return }
            let arrival = ReceivedRequest(
                frame: frame,
                extras: extras,
                length: length,
                isCompressed: isCompressed,
                hasHandler: known != nil
            )
            self.begin(admission, at: route, for: arrival, in: &turn)
        case .answer(let status, let number):
            var answer = self.gate.emptyAnswer(to: frame, status)
            // A heartbeat is the only control frame that is answered.
            if isControl { answer.type = self.listener.format.heartbeatAnswer(to: answer).type }
            if !isControl, !isCorrupt {
                let rules = route?.rules ?? self.rules.unknownRules
                self.refused(
                    ReceivedRequest(frame: frame, extras: extras, length: length, hasHandler: known != nil),
                    rules,
                    with: status
                )
            }
            self.writer.answer(answer, number, in: &turn)
        case .stop(let task, let run):
            task?.cancel()
            self.stopped(run, in: &turn)
            self.noteCancel(in: &turn)
        case .ignore:
            break
        }
    }

    private func extras(_ metadata: WireMetadata?, now: NIODeadline) -> ServerContext.Extras? {
        self.gate.extras(metadata, self.agreement, isStranger: self.peer.isStranger, now: now)
    }

    private func route(for type: UInt32) -> Router.Route? {
        if type == self.hot.cachedRoute.type { return self.hot.cachedRoute.route }
        let route = self.rules.routes[type]
        self.hot.cachedRoute = CachedRoute(type: type, route: route)
        return route
    }

    /// A request was cancelled that was in flight.
    private func noteCancel(in turn: inout Turn) {
        guard let rate = self.rules.limits.cancelRate, self.hot.phase == .open else { return }
        if self.cancels == nil { self.cancels = TokenBucket(rate, now: turn.now) }
        if self.cancels?.take(now: turn.now) == false { self.peer.evict(.cancels, in: &turn) }
    }

    // MARK: Requests

    /// Begins a request, unless a limit prevents it.
    private func begin(
        _ admission: Machine.Admission,
        at route: Router.Route,
        for arrival: consuming ReceivedRequest,
        in turn: inout Turn
    ) {
        // The buffer in which a large body arrived is charged to the link until the link has checked again.
        if admission.isAsynchronous, arrival.length >= LinkChannel.longUnitBytes { self.link.settleNow() }
        var slot: RequestSlot?
        let refusal = self.refusal(of: admission, for: arrival, at: route, &slot, now: turn.now)
        if !arrival.hasHandler {
            self.counts.count(.unknownTypes)
            self.hot.machine.receivedUnproductive()
        }
        var cost: RequestCost?
        if admission.isAsynchronous, refusal == nil {
            cost = RequestCost(payload: arrival.frame.own(), arrival.extras)
        }
        switch self.hot.machine.admit(admission, bytes: cost?.bytes ?? 0, refusal: refusal) {
        case .answer(let status, let number):
            self.refused(arrival, route.rules, with: status)
            self.writer.answer(self.gate.emptyAnswer(to: arrival.frame, status), number, in: &turn)
        case .runSynchronously(let number):
            // In this case the route is that of unknown types, and refuses.
            if !arrival.hasHandler { self.refused(arrival, route.rules, with: .undefinedType) }
            if case .synchronous(let handler, _) = route.handling {
                let extras = arrival.extras
                self.run(handler, on: arrival.frame, extras: extras, number: number, in: &turn)
            }
        case .start(let run):
            guard let slot, let cost else { return }
            self.start(route.handling, for: arrival, in: slot, cost: cost, run: run, now: turn.now)
        }
    }

    /// Returns the reason why a valid request is not begun; nil if it is begun. A request that is begun and
    /// asynchronous holds a slot from here on.
    private func refusal(
        of admission: Machine.Admission,
        for arrival: borrowing ReceivedRequest,
        at route: Router.Route,
        _ slot: inout RequestSlot?,
        now: NIODeadline
    ) -> RequestGate.Refusal? {
        guard let session = self.hot.serverContext?.session else { return .inFlight }
        let client = RequestGate.Client(
            session: session,
            isStranger: self.peer.isStranger,
            hasAgreed: self.hot.hasAgreed
        )
        let (hasBody, hasKey) = (arrival.frame.length > 0, arrival.extras?.idempotencyKey != nil)
        let streams = self.streams
        let refusal = self.gate.refusal(of: arrival, from: client, route.rules, now: now) {
            guard case .stream(_, _, let kind) = route.handling else { return nil }
            return streams.map { $0.refusal(toOpen: kind, hasBody: hasBody, hasKey: hasKey) } ?? .noStreams
        }
        if refusal != nil || !admission.isAsynchronous { return refusal }
        guard self.peer.account.hasRoom(for: arrival.length) else { return .bytes }
        do throws(RequestSlot.Refusal) {
            slot = try RequestSlot(self.rules.limits, of: self.peer.account, rules: route.rules, session: session)
            return nil
        } catch {
            return error
        }
    }

    /// Notifies the observers that a request is answered without a handler.
    private func refused(_ arrival: borrowing ReceivedRequest, _ rules: RouteRules, with status: Status) {
        guard let session = self.hot.serverContext?.session else { return }
        rules.refused(self.gate.header(of: arrival), with: status, in: session)
    }

    private func start(
        _ handling: Router.Route.Handling,
        for arrival: consuming ReceivedRequest,
        in slot: RequestSlot,
        cost: RequestCost,
        run: UInt64,
        now: NIODeadline
    ) {
        guard let session = self.hot.serverContext?.session else { return }
        var exchange: StreamExchange?
        if case .stream(_, let executor, let kind) = handling {
            exchange = self.streams?.open(kind, for: arrival, of: session, on: executor, run: run, now: now)
        }
        let answer = self.gate.emptyAnswer(to: arrival.frame)
        let deadline = self.gate.deadline(of: arrival, slot.rules, now: now).map { time, isOurs in
            self.link.loop.setTimer(time) { self.expire(run: run, answer: answer, isOurs: isOurs, in: &$0) }
        }
        let work = HandlerRun(
            handling,
            for: arrival,
            self.gate,
            of: session,
            answer: answer,
            number: run,
            cost: cost,
            agreement: self.agreement,
            peer: self.peer,
            slot: slot,
            exchange: exchange
        )
        let task = HandlerRuns.task(for: work, self.resultQueue(), on: self.peer.loop)
        self.hot.runs.started(work, until: deadline)
        self.hot.machine.started(task, serial: answer.serial, run: run)
    }

    /// Returns the queue for the results of handlers, which is opened for the first one.
    private func resultQueue() -> CompletionQueue {
        if let completions = self.hot.runs.completions { return completions }
        // An eviction may end the session while a request begins. Nothing is taken then.
        guard self.hot.phase == .open else { return CompletionQueue(loop: self.link.loop, wake: nil) }
        let session = NIOLoopBound(self, eventLoop: self.link.loop.eventLoop)
        let completions = CompletionQueue(loop: self.link.loop) { session.value.takeCompletions(in: &$0) }
        self.hot.runs.open(completions)
        return completions
    }

    /// Ends a request whose answer is useless to the client or that exceeds the server's timeout.
    private func expire(run: UInt64, answer: Frame, isOurs: Bool, in turn: inout Turn) {
        self.hot.runs.deadlineHasPassed(of: run)
        guard self.hot.phase == .open,
            let expired = self.hot.machine.expire(serial: answer.serial, run: run, isOurs: isOurs)
        else { return }
        var answer = answer
        answer.status = .deadlineExceeded
        // The handler of a stream is given the reason before its task is cancelled.
        let isStream = self.streams?.expire(run: run, in: &turn) ?? false
        expired.work?.cancel()
        if !isStream { self.writer.answer(answer, run, in: &turn) }
        self.counters.take(self.counts)
        self.finishIfDone(in: &turn)
    }

    private func takeCompletions(in turn: inout Turn) {
        guard self.hot.phase == .open else { return }
        for completion in self.hot.runs.takeCompletions(of: self.peer) {
            let action = self.hot.machine.finished(
                serial: completion.answer.serial,
                run: completion.run,
                bytes: completion.requestCost.bytes
            )
            guard action == .send else { continue }
            switch completion.kind {
            case .ordinary: break
            case .failed: self.counts.count(.handlerErrors)
            case .late: self.counts.count(.deadlinesExceeded)
            case .repeated: self.counts.count(.idempotentRepeats)
            case .illegal: self.counts.count(.illegalRequests)
            case .waiting: self.counts.count(.overloads)
            case .overload:
                self.counts.count(.overloads)
                self.counts.count(.overloadsOfMemory)
            }
            if self.streams?.answer(completion.answer, run: completion.run, in: &turn) == true { continue }
            self.writer.answer(completion.answer, completion.run, in: &turn)
        }
        guard self.hot.phase != .closed else { return }
        self.settle()
        self.counters.take(self.counts)
        self.finishIfDone(in: &turn)
    }

    /// Cleans up a request that will not be answered.
    private func stopped(_ run: UInt64, in turn: inout Turn) {
        self.hot.runs.removeDeadline(of: run, on: self.peer.loop)
        self.writer.abandon(run, in: &turn)
    }

    private func stopHandlers() {
        for task in self.hot.machine.close() { task.cancel() }
        self.streams?.lose()
        self.writer.end()
        self.greeting?.cancel()
        for completion in self.hot.runs.close(of: self.peer) {
            _ = self.hot.machine.finished(
                serial: completion.answer.serial,
                run: completion.run,
                bytes: completion.requestCost.bytes
            )
        }
    }

    /// Charges the requests in flight.
    @inline(__always)
    private func settle() {
        let held = self.hot.machine.bodyBytes
        guard held != self.hot.charged else { return }
        self.peer.account.held(held - self.hot.charged)
        self.hot.charged = held
    }

    // MARK: The last word

    private func finishIfDone(in turn: inout Turn) {
        guard self.hot.phase == .open, self.hot.machine.isFinished, self.greeting?.isUnderWay != true,
            !self.link.isPaused, self.streams?.isIdle ?? true
        else { return }
        self.finish(in: &turn)
    }

    /// Sends the last answers, then closes: first our direction, so that nothing in transit is lost.
    ///
    /// - Parameter time: How long the client may take to read them; nil: as long as ``SessionWatch`` allows.
    private func finish(_ reason: CloseReason = .done, within time: TimeAmount? = nil, in turn: inout Turn) {
        guard self.hot.phase == .open else { return }
        self.hot.phase = .finishing
        self.link.discardIncoming(in: &turn)
        self.link.close(reason, within: time, in: &turn)
    }

    /// Ends a client that has broken a rule of the protocol in a way that cannot be answered.
    private func violated(_ what: String, _ error: String, because reason: CloseReason, in turn: inout Turn) {
        self.peer.log(what, error)
        guard self.hot.phase == .open else { return }
        self.peer.ends(.protocolError)
        self.stopHandlers()
        self.counters.take(self.counts)
        self.finish(reason, within: Self.protocolErrorTime, in: &turn)
    }

    /// Whether the client was sent a go-away.
    @discardableResult
    private func sendGoAway(_ notice: GoAway, in turn: inout Turn) -> Bool {
        guard self.listener.isStandard || self.hot.hasAgreed else { return false }
        self.counts.count(.goAwaysSent)
        self.link.send(notice.frame, in: &turn)
        return true
    }
}

// MARK: - Hello

extension FrameSession: GreetingHost {
    private func receiveHello(_ frame: Frame, in turn: inout Turn) {
        self.hot.machine.receivedUnproductive()
        guard let session = self.hot.serverContext?.session else { return }
        let greeting = self.greeting ?? ClientGreeting(self.link, self.peer)
        self.greeting = greeting
        greeting.receive(frame, of: session, self, in: &turn)
    }

    func agreed(_ agreement: Agreement, in turn: inout Turn) {
        self.hot.hasAgreed = true
        self.hot.serverContext?.session.agree(agreement)
        self.hot.fastPath.agreed(agreement, rules: self.rules)
        if let terms = agreement.streams, let policy = self.rules.streams {
            let streams = ServerStreamSide(
                over: self.link,
                of: self.peer,
                self.writer,
                agreement: agreement,
                terms: terms,
                policy: policy,
                host: self
            )
            self.streams = streams
            self.writer.beginPieces(by: streams)
        }
        self.identityChanged(in: &turn)
        self.hot.fastPath.extras = self.extras(nil, now: turn.now)
    }

    func tokenWasRefused(in turn: inout Turn) {
        self.peer.ends(.refused)
        self.stopHandlers()
        self.counters.take(self.counts)
        self.finish(within: Self.protocolErrorTime, in: &turn)
    }

    func wasGreeted(in turn: inout Turn) {
        self.counters.take(self.counts)
        self.finishIfDone(in: &turn)
    }

    /// Called when hello has led to an agreement, and when the client's identity has changed: applies the limits that
    /// follow from them.
    func identityChanged(in turn: inout Turn) {
        guard self.rules.hasStrangers, self.hot.phase == .open else { return }
        let isStranger = (self.rules.hello.isRequired && !self.hot.hasAgreed) || self.peer.lacksIdentity
        guard self.peer.standingChanged(isStranger: isStranger, now: turn.now) else { return }
        self.link.accept(payloadsUpTo: self.rules.limits.maximumPayloadLength(ofStranger: isStranger))
        self.hot.machine.maximumInFlight = self.rules.limits.maximumInFlight(ofStranger: isStranger)
        self.hot.fastPath.standingChanged(isStranger: isStranger, rules: self.rules, listener: self.listener)
        self.streams?.standingChanged()
    }
}

// MARK: - The peer

extension FrameSession: PeerSession {
    var streamHost: (any StreamHost)? { self.streams }

    func opened(_ port: PeerPort, in turn: inout Turn) {
        guard let context = self.link.context else { return }
        let shown = ServerSession(
            id: self.link.id.number,
            remoteAddress: self.peer.address,
            listener: self.listener.sharedEndpoint,
            peerCertificate: ConnectingClient.certificate(context),
            executor: self.peer.loop.executor,
            logger: self.books.logger,
            peerLog: self.books.peerLog,
            port: port
        )
        self.hot.serverContext = ServerContext(session: shown)
        self.books.sessions.add(shown, shown.id)
        if let policy = self.rules.heartbeat {
            self.link.startBeats(interval: policy.interval.interval(for: HeartbeatHistory()), in: &turn)
        }
        self.rules.connections.onConnect?(shown)
    }

    func inputClosed(in turn: inout Turn) {
        self.hot.machine.closedInput()
        if self.hot.machine.inFlight > 0, let channel = self.link.context?.channel { KeepAlive.probe(channel) }
        self.streams?.inputClosed(in: &turn)
        self.finishIfDone(in: &turn)
    }

    func beatSent(in turn: inout Turn) {
        self.hot.machine.pinged()
        self.counters.take(self.counts)
    }

    var workOfOurs: Int { self.hot.machine.inFlight - (self.streams?.waitingForClient ?? 0) }

    func state() -> PeerState {
        self.settle()
        let frames = self.link.traffic.framesReceived
        return PeerState(
            units: frames,
            isIntroduced: self.rules.hello.isRequired ? self.hot.hasAgreed : frames > 0,
            pieceBytes: self.streams?.awaitedPieceBytes,
            isBusy: self.hot.machine.inFlight > 0 || !(self.streams?.isIdle ?? true),
            mayListen: false,
            isHeldByUs: false,
            isHeldByPeer: self.streams?.isReadingSuspended ?? false,
            waitingBytes: self.writer.waitingBytes,
            controlFrames: self.carriage?.controlFrames ?? 0
        )
    }

    func rest() {
        self.hot.machine.releaseRest()
        self.hot.runs.rest()
    }

    func giveUpPartial(in turn: inout Turn) -> Bool {
        self.listener.format.resynchronises && self.link.giveUp(in: &turn, where: { _ in true })
    }

    func push(_ push: SharedPush, in turn: inout Turn) -> Bool { self.writer.push(push, in: &turn) }

    /// Refuses new requests, finishes those in flight, and notifies the client, which closes the connection; closes it
    /// itself if the client cannot be notified.
    func drain(_ policy: ShutdownPolicy, in turn: inout Turn) {
        guard self.hot.phase == .open, !self.hot.machine.isDraining else { return }
        let isAnnounced = self.sendGoAway(policy.notice(share: .random(in: 0...1)), in: &turn)
        self.hot.machine.drain(isAnnounced: isAnnounced)
        self.streams?.drain()
        self.counters.take(self.counts)
        self.finishIfDone(in: &turn)
    }

    /// Sends the client a go-away, where the format has one, and ends the connection.
    func say(_ farewell: Farewell, in turn: inout Turn) -> Bool {
        guard self.hot.phase == .open, self.link.context != nil else { return false }
        // From now on it holds nothing but the requests of handlers that have not returned.
        self.stopHandlers()
        self.settle()
        self.sendGoAway(GoAway(reason: farewell.reason, retryAfter: farewell.retryAfter), in: &turn)
        self.counters.take(self.counts)
        // It need not read it.
        self.finish(within: Self.protocolErrorTime, in: &turn)
        return true
    }

    /// Notifies open streams; everything else ends at once.
    func stop(in turn: inout Turn) -> Bool {
        guard self.hot.phase == .open, self.link.isWritable, self.link.context != nil,
            self.streams?.stop(in: &turn) == true
        else { return false }
        self.stopHandlers()
        self.counters.take(self.counts)
        self.finish(within: ListenerSettings.lingerTime, in: &turn)
        return true
    }

    func ended(_ reason: ServerCloseReason) {
        self.hot.phase = .closed
        self.stopHandlers()
        self.streams?.end()
        self.streams = nil
        // Handlers that have not returned hold their requests.
        self.settle()
        self.counters.take(self.counts)
        if let session = self.hot.serverContext?.session {
            self.books.sessions.remove(session.id)
            // Called before the session ends, so that it still has its values.
            self.rules.connections.onClose?(session, reason)
            session.end()
        }
        // The session and the connection retain each other.
        self.hot.serverContext = nil
        self.carriage = nil
    }
}

// MARK: - Streams

extension FrameSession: StreamSideHost {
    var inputIsClosed: Bool { self.hot.machine.inputIsClosed }

    func receivedPayload(_ frame: Frame, in turn: inout Turn) { self.receiveWhole(ArrivedFrame(frame), in: &turn) }

    func refused(type: UInt32, serial: UInt32, _ status: Status) {
        let arrival = ReceivedRequest(frame: ArrivedFrame(Frame(type: type, serial: serial)), length: 0)
        self.refused(arrival, self.rules.unknownRules, with: status)
    }

    func streamEnded(serial: UInt32, run: UInt64, in turn: inout Turn) {
        guard let ended = self.hot.machine.end(serial: serial, run: run) else { return }
        ended.work?.cancel()
        self.stopped(run, in: &turn)
    }

    func fastPathChanged(isClosed: Bool) { self.hot.fastPath.piecesChanged(areAwaited: isClosed) }

    func receivedUnproductive() { self.hot.machine.receivedUnproductive() }

    func streamsFailed(_ fault: StreamFault, in turn: inout Turn) {
        guard self.hot.phase == .open else { return }
        self.hot.machine.lostFraming()
        let error =
            switch fault {
            case .beyondWindow: "more was sent than the window allows"
            case .tooManyUnfinished: "too many payloads were begun"
            }
        self.violated("a client's streams violate the agreement", error, because: .protocolViolation, in: &turn)
    }

    func streamsMoved(in turn: inout Turn) { self.finishIfDone(in: &turn) }
}

// MARK: - Synchronous requests

/// Synchronous requests: the slow path, which handles every case, and the fast path, which nearly all requests take.
///
/// The invariant: the fast path may be taken only where it does exactly what the slow path does. It omits checks that
/// cannot matter for the requests it takes; anyone who adds a check to the slow path has to find out whether it can
/// matter for them:
///
/// - A frame is taken only if it is whole and sound, of the type that was found last, whose handler is synchronous
///   and whose rules exclude no request (``RouteRules/isOpen``), and with a serial of requests. Such a frame is no
///   control frame, has no envelope, deadline or key, and is not refused. Other frames are left for the slow path.
/// - A payload whose pieces are awaited closes the path (``FastPath/piecesChanged(areAwaited:)``), since its last piece
///   looks like a whole frame. So do streams whose handler has returned and whose answer waits behind their items;
///   other streams are requests in flight (``StreamSideHost/fastPathChanged(isClosed:)``).
/// - Requests in flight, draining and the end of the connection close it (``SessionMachine/serialsOnFastPath``), as do
///   a hello or an identity that is awaited, a rate, answers in order, and other formats (``FastPath/isOpen``).
/// - An answer is encoded immediately only if it has no metadata, cannot be compressed, is not too large, and does not
///   have to wait behind others. Any other answer is sent on the slow path. A handler's direct form
///   (``Router/DirectHandler``) differs from the handler only in that a short answer has no buffer.
///
/// Handlers run here, inside the batch, while the connection and its link are in use. This is safe because nothing that
/// a handler can call acts immediately: a push or a close only submits, and submitted work runs once the batch is over.
/// For the same reason, nothing that the fast path checked before its first request changes before its last.
extension FrameSession {
    /// Answers requests as long as they qualify for the fast path.
    private func answerOnFastPath(_ batch: inout Batch<FrameLanguage>, in turn: inout Turn) {
        guard batch.mayHaveSoundHeader, self.hot.fastPath.isOpen,
            let (handler, direct) = self.hot.cachedRoute.openHandlers,
            let serials = self.hot.machine.serialsOnFastPath, let session = self.hot.serverContext?.session
        else { return }
        let (type, largestAnswer) = (self.hot.cachedRoute.type, self.hot.fastPath.largestAnswer)
        var context = ServerContext(session: session, extras: self.hot.fastPath.takeExtras())
        var count = 0
        while let header = batch.soundHeader(ofType: type, in: serials) {
            count += 1
            if count % Self.requestsBetweenChecks == 0 { self.link.endTurnInTime(&turn) }
            let body = batch.takePayload(of: header).lend()
            let request = ServerRequest(type: header.type, serial: header.serial, body: body)
            do {
                let body: ByteBuffer? =
                    if let direct {
                        try direct(request, &context) { body, context in
                            self.answer(header, body: body, context: &context, largest: largestAnswer, in: &turn)
                        }
                    } else {
                        try handler(request, context)
                    }
                if let body {
                    self.answer(header, with: .ok, body: body, context: &context, largest: largestAnswer, in: &turn)
                }
            } catch {
                let (status, body) = self.verdict(of: error, request, context)
                self.answer(header, with: status, body: body, context: &context, largest: largestAnswer, in: &turn)
            }
        }
        self.hot.fastPath.extras = context.takeExtras()
        guard count > 0 else { return }
        self.hot.machine.receivedOnFastPath(count)
    }

    private func answer(
        _ header: FrameHeader,
        with status: Status,
        body: ByteBuffer,
        context: inout ServerContext,
        largest: Int,
        in turn: inout Turn
    ) {
        guard body.readableBytes <= largest, context.isAsNew() else {
            return self.answerOnSlowPath(header, with: status, body: body, context: &context, in: &turn)
        }
        body.withUnsafeReadableBytes {
            self.link.sendOnFastPath(type: header.type, serial: header.serial, status: status, $0, in: &turn)
        }
    }

    /// Answers with a body that is only lent.
    private func answer(
        _ header: FrameHeader,
        body: UnsafeRawBufferPointer,
        context: inout ServerContext,
        largest: Int,
        in turn: inout Turn
    ) {
        guard body.count <= largest, context.isAsNew() else {
            return self.answerOnSlowPath(header, with: .ok, body: ByteBuffer(bytes: body), context: &context, in: &turn)
        }
        self.link.sendOnFastPath(type: header.type, serial: header.serial, status: .ok, body, in: &turn)
    }

    private func answerOnSlowPath(
        _ header: FrameHeader,
        with status: Status,
        body: ByteBuffer,
        context: inout ServerContext,
        in turn: inout Turn
    ) {
        let answer = Frame(type: header.type, serial: header.serial, status: status, payload: body)
        self.finish(answer, context, run: nil, in: &turn)
        context = ServerContext(session: context.session, extras: self.extras(nil, now: turn.now))
    }

    /// Answers a request, with or without data beside its body.
    private func run(
        _ handler: Router.SynchronousHandler,
        on frame: consuming ArrivedFrame,
        extras: ServerContext.Extras?,
        number: UInt64?,
        in turn: inout Turn
    ) {
        guard let session = self.hot.serverContext?.session else { return }
        let context = ServerContext(session: session, extras: extras)
        var answer = self.gate.emptyAnswer(to: frame)
        let request = self.gate.request(frame)
        do {
            answer.payload = try handler(request, context)
        } catch {
            (answer.status, answer.payload) = self.verdict(of: error, request, context)
        }
        self.finish(answer, context, run: number, in: &turn)
        self.hot.slowRequests &+= 1
        if self.hot.slowRequests % Self.slowRequestsBetweenChecks == 0 { self.link.endTurnInTime(&turn) }
    }

    /// Returns the status for an error: nothing is sent of an error that has none, and all of it is logged.
    private func verdict(
        of error: any Error,
        _ request: ServerRequest,
        _ serverContext: ServerContext
    ) -> (Status, ByteBuffer) {
        if let error = error as? StatusError { return (error.status, error.body) }
        self.counts.count(.handlerErrors)
        HandlerRun.log(error, request: request, context: serverContext)
        return (.unknown, ByteBuffer())
    }

    /// The end of both ways.
    private func finish(_ answer: consuming Frame, _ context: ServerContext, run: UInt64?, in turn: inout Turn) {
        if !self.rules.takes(answerOf: answer.payload.readableBytes, type: answer.type, context.session) {
            self.counts.count(.handlerErrors)
            (answer.status, answer.payload) = (.illegalLength, ByteBuffer())
        }
        if let agreement = self.agreement {
            let isCompressible = answer.payload.readableBytes <= AnswerSeal.largestBodyCompressedOnLoop
            let compression = isCompressible ? self.rules.hello.compression : nil
            AnswerSeal.seal(&answer, metadata: context.answerMetadata, by: agreement, compression)
        }
        self.writer.answer(answer, run, in: &turn)
    }
}
