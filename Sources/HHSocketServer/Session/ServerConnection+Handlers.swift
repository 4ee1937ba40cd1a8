import HHSocket
import NIOCore

/// From a request to its answer.
extension ServerConnection {
    /// Why a request is not begun though nothing is wrong with it. Of one that is begun and is asynchronous the
    /// server's load knows from here on.
    func refusal(
        of request: SessionMachine<Task<Void, Never>>.Admission,
        bytes: Int,
        isCompressed: Bool,
        deadline: NIODeadline?,
        now: NIODeadline
    ) -> SessionMachine<Task<Void, Never>>.Refusal? {
        if self.core.hello.isRequired, self.greeting.agreement == nil { return .noHello }
        if isCompressed, self.greeting.isStranger { return .compression }
        guard self.takeRequest(now: now) else { return .rate }
        if let deadline, deadline <= now { return .deadline }
        guard request.isAsynchronous else { return nil }
        guard self.load.hasRoom(for: bytes) else { return .bytes }
        guard self.load.startRequest() else { return .inFlight }
        guard self.core.limiter?.start() ?? true else {
            self.load.finishedRequest()
            return .concurrency
        }
        return nil
    }

    func request(_ frame: Frame, body: ByteBuffer) -> ServerRequest {
        ServerRequest(
            type: frame.type,
            serial: frame.serial,
            body: body,
            header: self.listener.format.header(of: frame, in: .request)
        )
    }

    func emptyAnswer(to frame: Frame, _ status: Status = .ok) -> Frame {
        Frame(
            type: frame.type,
            serial: frame.serial,
            status: status,
            customFields: self.listener.format.responseFields(
                answering: frame.customFields,
                over: self.listener.customFields
            )
        )
    }

    func start(
        _ handler: @escaping Router.Handler,
        on executor: HandlerExecutor,
        _ frame: Frame,
        _ extras: ServerContext.Extras?,
        cost: Int,
        isCompressed: Bool,
        run: UInt64
    ) {
        guard let session = self.hot.serverContext?.session else { return }
        let work = HandlerRun(
            handler: handler,
            executor: executor,
            request: self.request(frame, body: frame.payload),
            requestCost: cost,
            isCompressed: isCompressed,
            context: ServerContext(session: session, extras: extras),
            emptyAnswer: self.emptyAnswer(to: frame),
            number: run,
            agreement: self.greeting.agreement,
            load: self.load,
            core: self.core,
            counters: self.loop.counters
        )
        let (completions, load) = (self.completions, self.load)
        let task = self.task(on: executor) {
            let completion = await work.run()
            // Nobody takes it any more.
            if !completions.append(completion) { load.held(-completion.requestCost - completion.answerCost) }
        }
        self.hot.machine.started(task, serial: frame.serial, run: run)
        guard let deadline = extras?.deadline else { return }
        let serial = frame.serial
        self.deadlines[run] = self.loop.socketLoop.setTimer(deadline) {
            self.expire(serial: serial, run: run, answer: work.emptyAnswer, in: &$0)
        }
    }

    private func task(
        on executor: HandlerExecutor,
        _ operation: @escaping @Sendable () async -> Void
    ) -> Task<Void, Never> {
        if executor == .connection, #available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *) {
            return Task(executorPreference: self.loop.executor, operation: operation)
        }
        return Task(operation: operation)
    }

    /// The answer is of no use any more.
    private func expire(serial: UInt32, run: UInt64, answer: Frame, in turn: inout Turn) {
        self.deadlines[run] = nil
        guard self.hot.phase == .open, let expired = self.hot.machine.expire(serial: serial, run: run) else { return }
        expired.work?.cancel()
        var answer = answer
        answer.status = .deadlineExceeded
        self.answer(answer, run, in: &turn)
        self.takeStatistics()
        self.finishIfDone(in: &turn)
    }

    /// A body of its own where it is only a part of a read's buffer, all of which it would keep for as long as its
    /// handler runs.
    static func detached(_ body: ByteBuffer) -> ByteBuffer {
        guard 2 * body.readableBytes < body.storageCapacity else { return body }
        return body.withUnsafeReadableBytes { $0.isEmpty ? ByteBuffer() : ByteBuffer(bytes: $0) }
    }

    /// Returns the status for an error: nothing is sent of an error that has none, and all of it is logged.
    func verdict(
        of error: any Error,
        _ request: ServerRequest,
        _ serverContext: ServerContext
    ) -> (Status, ByteBuffer) {
        if let error = error as? StatusError { return (error.status, error.body) }
        self.hot.machine.statistics.handlerErrors += 1
        HandlerRun.log(error, request, serverContext, self.core)
        return (.unknown, ByteBuffer())
    }

    func takeCompletions(in turn: inout Turn) {
        guard self.hot.phase == .open else { return }
        for completion in self.completions.takeAll() {
            let action = self.hot.machine.finished(
                serial: completion.answer.serial,
                run: completion.run,
                bytes: completion.requestCost
            )
            if completion.answerCost > 0 { self.load.held(-completion.answerCost) }
            self.removeDeadline(of: completion.run)
            guard action == .send else { continue }
            switch completion.kind {
            case .ordinary: break
            case .failed: self.hot.machine.statistics.handlerErrors += 1
            case .late: self.hot.machine.statistics.deadlinesExceeded += 1
            case .repeated: self.hot.machine.statistics.idempotentRepeats += 1
            case .illegal: self.hot.machine.statistics.illegalRequests += 1
            case .waiting: self.hot.machine.statistics.overloads += 1
            case .overload:
                self.hot.machine.statistics.overloads += 1
                self.hot.machine.statistics.overloadsOfMemory += 1
            }
            self.answer(completion.answer, completion.run, in: &turn)
        }
        guard self.hot.phase != .closed else { return }
        self.account()
        self.takeStatistics()
        self.finishIfDone(in: &turn)
    }

    private func removeDeadline(of run: UInt64) {
        guard !self.deadlines.isEmpty, let timer = self.deadlines.removeValue(forKey: run) else { return }
        self.loop.socketLoop.removeTimer(timer)
    }

    /// The request is not answered any more.
    func stopped(_ run: UInt64, in turn: inout Turn) {
        self.removeDeadline(of: run)
        guard let ready = self.line.order?.abandon(run) else { return }
        self.emit(ready, in: &turn)
        self.checkOrder(in: &turn)
    }
}
