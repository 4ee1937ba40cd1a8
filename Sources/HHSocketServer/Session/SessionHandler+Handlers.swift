import HHSocket
import NIOCore

/// From a request to its answer.
extension SessionHandler {
    /// Why a request is not begun though nothing is wrong with it. Of one that is begun and is asynchronous the server's load
    /// knows from here on.
    func refusal(
        handling: SessionMachine<Task<Void, Never>>.Handling,
        bytes: Int
    ) -> SessionMachine<Task<Void, Never>>.Refusal? {
        if self.bucket?.take(now: .now()) == false { return .rate }
        guard handling == .asynchronous else { return nil }
        let limit = self.core.limits.maximumBufferedBytesPerConnection
        guard !self.core.load.isFull, self.accountedBytes + bytes <= limit else { return .bytes }
        guard self.core.load.start() else { return .inFlight }
        guard self.core.limiter?.start() ?? true else {
            self.core.load.finished()
            return .concurrency
        }
        return nil
    }

    func run(_ handler: Router.SynchronousHandler, _ frame: Frame) {
        guard let serverContext = self.serverContext else { return }
        let run = self.machine.lastRun
        let request = self.request(frame, body: frame.payload)
        var answer = self.emptyAnswer(to: frame)
        do {
            answer.payload = try handler(request, serverContext)
        } catch {
            (answer.status, answer.payload) = self.verdict(of: error, request, serverContext)
        }
        self.answer(answer, run)
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

    func start(_ handler: @escaping Router.Handler, _ frame: Frame, run: UInt64) {
        guard let serverContext = self.serverContext else { return }
        let request = self.request(frame, body: Self.detached(frame.payload))
        let answer = self.emptyAnswer(to: frame)
        let (completions, core) = (self.completions, self.core)
        let begun = core.limiter == nil ? nil : NIODeadline.now()
        let task = Task {
            let completion = await SessionHandler.completion(of: handler, request, serverContext, answer, run: run)
            core.finished(begun: begun, wasCancelled: Task.isCancelled)
            completions.append(completion)
        }
        self.machine.started(task, serial: frame.serial, run: run)
    }

    private static func completion(
        of handler: Router.Handler,
        _ request: ServerRequest,
        _ serverContext: ServerContext,
        _ emptyAnswer: Frame,
        run: UInt64
    ) async -> CompletionQueue.Completion {
        var completion = CompletionQueue.Completion(
            answer: emptyAnswer,
            run: run,
            requestBytes: request.body.readableBytes
        )
        do {
            completion.answer.payload = try await handler(request, serverContext)
        } catch let error as StatusError {
            (completion.answer.status, completion.answer.payload) = (error.status, error.body)
        } catch {
            completion.answer.status = .unknown
            completion.hasFailed = !Task.isCancelled
            if completion.hasFailed { Self.log(error, request, serverContext) }
        }
        return completion
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
        Self.log(error, request, serverContext)
        return (.unknown, ByteBuffer())
    }

    private static func log(_ error: any Error, _ request: ServerRequest, _ serverContext: ServerContext) {
        serverContext.logger.error(
            "a handler failed",
            metadata: ["type": "\(request.type)", "serial": "\(request.serial)", "error": "\(error)"]
        )
    }

    func takeCompletions() {
        guard self.phase == .open else { return }
        for completion in self.completions.takeAll() {
            let action = self.machine.finished(
                serial: completion.answer.serial,
                run: completion.run,
                bytes: completion.requestBytes
            )
            guard action == .send else { continue }
            if completion.hasFailed { self.machine.statistics.handlerErrors += 1 }
            self.answer(completion.answer, completion.run)
        }
        self.scheduleFlush()
    }

    /// The request is not answered any more.
    func stopped(_ run: UInt64) {
        guard let ready = self.order?.abandon(run) else { return }
        self.emit(ready)
    }
}
