// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// Frames that the client sends.
extension ServerConnection {
    func received(_ batch: inout Batch<FrameLanguage>, in turn: inout Turn) throws(LinkError) {
        guard self.hot.phase == .open else { return }
        self.hot.startedHere = 0
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
            guard batch.goesOn else {
                // Sent answers leave before the turn ends, and a client that has its answer may read the statistics
                // next.
                return self.takeStatistics()
            }
            if batch.isFinished() { return }
            // Their handlers run once nothing is borrowed: requests answered within the turn were never in flight. If
            // the connection has ended there is no other turn, and requests beyond the limit are refused.
            if self.hot.startedHere > 0, self.hot.machine.isAtLimit, self.link.yield(in: &turn) { continue }
            guard try self.receiveNext(&batch, in: &turn) else { return }
            count += 1
            if count % Self.requestsBetweenLooks == 0 { self.link.endTurnInTime(&turn) }
        }
    }

    /// - Returns: False where more bytes are needed, or nothing more is received.
    private func receiveNext(_ batch: inout Batch<FrameLanguage>, in turn: inout Turn) throws(FrameError) -> Bool {
        var frame = Frame(type: 0, serial: 0)
        switch try batch.next(into: &frame) {
        case .nothing: return false
        case .sound: self.receive(frame, isCorrupt: false, in: &turn)
        case .corrupt: self.receive(frame, isCorrupt: true, in: &turn)
        case .malformed(let error): self.receive(malformed: error, in: &turn)
        }
        if self.hot.machine.unproductiveFrames > 0 { self.chargeUnproductiveFrames(in: &turn) }
        return self.hot.phase == .open
    }

    /// Answers bytes that are no frame, in a format with separators, where it can be read which request they should
    /// have been.
    private func receive(malformed error: FrameError, in turn: inout Turn) {
        self.hot.watching.hasFrames = true
        self.log("a client sent bytes that are no frame", "\(error)")
        guard self.hot.machine.receivedMalformed(type: error.type, serial: error.serial),
            let type = error.type, let serial = error.serial
        else { return }
        self.emit(self.emptyAnswer(to: Frame(type: type, serial: serial), .illegalFormat), in: &turn)
    }

    /// Answers bytes that cannot be decoded, if they can be attributed to a request, and ends the connection.
    private func lostFraming(_ error: FrameError, in turn: inout Turn) {
        self.hot.machine.lostFraming()
        if error.code == .payloadTooLarge, let type = error.type, let serial = error.serial {
            self.emit(Frame(type: type, serial: serial, status: .illegalLength), in: &turn)
        }
        self.log("a client violated the protocol", "\(error)")
        guard self.hot.phase == .open else { return }
        self.ends(.protocolError)
        self.stopHandlers()
        self.takeStatistics()
        let reason: CloseReason = error.code == .payloadTooLarge ? .tooLarge : .protocolViolation
        self.finish(reason, within: Self.protocolErrorTime, in: &turn)
    }

    func finishedReading(in turn: inout Turn) {
        if let streams = self.streams, !streams.isQuiet { self.tendStreams(streams, in: &turn) }
        self.noteRead(in: &turn)
        self.takeStatistics()
        self.finishIfDone(in: &turn)
    }

    /// Reports the received bytes to the watch and to the server's load.
    @inline(__always)
    private func noteRead(in turn: inout Turn) {
        let state = self.link.readState
        let (bytesRead, partial) = (state.bytesReceived, state.unfinishedBytes)
        // Also without new bytes: a frame that waited here, not for its client, may be whole now.
        let isNews = bytesRead > self.hot.watching.bytesRead || self.hot.watching.watch.hasPartialFrame
        guard self.hot.phase == .open, isNews else { return }
        if partial == 0, !self.hot.watching.watch.hasPartialFrame {
            // Only whole frames, as most reads bring: the time of the next check is exact enough.
            self.hot.watching.hasReadSinceLook = true
        } else {
            self.hot.watching.watch.received(
                bytesRead - self.hot.watching.bytesRead,
                partialBytes: partial,
                frames: self.hot.watching.hasFrames,
                now: turn.now
            )
            self.hot.watching.hasReadSinceLook = false
        }
        if self.hot.watching.hasFrames, !self.core.hello.isRequired || self.greeting.agreement != nil {
            self.hot.watching.watch.firstFrameCame()
        }
        self.hot.watching.bytesRead = bytesRead
        self.hot.watching.hasFrames = false
        self.account()
        // A new client is not punished for what others hold: those are being closed, and this client waits.
        if self.core.ledger.delays(frameOf: partial) { self.link.yield(for: Self.pauseWhenNearlyFull, in: &turn) }
    }

    /// The time for which nothing more is read of a frame that is read slowly.
    private static var pauseWhenNearlyFull: TimeAmount { .milliseconds(50) }

    private func receive(_ frame: Frame, isCorrupt: Bool, in turn: inout Turn) {
        self.hot.watching.hasFrames = true
        guard self.listener.supportsHello else {
            return self.receive(frame, nil, length: frame.payload.readableBytes, isCorrupt: isCorrupt, in: &turn)
        }
        if frame.type == FrameType.hello, frame.serial == FrameSerial.hello, !isCorrupt {
            return self.receiveHello(frame, in: &turn)
        }
        if let streams = self.streams, self.receive(frame, isCorrupt: isCorrupt, streams, in: &turn) { return }
        self.receiveWhole(frame, isCorrupt: isCorrupt, in: &turn)
    }

    /// Handles a frame that is not a piece of another, or whose pieces are complete.
    func receiveWhole(_ frame: Frame, isCorrupt: Bool = false, in turn: inout Turn) {
        var opened = frame
        var envelope: Envelope?
        if frame.type & FrameType.allFlags != 0 {
            opened.type &= ~FrameType.allFlags
            if !isCorrupt {
                envelope = self.open(frame, in: &turn)
                guard let envelope else { return }
                opened.payload = envelope.body
            }
        }
        self.receive(opened, envelope, length: frame.payload.readableBytes, isCorrupt: isCorrupt, in: &turn)
    }

    /// - Parameters:
    ///   - frame: The frame without its envelope.
    ///   - envelope: The envelope of its body.
    ///   - length: The length of both in bytes.
    private func receive(
        _ frame: Frame,
        _ envelope: Envelope?,
        length: Int,
        isCorrupt: Bool,
        in turn: inout Turn
    ) {
        let now = turn.now
        let isControl = self.listener.format.isControlType(frame.type)
        let extras = isControl ? nil : self.extras(envelope?.metadata, now: now)
        let isCompressed = envelope?.isCompressed ?? false
        let known = isControl ? nil : self.route(for: frame.type)
        // Unknown types take the same path as those with a handler, so that a client that may call none of them cannot
        // find out which exist.
        let route = isControl ? nil : known ?? self.core.unknownTypeRoute
        let handling: SessionMachine<Task<Void, Never>>.Handling =
            switch route?.handling {
            // Finding out whether the request is the first with its key takes a task, and decompressing takes too long
            // for this thread.
            case .synchronous: extras?.idempotencyKey == nil && !isCompressed ? .synchronous : .asynchronous
            case .asynchronous, .stream: .asynchronous
            case nil: .none
            }
        if !isControl { self.line.order?.reserve() }
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
            self.begin(admission, route, arrival, in: &turn)
        case .answer(let status, let number):
            if !isControl, !isCorrupt {
                let rules = route?.rules ?? self.core.unknownRules
                self.refused(
                    ReceivedRequest(frame: frame, extras: extras, length: length, hasHandler: known != nil),
                    rules,
                    status
                )
            }
            var answer = self.emptyAnswer(to: frame, status)
            // A heartbeat is the only control frame that is answered.
            if isControl { answer.type = self.listener.format.heartbeatAnswer(to: frame).type }
            self.answer(answer, number, in: &turn)
        case .stop(let task, let run):
            task?.cancel()
            self.stopped(run, in: &turn)
            self.noteCancel(in: &turn)
        case .ignore:
            break
        }
    }

    /// Begins a request, unless a limit prevents it.
    private func begin(
        _ admission: SessionMachine<Task<Void, Never>>.Admission,
        _ route: Router.Route,
        _ arrival: ReceivedRequest,
        in turn: inout Turn
    ) {
        // The buffer in which a large body arrived is charged to the link until the link has checked again.
        if admission.isAsynchronous, arrival.length >= Ledger.largestPartialWhenNearlyFull { self.link.settleNow() }
        var place: RequestPlace?
        var kind: StreamKind?
        if case .stream(_, _, let streamKind) = route.handling { kind = streamKind }
        let refusal = self.refusal(of: admission, arrival, route.rules, kind, &place, now: turn.now)
        if !arrival.hasHandler {
            self.hot.machine.statistics.unknownTypes += 1
            self.hot.machine.receivedUnproductive()
        }
        var (arrival, cost) = (arrival, 0)
        if admission.isAsynchronous, refusal == nil {
            arrival.frame.payload = arrival.frame.payload.detached
            cost = arrival.cost
        }
        switch self.hot.machine.admit(admission, bytes: cost, refusal: refusal) {
        case .answer(let status, let number):
            self.refused(arrival, route.rules, status)
            self.answer(self.emptyAnswer(to: arrival.frame, status), number, in: &turn)
        case .runSynchronously(let number):
            // In this case the route is that of unknown types, and refuses.
            if !arrival.hasHandler { self.refused(arrival, route.rules, .undefinedType) }
            if case .synchronous(let handler, _) = route.handling {
                self.run(handler, arrival.frame, arrival.extras, number, in: &turn)
            }
        case .start(let run):
            guard let place else { return }
            switch route.handling {
            case .asynchronous(let handler, let executor):
                self.start(handler, on: executor, arrival, place, cost: cost, run: run, now: turn.now)
            case .stream(let handler, let executor, let kind):
                let exchange = self.openStream(kind, arrival, on: executor, run: run, in: &turn)
                self.start(
                    handler,
                    on: executor,
                    arrival,
                    place,
                    cost: cost,
                    run: run,
                    exchange: exchange,
                    now: turn.now
                )
            case .synchronous(let handler, _):
                self.start(
                    { try handler($0, $1) },
                    on: .connection,
                    arrival,
                    place,
                    cost: cost,
                    run: run,
                    now: turn.now
                )
            }
        }
    }

    /// A request was cancelled that was in flight.
    func noteCancel(in turn: inout Turn) {
        guard let rate = self.core.limits.cancelRate, self.hot.phase == .open else { return }
        if self.cancels == nil { self.cancels = TokenBucket(rate, now: turn.now) }
        if self.cancels?.take(now: turn.now) == false { self.evict(.cancels, in: &turn) }
    }

    private func route(for type: UInt32) -> Router.Route? {
        if type == self.hot.cachedRoute.type { return self.hot.cachedRoute.route }
        let route = self.core.routes[type]
        self.hot.cachedRoute = CachedRoute(type: type, route: route)
        return route
    }
}
