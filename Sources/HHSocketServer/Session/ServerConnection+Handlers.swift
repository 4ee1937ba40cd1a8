// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// The handling of requests, up to their answers.
extension ServerConnection {
    /// A request before its body is examined.
    struct ReceivedRequest {
        /// The frame without its envelope.
        var frame: Frame
        var extras: ServerContext.Extras?
        /// The length of the received payload in bytes.
        let length: Int
        var isCompressed = false
        /// Whether a handler has its type.
        var hasHandler = false

        /// The memory of a request in flight, in bytes.
        var cost: Int {
            ConnectionCost.request + self.frame.payload.storageCapacity + (self.extras?.memory ?? 0)
        }
    }

    /// Returns the reason why a valid request is not begun; nil if it is begun. A request that is begun and
    /// asynchronous holds a place from here on.
    func refusal(
        of request: SessionMachine<Task<Void, Never>>.Admission,
        _ arrival: ReceivedRequest,
        _ rules: RouteRules,
        _ kind: StreamKind?,
        _ place: inout RequestPlace?,
        now: NIODeadline
    ) -> SessionMachine<Task<Void, Never>>.Refusal? {
        if self.core.hello.isRequired, self.greeting.agreement == nil { return .noHello }
        guard self.takeRequest(now: now) else { return .rate }
        guard let session = self.hot.serverContext?.session else { return .inFlight }
        if let status = rules.refusal(of: self.header(of: arrival), session) { return .admission(status) }
        if arrival.isCompressed, self.greeting.isStranger { return .compression }
        if rules.excludes(length: arrival.frame.payload.readableBytes, isCompressed: arrival.isCompressed) {
            return .bodyLength
        }
        if let deadline = arrival.extras?.deadline, deadline <= now { return .deadline }
        if let kind, let refusal = self.refusal(toOpen: kind, arrival) { return refusal }
        guard request.isAsynchronous else { return nil }
        guard self.load.hasRoom(for: arrival.length) else { return .bytes }
        do throws(RequestPlace.Refusal) {
            place = try RequestPlace(self.core, self.load, rules, session)
            return nil
        } catch {
            return error
        }
    }

    private func header(of arrival: ReceivedRequest) -> RequestHeader {
        RequestHeader(
            type: arrival.frame.type,
            serial: arrival.frame.serial,
            length: arrival.frame.payload.readableBytes,
            isCompressed: arrival.isCompressed,
            fields: self.listener.format.header(of: arrival.frame, in: .request),
            hasHandler: arrival.hasHandler,
            extras: arrival.extras
        )
    }

    /// Notifies the observers that a request is answered without a handler.
    func refused(_ arrival: ReceivedRequest, _ rules: RouteRules, _ status: Status) {
        guard let session = self.hot.serverContext?.session else { return }
        rules.refused(self.header(of: arrival), status, session)
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
        _ arrival: ReceivedRequest,
        _ place: RequestPlace,
        cost: Int,
        run: UInt64,
        exchange: StreamExchange? = nil,
        now: NIODeadline
    ) {
        guard let session = self.hot.serverContext?.session else { return }
        let frame = arrival.frame
        var context = ServerContext(session: session, extras: arrival.extras)
        if let exchange { context[ServedStream.self] = exchange }
        let work = HandlerRun(
            handler: handler,
            executor: executor,
            request: self.request(frame, body: frame.payload),
            requestCost: cost,
            isCompressed: arrival.isCompressed,
            hasHandler: arrival.hasHandler,
            context: context,
            emptyAnswer: self.emptyAnswer(to: frame),
            number: run,
            agreement: self.greeting.agreement,
            load: self.load,
            core: self.core,
            counters: self.loop.counters,
            place: place,
            exchange: exchange
        )
        if executor == .connection { self.hot.startedHere += 1 }
        let (completions, load) = (self.completions, self.load)
        let task = self.task(on: executor) {
            let completion = await work.run()
            // The result will not be taken.
            if !completions.append(completion) { load.held(-completion.requestCost - completion.answerCost) }
        }
        self.hot.machine.started(task, serial: frame.serial, run: run)
        guard var deadline = arrival.extras?.deadline ?? place.rules.timeout.map({ now.advanced(clamping: $0) }) else {
            return
        }
        var isOurs = arrival.extras?.deadline == nil
        if !isOurs, let timeout = place.rules.timeout, now.advanced(clamping: timeout) < deadline {
            deadline = now.advanced(clamping: timeout)
            isOurs = true
        }
        self.deadlines[run] = self.loop.socketLoop.setTimer(deadline) { [answer = work.emptyAnswer, isOurs] in
            self.expire(run: run, answer: answer, isOurs: isOurs, in: &$0)
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

    /// Ends a request whose answer is useless to the client or that exceeds the server's timeout.
    private func expire(run: UInt64, answer: Frame, isOurs: Bool, in turn: inout Turn) {
        self.deadlines[run] = nil
        guard self.hot.phase == .open,
            let expired = self.hot.machine.expire(serial: answer.serial, run: run, isOurs: isOurs)
        else { return }
        var answer = answer
        answer.status = .deadlineExceeded
        // The handler of a stream is given the reason before its task is cancelled.
        let isStream = self.expireStream(run: run, in: &turn)
        expired.work?.cancel()
        if !isStream { self.answer(answer, run, in: &turn) }
        self.takeStatistics()
        self.finishIfDone(in: &turn)
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
            if self.answerStream(completion.answer, run: completion.run, in: &turn) { continue }
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

    /// Cleans up a request that will not be answered.
    func stopped(_ run: UInt64, in turn: inout Turn) {
        self.removeDeadline(of: run)
        guard let ready = self.line.order?.abandon(run) else { return }
        self.emit(ready, in: &turn)
        self.checkOrder(in: &turn)
    }
}
