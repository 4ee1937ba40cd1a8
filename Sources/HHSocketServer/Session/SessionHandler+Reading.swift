import HHSocket
import HHSocketHello
import NIOCore

/// What the client sends.
extension SessionHandler {
    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard self.phase == .open else { return }
        self.isReading = true
        if self.heartbeat != nil { self.noteBytesReceived() }
        let bytes = self.unwrapInboundIn(data)
        self.bytesRead += bytes.readableBytes
        self.decoder.append(bytes)
        if !self.isPaused { self.decodeFrames(context) }
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        self.isReading = false
        self.noteRead()
        self.publishStatistics()
        self.flush()
        self.finishIfDone()
        context.fireChannelReadComplete()
    }

    /// Tells the watch, and the server's load, what has come.
    private func noteRead() {
        guard self.phase == .open, self.bytesRead > 0 else { return }
        let partial = self.decoder.bufferedBytes
        if partial == 0, !self.watch.hasPartialFrame {
            // Whole frames, as most reads bring: when they came need not be known any better than by the next look.
            self.hasReadSinceLook = true
        } else {
            self.noteRead(partialBytes: partial, now: .now())
        }
        if self.hasFrames, !self.core.hello.isRequired || self.agreement != nil { self.watch.firstFrameCame() }
        self.bytesRead = 0
        self.hasFrames = false
        self.account(waiting: self.outgoing.readableBytes)
        if partial >= Self.largestPartialWhenFull, self.core.load.isFull { self.evict(.memory) }
    }

    private func noteRead(partialBytes: Int, now: NIODeadline) {
        self.watch.received(self.bytesRead, partialBytes: partialBytes, frames: self.hasFrames, now: now)
        self.hasReadSinceLook = false
    }

    /// A frame that is arriving may have so many bytes though the server holds as many as it may.
    static var largestPartialWhenFull: Int { 64 << 10 }

    func decodeFrames(_ context: ChannelHandlerContext) {
        do throws(FrameError) {
            var frame = Frame(type: 0, serial: 0)
            while true {
                self.answerAtOnce()
                switch try self.decoder.next(into: &frame) {
                case .nothing: return
                case .sound: self.receive(frame, isCorrupt: false)
                case .corrupt: self.receive(frame, isCorrupt: true)
                }
                guard self.phase == .open else { return }
                if self.bytesThisTurn >= Self.largestTurn {
                    self.flush()
                    if !self.isWritable {
                        self.isPaused = true
                        return
                    }
                }
            }
        } catch {
            self.machine.lostFraming()
            if error.code == .payloadTooLarge, let type = error.type, let serial = error.serial {
                self.emit(Frame(type: type, serial: serial, status: .illegalLength))
            }
            self.log("a client's bytes make no sense", "\(error)")
            self.finishAfterProtocolError()
        }
    }

    /// Answers requests as long as they are what most are: in the standard format, whole and sound, and of a type that has
    /// just been looked up and is answered at once. What else comes is left where it is.
    private func answerAtOnce() {
        guard case .synchronous(let handler) = self.cachedRoute, self.isPlain, let session = self.serverContext?.session
        else { return }
        var serverContext = ServerContext(session: session, extras: self.takePlainExtras())
        defer { self.plainExtras = serverContext.takeExtras() }
        let type = self.cachedType
        while self.phase == .open, self.bytesThisTurn < Self.largestTurn,
            let serials = self.machine.serialsAnsweredAtOnce,
            // Without a look at `self`, which would be retained for it.
            let header = self.decoder.soundHeader(where: { $0.type == type && serials.contains($0.serial) })
        {
            self.machine.receivedAtOnce()
            self.hasFrames = true
            let request = ServerRequest(
                type: header.type,
                serial: header.serial,
                body: self.decoder.takePayload(of: header)
            )
            do {
                let body = try handler(request, serverContext)
                self.answer(header, .ok, body, &serverContext)
            } catch {
                let (status, body) = self.verdict(of: error, request, serverContext)
                self.answer(header, status, body, &serverContext)
            }
        }
    }

    private func takePlainExtras() -> ServerContext.Extras? {
        var taken: ServerContext.Extras?
        swap(&taken, &self.plainExtras)
        return taken
    }

    private func answer(_ header: FrameHeader, _ status: Status, _ body: ByteBuffer, _ context: inout ServerContext) {
        guard body.readableBytes <= self.largestPlainAnswer, context.isAsNew() else {
            var frame = Frame(type: header.type, serial: header.serial, status: status, payload: body)
            if !self.core.takes(answerOf: body.readableBytes, type: header.type, context.session) {
                self.machine.statistics.handlerErrors += 1
                (frame.status, frame.payload) = (.illegalLength, ByteBuffer())
            }
            self.seal(&frame, context)
            context = ServerContext(session: context.session, extras: self.extras(nil))
            return self.emit(frame)
        }
        self.bytesThisTurn += self.encoder.encodedLength(payloadLength: body.readableBytes)
        self.encoder.encode(type: header.type, serial: header.serial, status: status, body, into: &self.outgoing)
    }

    private func receive(_ frame: Frame, isCorrupt: Bool) {
        self.hasFrames = true
        guard self.listener.supportsHello else {
            return self.receive(frame, nil, length: frame.payload.readableBytes, isCorrupt: isCorrupt)
        }
        if frame.type == FrameType.hello, frame.serial == FrameSerial.hello, !isCorrupt {
            return self.receiveHello(frame)
        }
        var opened = frame
        var envelope: Envelope?
        if frame.type & FrameType.allFlags != 0 {
            opened.type &= ~FrameType.allFlags
            if !isCorrupt {
                envelope = self.open(frame)
                guard let envelope else { return }
                opened.payload = envelope.body
            }
        }
        self.receive(opened, envelope, length: frame.payload.readableBytes, isCorrupt: isCorrupt)
    }

    /// - Parameters:
    ///   - frame: Without what stands around its body.
    ///   - envelope: That.
    ///   - length: How many bytes both have.
    private func receive(_ frame: Frame, _ envelope: Envelope?, length: Int, isCorrupt: Bool) {
        let isControl = self.format.isControlType(frame.type)
        let extras = isControl ? nil : self.extras(envelope?.metadata)
        let isCompressed = envelope?.isCompressed ?? false
        let known = isControl ? nil : self.route(for: frame.type)
        // In the way of those that have a handler, lest a client that may call none of them can tell which there are.
        let route = isControl ? nil : known ?? self.core.unknownTypeHandler.map { .asynchronous($0) }
        let handling: SessionMachine<Task<Void, Never>>.Handling =
            switch route {
            // Whether it is the first of its key takes a task to find out, and decompressing takes too long for this thread.
            case .synchronous: extras?.idempotencyKey == nil && !isCompressed ? .synchronous : .asynchronous
            case .asynchronous: .asynchronous
            case nil: .none
            }
        if !isControl { self.order?.reserve() }
        let action = self.machine.received(
            type: frame.type,
            serial: frame.serial,
            isCorrupt: isCorrupt,
            bytes: length,
            handling: handling,
            refusal: { self.refusal(handling: $0, bytes: length, deadline: extras?.deadline) }
        )
        switch action {
        case .answer(let status):
            self.answer(self.emptyAnswer(to: frame, status), isControl ? nil : self.machine.lastRun)
        case .runSynchronously:
            if case .synchronous(let handler) = route { self.run(handler, frame, extras) }
        case .start(let run):
            let handler: Router.Handler
            switch route {
            case .asynchronous(let asynchronous): handler = asynchronous
            case .synchronous(let synchronous): handler = { try synchronous($0, $1) }
            case nil: return
            }
            if known == nil { self.machine.statistics.unknownTypes += 1 }
            self.start(handler, frame, extras, length: length, isCompressed: isCompressed, run: run)
        case .stop(let task, let run):
            task?.cancel()
            self.stopped(run)
        case .ignore:
            break
        }
    }

    private func route(for type: UInt32) -> Router.Route? {
        if type == self.cachedType { return self.cachedRoute }
        let route = self.core.routes[type]
        self.cachedType = type
        self.cachedRoute = route
        return route
    }
}
