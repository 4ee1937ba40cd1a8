// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// One connection of a client, from when it is ready until it is closed or lost, with its endpoint and its agreement.
/// Passes pushes to their center, answers to the engine, and what belongs to streams to those.
final class ClientConnection: LinkReceiver {
    typealias Language = FrameLanguage

    let id: ConnectionID
    let link: Link<FrameLanguage>
    /// The server, and the agreement that hello has led to. Answers share it, unless their headers have fields of the
    /// server's.
    let origin: SocketResponse.Origin
    /// The streams, where hello agreed on them.
    let streams: StreamShell<ClientStreams>?
    // These outlive this object.
    private unowned let engine: CallEngine
    private unowned let links: ClientLinks
    private let pushes: PushCenter
    private let reporter: CallReporter
    private let bodies: BodyWork
    private let reader: AnswerReader
    private let format: WireFormat
    private let writeStallTimeout: TimeAmount
    private var arrival = StallWatch()
    private var arrivalTimer: SocketLoop.TimerID?
    /// The cancels of streams that carry more than their serial, by that. Their openings have the same custom fields.
    private var cancellations: [UInt32: Frame] = [:]
    /// The number of sent bytes of requests and openings in pieces, by serial.
    private var sentPieces: [UInt32: Int] = [:]

    init(
        link: Link<FrameLanguage>,
        origin: SocketResponse.Origin,
        streams: StreamShell<ClientStreams>?,
        engine: CallEngine,
        links: ClientLinks,
        pushes: PushCenter,
        bodies: BodyWork,
        reporter: CallReporter
    ) {
        self.id = link.id
        self.link = link
        self.origin = origin
        self.streams = streams
        self.engine = engine
        self.links = links
        self.pushes = pushes
        self.bodies = bodies
        self.reporter = reporter
        let configuration = engine.configuration
        self.reader = AnswerReader(configuration.socket, saysHello: configuration.hello != nil)
        self.format = self.reader.format
        self.writeStallTimeout = TimeAmount(clamping: engine.configuration.socket.writeStallTimeout)
        streams?.begin(self)
    }

    var endpoint: Endpoint { self.origin.endpoint }
    var agreement: Agreement? { self.origin.agreement }

    // MARK: Frames

    func received(_ batch: inout Batch<FrameLanguage>, in turn: inout Turn) throws(LinkError) {
        defer {
            self.pushes.handOver(in: &turn)
            self.tendStreams(in: &turn)
        }
        while true {
            self.engine.receiveOnFastPath(&batch, on: self, in: &turn)
            if batch.isFinished() || !batch.continues { return }
            guard try self.receiveNext(&batch, in: &turn) else { return }
        }
    }

    /// - Returns: Whether a frame was received; false if more bytes are needed.
    private func receiveNext(_ batch: inout Batch<FrameLanguage>, in turn: inout Turn) throws(LinkError) -> Bool {
        var frame = ArrivedFrame()
        switch try batch.nextFrame(into: &frame) {
        case .nothing: return false
        case .sound: self.receivedFrame(frame, in: &turn)
        case .corrupt(let mismatch): self.receivedCorrupt(frame, mismatch, in: &turn)
        case .malformed(let error): self.receivedMalformed(error, in: &turn)
        }
        return true
    }

    /// Receives frames that arrived before the connection was ready.
    func receivedFrames(_ frames: some Sequence<Frame>, in turn: inout Turn) {
        for frame in frames { self.receivedFrame(ArrivedFrame(frame), in: &turn) }
        self.pushes.handOver(in: &turn)
        self.tendStreams(in: &turn)
    }

    private func receivedFrame(_ arrived: consuming ArrivedFrame, in turn: inout Turn) {
        guard self.format.isControlType(arrived.type) else { return self.receivedApplication(arrived, in: &turn) }
        if self.isOfStreams(arrived, in: &turn) { return }
        let frame = arrived.lend()
        if self.format.isGoAway(frame) { self.links.receivedGoAway(frame, on: self.id, in: &turn) }
        // A heartbeat that is not a ping is an answer to one of ours.
        if self.format.isServerPing(frame) { self.link.answer(ping: frame, self.format, in: &turn) }
    }

    /// Receives an answer, a push, an item of a stream, or a piece.
    func receivedApplication(_ frame: consuming ArrivedFrame, in turn: inout Turn) {
        if self.isOfStreams(frame, in: &turn) { return }
        self.receivedWhole(frame, in: &turn)
    }

    /// Receives an answer or a push that belongs to no stream, or ends one, and is no piece.
    func receivedWhole(_ frame: consuming ArrivedFrame, in turn: inout Turn) {
        if frame.type & self.reader.flagMask == 0 {
            self.receivedOpen(frame, metadata: [:], in: &turn)
        } else {
            self.receivedSealed(frame, in: &turn)
        }
    }

    /// Receives an answer or a push whose frame has flags.
    private func receivedSealed(_ frame: consuming ArrivedFrame, in turn: inout Turn) {
        let isPush = self.format.isPush(frame)
        // An answer that no call waits for need not be opened.
        guard isPush || self.engine.isAwaited(frame.serial, on: self.id) else {
            _ = self.engine.take(frame.serial, on: self.id, isFinal: frame.status != .partial)
            return
        }
        let length = frame.length
        switch self.reader.open(&frame, agreedFlags: self.agreement?.flags ?? 0) {
        case .open(let metadata):
            self.receivedOpen(frame, metadata: metadata, in: &turn)
        case .compressed(let metadata) where isPush:
            self.pushes.receivedCompressed(frame.owned(), metadata, from: self.endpoint, in: &turn)
        case .compressed(let metadata):
            self.receivedCompressed(frame.owned(), metadata: metadata, in: &turn)
        case .unreadable(let reason) where isPush:
            self.pushes.receivedUnreadable(self.reader.plainType(frame.type), reason, from: self.endpoint)
        case .unreadable(let reason):
            let answer = frame.hollow()
            self.receivedUnusable(answer.serial, bytes: length, in: &turn) { type in
                self.reader.unreadable(answer, reason, requestType: type, from: self.endpoint)
            }
        }
    }

    /// Receives an answer or a push without flags and without its envelope, which has this metadata.
    private func receivedOpen(_ frame: consuming ArrivedFrame, metadata: [String: String], in turn: inout Turn) {
        guard !self.format.isPush(frame) else {
            return self.pushes.received(frame, metadata, from: self.endpoint, in: &turn)
        }
        if !self.format.responsesHaveType, let type = self.engine.hot.table.requestType(frame.serial, on: self.id) {
            frame.type = type
        }
        self.receivedAnswer(frame, metadata: metadata, in: &turn)
    }

    // MARK: Answers

    private func receivedAnswer(_ arrived: consuming ArrivedFrame, metadata: [String: String], in turn: inout Turn) {
        let (engine, serial, length) = (self.engine, arrived.serial, arrived.length)
        guard arrived.status != .ok else {
            let origin = self.reader.origin(of: arrived, metadata: metadata, on: self.origin)
            let response = SocketResponse(arrived, origin)
            guard !engine.isEnded(by: response, on: self, in: &turn),
                let attempt = engine.take(serial, on: self.id)
            else { return }
            attempt.flight.isAnswered(length, from: self.origin, at: turn.now)
            return engine.answered(attempt, .success(response), in: &turn)
        }
        let isFinal = arrived.status != .partial
        guard let attempt = engine.take(serial, on: self.id, isFinal: isFinal) else { return }
        attempt.flight.isAnswered(length, from: self.origin, at: turn.now)
        if !isFinal {
            var unfinished = attempt
            unfinished.phase = .sent
            engine.abandon(unfinished, in: &turn)
        }
        let outcome = self.reader.outcome(
            of: arrived.lend(),
            metadata: metadata,
            requestType: attempt.flight.request.type,
            on: self.origin
        )
        engine.answered(attempt, outcome, in: &turn)
    }

    /// Receives an answer whose body must be decompressed on another thread. It ends its attempt; its call stays in the
    /// table until the body can be read.
    ///
    /// - Parameter frame: The answer, without flags and without its envelope, with the compressed body, which is owned:
    ///   it waits for the answers whose bodies are decompressed before it.
    private func receivedCompressed(_ frame: Frame, metadata: [String: String], in turn: inout Turn) {
        guard let attempt = self.engine.take(frame.serial, on: self.id) else { return }
        let (flight, key) = (attempt.flight, attempt.key)
        let mayHaveRun = flight.state.mayHaveRun
        // In case the call is cancelled or times out before its answer can be read.
        flight.answerBegins(at: turn.now)
        flight.mayHaveRun()
        let (engine, reader, id, origin) = (self.engine, self.reader, self.id, self.origin)
        self.bodies.inflate(OwnedBytes(frame.payload)) { body, turn in
            // Otherwise the call has completed meanwhile.
            guard engine.isParked(key), var attempt = engine.endAttempt(key) else { return }
            flight.mayHaveRun(asBefore: mayHaveRun)
            attempt.connection = id
            let type = flight.request.type
            switch body {
            case .failure(let reason):
                flight.wasSent(to: origin)
                let error = reader.unreadable(frame, reason, requestType: type, from: origin.endpoint)
                engine.failed(attempt, error, in: &turn)
            case .success(let body):
                flight.isAnswered(body.readableBytes, from: origin, at: turn.now)
                var inflated = frame
                inflated.payload = body
                let outcome = reader.outcome(of: inflated, metadata: metadata, requestType: type, on: origin)
                engine.answered(attempt, outcome, in: &turn)
            }
        }
        engine.finishDrained(in: &turn)
    }

    private func receivedCorrupt(
        _ frame: borrowing ArrivedFrame,
        _ mismatch: FrameDecoder.ChecksumMismatch,
        in turn: inout Turn
    ) {
        self.reporter.count(\.checksumFailures)
        if self.isOfStreams(frame, isDamaged: true, in: &turn) { return }
        guard !self.format.isPush(frame), !self.format.isControlType(frame.type) else { return }
        let (serial, length) = (frame.serial, frame.length)
        self.receivedUnusable(serial, bytes: length, in: &turn) { _ in
            self.reader.corrupt(serial: serial, bytes: length, mismatch, from: self.endpoint)
        }
    }

    /// Fails the call whose answer bytes seem to be that are no frame, where that can be read.
    private func receivedMalformed(_ reason: FrameError, in turn: inout Turn) {
        self.reporter.count(\.malformedFrames)
        guard let serial = self.reader.serial(ofMalformed: reason), self.engine.isAwaited(serial, on: self.id) else {
            return
        }
        self.receivedUnusable(serial, bytes: 0, in: &turn) { _ in
            self.reader.malformed(reason, serial: serial, from: self.endpoint)
        }
    }

    /// Ends the attempt that this serial answers, since the answer cannot be used.
    ///
    /// - Parameters:
    ///   - length: The length of the answer's payload.
    ///   - isFinal: Whether a correct server sends nothing more for this serial.
    ///   - error: Makes the error, given the type of the request.
    private func receivedUnusable(
        _ serial: UInt32,
        bytes length: Int,
        isFinal: Bool = true,
        in turn: inout Turn,
        _ error: (UInt32) -> SocketError
    ) {
        guard let attempt = self.engine.take(serial, on: self.id, isFinal: isFinal) else { return }
        attempt.flight.isAnswered(length, from: self.origin, at: turn.now)
        self.engine.failed(attempt, error(attempt.flight.request.type), in: &turn)
    }

    // MARK: Partial frames

    func finishedReading(in turn: inout Turn) {
        if self.format.resynchronises { self.watchArrival(in: &turn) }
        guard let arriving = self.link.arriving(), !self.format.isControlType(arriving.type),
            !self.reader.isPush(arriving)
        else { return }
        let gathered = self.gatheredBytes(arriving.serial)
        // The length of a payload in pieces is known once the last piece begins.
        let isLast = arriving.type & self.reader.flagMask & FrameType.continuesFlag == 0
        self.engine.isReceiving(
            arriving.serial,
            gathered + arriving.receivedBytes,
            of: isLast ? gathered + arriving.length : nil,
            on: self.id,
            in: &turn
        )
    }

    /// Abandons an incomplete frame to which no call's timeout applies, such as a push, if too few of its bytes arrive.
    /// In formats with separators, where a length that is too large affects only the frames that it withholds.
    private func watchArrival(in turn: inout Turn) {
        let arriving = self.link.arriving()
        let isStalled = self.arrival.isStalled(
            isWaiting: arriving.map { !self.isAwaited($0) } ?? false,
            passed: arriving?.receivedBytes ?? 0,
            within: self.writeStallTimeout,
            now: turn.now
        )
        if isStalled {
            self.arrival.stop()
            self.link.giveUp(in: &turn) { !self.isAwaited($0) }
        } else if let check = self.arrival.nextCheck(within: self.writeStallTimeout), self.arrivalTimer == nil {
            self.arrivalTimer = self.link.loop.setTimer(check) { [weak self] turn in
                guard let self else { return }
                self.arrivalTimer = nil
                self.watchArrival(in: &turn)
            }
        }
    }

    /// Whether a call waits for the frame that is arriving.
    private func isAwaited(_ arriving: FrameDecoder.Arriving) -> Bool {
        !self.reader.isPush(arriving) && !self.format.isControlType(arriving.type)
            && self.engine.isAwaited(arriving.serial, on: self.id)
    }

    // MARK: Outgoing frames

    func unitWillBeSent(_ frame: Frame, in turn: inout Turn) -> Bool {
        self.engine.willSend(type: frame.type, serial: frame.serial, on: self.id, in: &turn)
    }

    func hasRoom(in turn: inout Turn) -> Bool { self.streams?.tend(in: &turn) ?? false }

    func unitProgressed(_ outgoing: Outgoing<Frame>, in turn: inout Turn) {
        self.engine.sent(
            type: outgoing.unit.type,
            serial: outgoing.unit.serial,
            payloadBytes: outgoing.sent,
            on: self.id,
            in: &turn
        )
    }
}

// MARK: - Streams and pieces

extension ClientConnection: StreamSide {
    /// Passes a frame to the streams.
    ///
    /// - Returns: Whether it belonged to streams or pieces.
    private func isOfStreams(
        _ frame: borrowing ArrivedFrame,
        isDamaged: Bool = false,
        in turn: inout Turn
    ) -> Bool {
        guard let streams = self.streams else { return false }
        let serial = frame.serial
        // Irrelevant for a stream.
        let isAwaited =
            !streams.hasStream(of: serial) && (self.format.isPush(frame) || self.engine.isAwaited(serial, on: self.id))
        let isTaken = streams.receive(frame, isDamaged: isDamaged, isAwaited: isAwaited, in: &turn)
        streams.perform(in: &turn)
        if isTaken, isAwaited, frame.type & FrameType.continuesFlag != 0 {
            self.engine.isReceiving(serial, self.gatheredBytes(serial), of: nil, on: self.id, in: &turn)
        }
        return isTaken
    }

    /// A read has been received, or part of one.
    private func tendStreams(in turn: inout Turn) {
        if let streams = self.streams, !streams.isQuiet { streams.tend(in: &turn) }
    }

    /// The number of received bytes of a plain call's incomplete answer.
    private func gatheredBytes(_ serial: UInt32) -> Int { self.streams?.with { $0.gatheredBytes(serial) } ?? 0 }

    /// The next stream with this serial is cancelled by this frame; nil for the format's.
    func opens(_ serial: UInt32, cancelledBy cancellation: Frame?) { self.cancellations[serial] = cancellation }

    /// Drops the sent and received pieces of a plain call that has ended.
    func dropPieces(of serial: UInt32) {
        self.sentPieces[serial] = nil
        _ = self.streams?.with { $0.dropPlain(serial: serial) }
    }

    func receivedPayload(_ frame: Frame, in turn: inout Turn) { self.receivedWhole(ArrivedFrame(frame), in: &turn) }

    func receivedBrokenPayload(_ failure: PayloadFailure, type: UInt32, serial: UInt32, in turn: inout Turn) {
        guard !self.format.isPush(type: type, serial: serial) else {
            return self.pushes.receivedBroken(type, self.reader.describe(failure).why, from: self.endpoint)
        }
        self.receivedUnusable(serial, bytes: 0, isFinal: false, in: &turn) { _ in
            self.reader.broken(failure, serial: serial, from: self.endpoint)
        }
    }

    func willSend(_ frame: inout Frame, in turn: inout Turn) -> Bool {
        let (serial, type) = (frame.serial, frame.type & ~FrameType.allFlags)
        if frame.type == self.format.layout.cancel?.type {
            if let cancellation = self.cancellations.removeValue(forKey: serial) { frame = cancellation }
            return true
        }
        guard !FrameType.control.contains(type) else { return true }
        let isOpening = self.streams?.hasStream(of: serial) == true
        if isOpening { frame.customFields = self.cancellations[serial]?.customFields }
        if self.sentPieces[serial] == nil {
            guard self.engine.willSend(type: type, serial: serial, on: self.id, in: &turn) || isOpening else {
                self.dropPieces(of: serial)
                return false
            }
            if isOpening { turn.after { [weak self] turn in self?.streams?.openingHasLeft(serial, in: &turn) } }
        } else if !isOpening, !self.engine.isAwaited(serial, on: self.id) {
            // It was answered before the server had received all of it.
            self.dropPieces(of: serial)
            guard let cancel = self.format.cancel(serial: serial) else { return false }
            frame = cancel
            return true
        }
        let sent = (self.sentPieces[serial] ?? 0) + frame.payload.readableBytes
        self.sentPieces[serial] = frame.type & FrameType.continuesFlag == 0 ? nil : sent
        if !isOpening { self.engine.sent(type: type, serial: serial, payloadBytes: sent, on: self.id, in: &turn) }
        return true
    }

    func ended(_ id: StreamID, serial: UInt32, _ end: StreamEnd, in turn: inout Turn) {
        self.sentPieces[serial] = nil
        switch end.outcome {
        case .answered, .connectionLost: self.cancellations[serial] = nil
        // A stream whose opening was sent is cancelled.
        default: if !end.hasLeft { self.cancellations[serial] = nil }
        }
    }

    func faulted(_ fault: StreamFault, in turn: inout Turn) {
        let what =
            switch fault {
            case .beyondWindow: "it sent more items than the connection's window allows"
            case .tooManyUnfinished: "it began too many payloads in pieces"
            }
        let (link, error) = (self.link, LinkError("the server broke the rules of streams: \(what)"))
        turn.after { turn in link.end(LinkEnd(.protocolViolation(error)), in: &turn) }
    }

    func settled(in turn: inout Turn) {}
}
