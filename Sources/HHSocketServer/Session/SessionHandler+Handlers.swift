import HHSocket
import NIOCore

/// From a request to its answer.
extension SessionHandler {
    /// Why a request is not begun though nothing is wrong with it. Of one that is begun and is asynchronous the server's load
    /// knows from here on.
    func refusal(
        handling: SessionMachine<Task<Void, Never>>.Handling,
        bytes: Int,
        deadline: NIODeadline?
    ) -> SessionMachine<Task<Void, Never>>.Refusal? {
        if self.core.hello.isRequired, self.agreement == nil { return .noHello }
        if self.bucket?.take(now: .now()) == false { return .rate }
        if let deadline, deadline <= .now() { return .deadline }
        guard handling == .asynchronous else { return nil }
        let limit = self.core.limits.maximumBufferedBytesPerConnection
        guard !self.core.load.isFull, self.load.bytes + bytes <= limit else { return .bytes }
        guard self.core.load.start() else { return .inFlight }
        guard self.core.limiter?.start() ?? true else {
            self.core.load.finished()
            return .concurrency
        }
        return nil
    }

    func run(_ handler: Router.SynchronousHandler, _ frame: Frame, _ extras: ServerContext.Extras?) {
        guard let session = self.serverContext?.session else { return }
        let context = ServerContext(session: session, extras: extras)
        let run = self.machine.lastRun
        let request = self.request(frame, body: frame.payload)
        var answer = self.emptyAnswer(to: frame)
        do {
            answer.payload = try handler(request, context)
            if !self.core.takes(answerOf: answer.payload.readableBytes, type: frame.type, session) {
                self.machine.statistics.handlerErrors += 1
                (answer.status, answer.payload) = (.illegalLength, ByteBuffer())
            }
        } catch {
            (answer.status, answer.payload) = self.verdict(of: error, request, context)
        }
        self.seal(&answer, context)
        self.answer(answer, run)
    }

    /// Puts around the body of an answer that was made at once what was agreed on.
    func seal(_ answer: inout Frame, _ context: ServerContext) {
        guard let agreement = self.agreement else { return }
        let isCompressible = answer.payload.readableBytes <= Self.largestBodyCompressedAtOnce
        Self.seal(&answer, context.answerMetadata, agreement, isCompressible ? self.core.hello.compression : nil)
    }

    private func request(_ frame: Frame, body: ByteBuffer) -> ServerRequest {
        ServerRequest(
            type: frame.type,
            serial: frame.serial,
            body: body,
            header: self.format.header(of: frame, in: .request)
        )
    }

    func emptyAnswer(to frame: Frame, _ status: Status = .ok) -> Frame {
        Frame(
            type: frame.type,
            serial: frame.serial,
            status: status,
            customFields: self.format.responseFields(answering: frame.customFields, over: self.listener.customFields)
        )
    }

    func start(
        _ handler: @escaping Router.Handler,
        _ frame: Frame,
        _ extras: ServerContext.Extras?,
        length: Int,
        isCompressed: Bool,
        run: UInt64
    ) {
        guard let session = self.serverContext?.session else { return }
        let work = HandlerRun(
            handler: handler,
            request: self.request(frame, body: Self.detached(frame.payload)),
            requestLength: length,
            isCompressed: isCompressed,
            context: ServerContext(session: session, extras: extras),
            emptyAnswer: self.emptyAnswer(to: frame),
            number: run,
            agreement: self.agreement,
            load: self.load,
            core: self.core
        )
        let completions = self.completions
        let task = Task { completions.append(await work.run()) }
        self.machine.started(task, serial: frame.serial, run: run)
        guard let deadline = extras?.deadline else { return }
        let serial = frame.serial
        self.deadlineTimers[run] = self.loop.setTimer(deadline) {
            self.expire(serial: serial, run: run, answer: work.emptyAnswer)
        }
    }

    /// The answer is of no use any more.
    private func expire(serial: UInt32, run: UInt64, answer: Frame) {
        self.deadlineTimers[run] = nil
        guard self.phase == .open, let expired = self.machine.expire(serial: serial, run: run) else { return }
        expired.work?.cancel()
        var answer = answer
        answer.status = .deadlineExceeded
        self.answer(answer, run)
        self.scheduleFlush()
    }

    /// A small body of its own, so that it does not keep a whole read's buffer for as long as its handler runs.
    private static func detached(_ body: ByteBuffer) -> ByteBuffer {
        guard body.readableBytes <= FrameDecoder.defaultCopyLimit else { return body }
        return body.withUnsafeReadableBytes { $0.isEmpty ? ByteBuffer() : ByteBuffer(bytes: $0) }
    }

    /// What an error is answered with: of those that are no status nothing leaves, and all of it is in the log.
    func verdict(
        of error: any Error,
        _ request: ServerRequest,
        _ serverContext: ServerContext
    ) -> (Status, ByteBuffer) {
        if let error = error as? StatusError { return (error.status, error.body) }
        self.machine.statistics.handlerErrors += 1
        HandlerRun.log(error, request, serverContext, self.core)
        return (.unknown, ByteBuffer())
    }

    func takeCompletions() {
        guard self.phase == .open else { return }
        for completion in self.completions.takeAll() {
            let action = self.machine.finished(
                serial: completion.answer.serial,
                run: completion.run,
                bytes: completion.requestLength
            )
            self.removeDeadline(of: completion.run)
            guard action == .send else { continue }
            switch completion.kind {
            case .ordinary: break
            case .failed: self.machine.statistics.handlerErrors += 1
            case .late: self.machine.statistics.deadlinesExceeded += 1
            case .repeated: self.machine.statistics.idempotentRepeats += 1
            case .illegal: self.machine.statistics.illegalRequests += 1
            case .waiting: self.machine.statistics.overloads += 1
            case .overload:
                self.machine.statistics.overloads += 1
                self.machine.statistics.overloadsOfMemory += 1
            }
            self.answer(completion.answer, completion.run)
        }
        self.account(waiting: self.outgoing.readableBytes)
        self.scheduleFlush()
    }

    private func removeDeadline(of run: UInt64) {
        guard !self.deadlineTimers.isEmpty, let timer = self.deadlineTimers.removeValue(forKey: run) else { return }
        self.loop.removeTimer(timer)
    }

    /// The request is not answered any more.
    func stopped(_ run: UInt64) {
        self.removeDeadline(of: run)
        guard let ready = self.order?.abandon(run) else { return }
        self.emit(ready)
        self.checkOrder()
    }
}
