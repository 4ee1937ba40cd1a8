import HHSocket
import NIOCore

/// From a task's start to its completion.
extension ClientCore {
    typealias Attempt = DispatchTable<SocketTask>.Attempt

    func start(_ task: SocketTask) {
        if self.leavesAtOnce(task, from: .running) { return }
        // Cancelled meanwhile: the cancellation is submitted too, and completes it.
        guard let priority = task.begin() else { return }
        let request = task.originalRequest
        task.flight.queued.comes(at: self.socket.now)
        self.observe(task)
        guard !self.isInvalidated else { return self.complete(task, Self.released) }
        guard !self.isFinishing else { return self.complete(task, Self.invalidated) }
        let isDirect = self.isDirect || request.skipsInterceptors
        if isDirect {
            do throws(SocketError) {
                try self.check(request)
            } catch {
                return self.complete(task, error)
            }
        }
        // Interceptors, and waits between attempts, are bounded by nothing else.
        guard self.table.hasRoom else { return self.complete(task, self.tooManyCalls()) }
        let deadline = self.deadline(of: request)
        let key = self.table.enter(task, deadline: deadline)
        task.flight.deadline = deadline
        task.flight.key = key
        if task.isDispatched { self.dispatched[task.taskIdentifier] = key }
        if isDirect {
            self.attempt(task, key, request, priority)
        } else {
            self.intercept(task, key)
        }
        self.armTimer()
    }

    /// Starts a task here and now, where it need not be submitted. Any thread; false where it must be.
    func startAtOnce(_ task: SocketTask) -> Bool {
        self.isPlain && self.socket.isDelivering && self.leavesAtOnce(task, from: .suspended)
    }

    /// Sends the request of a task in this state, if it can leave with the next flush: nothing stands between it and the
    /// wire, and nothing can go wrong. Nearly all do.
    private func leavesAtOnce(_ task: SocketTask, from state: SocketTask.State) -> Bool {
        let length = task.originalRequest.body.readableBytes
        guard self.isPlain, length <= self.largestPlainBody, self.socket.canSendAtOnce(length: length),
            self.table.canSend, task.originalRequest.isPlain,
            self.format.isApplicationType(task.originalRequest.type), task.leaves(from: state, bytesSent: length)
        else { return false }
        let deadline = self.deadline(of: task.originalRequest)
        let (key, serial) = self.table.enterSent(task, deadline: deadline)
        task.flight.leavesAtOnce(key, at: self.socket.now, deadline, length)
        if task.isDispatched { self.dispatched[task.taskIdentifier] = key }
        self.socket.sendAtOnce(type: task.originalRequest.type, serial: serial, task.originalRequest.body)
        if deadline < self.timerFires { self.armTimer() }
        return true
    }

    /// What is sent for the task: its request, or what interceptors have made of that.
    func request(of task: SocketTask) -> SocketRequest { task.flight.request ?? task.originalRequest }

    /// The next attempt of a call that is in the table.
    func attempt(_ task: SocketTask, _ key: DispatchKey) {
        self.attempt(task, key, self.request(of: task), task.priority)
    }

    private func attempt(_ task: SocketTask, _ key: DispatchKey, _ request: SocketRequest, _ priority: FramePriority) {
        self.follow(
            self.table.attempt(
                key,
                priority,
                bytes: request.waitingLength,
                isPatient: self.isPatient(task, request)
            ),
            task,
            key,
            request,
            priority
        )
    }

    func follow(
        _ submission: DispatchTable<SocketTask>.Submission,
        _ task: SocketTask,
        _ key: DispatchKey,
        _ request: SocketRequest,
        _ priority: FramePriority
    ) {
        switch submission {
        case .send(_, let serial):
            self.send(task, request, priority, key, serial)
        case .wait:
            if self.table.link == .offline || self.isPutOff { self.pullForward() }
        case .refuse(let refusal):
            if let idle = self.table.endAttempt(key) { self.ended(idle, self.refused(refusal)) }
            if refusal == .offline { self.pullForward() }
        }
    }

    /// Whether the call waits for a connection also where none is being made. A retry does, and so does who is kept from a
    /// connection that is left.
    private func isPatient(_ task: SocketTask, _ request: SocketRequest) -> Bool {
        guard self.table.link != .ready, !self.socket.isClosed else { return false }
        return self.table.link == .leaving || task.flight.retries > 0
            || (request.waitsForConnectivity ?? self.configuration.waitsForConnectivity)
    }

    func check(_ request: SocketRequest) throws(SocketError) {
        guard self.format.isApplicationType(request.type) else {
            let types = self.format.layout.applicationTypes
            throw SocketError(
                .invalidArgument,
                message:
                    "type \(request.type) is reserved; use another one from \(types.lowerBound) to \(types.upperBound)"
            )
        }
        if let body = request.cancellationBody, body.readableBytes > self.socket.maximumPayloadLength {
            throw SocketError(
                .frameTooLarge,
                message: """
                    a cancellationBody of \(body.readableBytes) bytes is over the limit of \
                    \(self.socket.maximumPayloadLength) (maximumPayloadLength)
                    """
            )
        }
        // What cannot be sent need not wait for a connection.
        _ = try self.customFields(of: request)
        if request.asksForMetadata { try self.checkMetadata(of: request) }
    }

    func send(
        _ task: SocketTask,
        _ request: SocketRequest,
        _ priority: FramePriority,
        _ key: DispatchKey,
        _ serial: UInt32
    ) {
        task.flight.attempts += 1
        task.flight.firstByte = .init()
        do throws(SocketError) {
            if let policy = try self.mustDeflate(request, of: task) { return self.deflate(task, request, key, policy) }
            let sealed = try self.seal(request, of: task)
            task.flight.payloadLength = sealed.type == request.type ? nil : sealed.payload.readableBytes
            let frame = Frame(
                type: sealed.type,
                serial: serial,
                payload: sealed.payload,
                customFields: try self.customFields(of: request)
            )
            if try self.socket.send(frame, priority) {
                self.leaves(task, request, serial)
            } else {
                self.table.queued(key)
            }
        } catch {
            self.table.queued(key)
            if let attempt = self.table.endAttempt(key) { self.ended(attempt, error) }
        }
    }

    private func customFields(of request: SocketRequest) throws(SocketError) -> [UInt8]? {
        request.isPlain ? try self.customFields.get() : try self.socket.customFields(request.header)
    }

    /// The request's first bytes leave. A small one leaves as a whole.
    func leaves(_ task: SocketTask, _ request: SocketRequest, _ serial: UInt32) {
        task.flight.sent.comes(at: self.socket.now)
        let length = task.flight.payloadLength ?? request.body.readableBytes
        if length <= Frame.unslicedLength { self.progressed(task, payloadBytes: length, request, serial) }
    }

    /// So many bytes of the payload have left.
    func progressed(_ task: SocketTask, payloadBytes: Int, _ request: SocketRequest, _ serial: UInt32) {
        let length = request.body.readableBytes
        let isWhole = payloadBytes == task.flight.payloadLength ?? length
        // Where the payload is not the body alone, the rest of the body is said to have left when all of it has.
        let bytesSent = isWhole ? length : min(payloadBytes, max(0, length - 1))
        if task.progressed(bytesSent: bytesSent) { self.showProgress(of: task) }
        guard isWhole else { return }
        task.flight.bytesSent += length
        // A server may begin its answer before the request has come whole.
        guard let timeout = request.firstResponseTimeout ?? self.configuration.firstResponseTimeout,
            !task.flight.firstByte.hasCome
        else { return }
        self.table.expectFirstResponse(
            serial: serial,
            by: self.socket.now.advanced(clamping: TimeAmount(clamping: timeout))
        )
        self.armTimer()
    }

    // MARK: Ends

    /// An attempt has failed: the call is sent again, goes back to its interceptors, or completes.
    func ended(_ attempt: Attempt, _ error: SocketError) {
        let task = attempt.call
        self.noteOrigin(of: attempt)
        var error = error
        if self.isSentAgain(attempt, error) { return self.finishDrained() }
        if self.retries(attempt, error) { return self.finishDrained() }
        if task.flight.retries > 0 { error.message += "; this was attempt \(attempt.count), and it is the last" }
        if let reply = task.flight.reply {
            task.flight.reply = nil
            let reported = self.honest(error, task)
            // Whatever the interceptors make of it, and whether or not they ask once more.
            if !error.notExecuted { task.flight.mayHaveRun = true }
            self.finishDrained()
            return reply.resume(returning: .failure(reported))
        }
        self.table.remove(attempt.key)
        self.complete(task, error)
    }

    /// An attempt has been answered, and is not under way any more: the call goes back to its interceptors, or is out of
    /// the table and completes.
    func ended(_ task: SocketTask, _ response: SocketResponse) {
        self.retryBucket?.callWasAnswered()
        if !self.isDirect, let reply = task.flight.reply {
            task.flight.reply = nil
            task.flight.mayHaveRun = true
            self.finishDrained()
            return reply.resume(returning: .success(response))
        }
        // A call that passes by the interceptors is in the table still.
        if !self.isDirect, let key = task.flight.key { self.table.remove(key) }
        self.complete(task, response)
    }

    /// What never left in the last attempt may have run in one before.
    private func honest(_ error: SocketError, _ task: SocketTask) -> SocketError {
        guard task.flight.mayHaveRun, error.notExecuted else { return error }
        var error = error
        error.delivery = .sentUnknown
        return error
    }

    private func retries(_ attempt: Attempt, _ error: SocketError) -> Bool {
        let task = attempt.call
        let request = self.request(of: task)
        guard let policy = request.retryPolicy ?? self.configuration.retryPolicy, !self.socket.isClosed,
            let delay = policy.delay(
                after: error,
                attempts: attempt.count,
                retries: task.flight.retries,
                isIdempotent: request.isIdempotent,
                hasKey: request.idempotencyKey != nil,
                using: &self.generator
            )
        else { return false }
        let due = self.socket.now.advanced(clamping: TimeAmount(clamping: delay))
        guard due < task.flight.deadline, self.retryBucket?.take() ?? true else { return false }
        task.flight.retries += 1
        task.flight.lastFailure = error
        task.flight.mayHaveRun = task.flight.mayHaveRun || !error.notExecuted
        self.table.backOff(attempt.key, until: due)
        self.observeRetry(task, after: error, in: delay)
        if task.progressStartsOver() { self.showProgress(of: task) }
        self.armTimer()
        return true
    }

    /// Where the attempt went, before that is forgotten.
    private func noteOrigin(of attempt: Attempt) {
        if attempt.serial != nil { attempt.call.flight.origin = self.origin(of: attempt.connection) }
    }

    /// The time of a call is over.
    func expired(_ attempt: Attempt) {
        self.noteOrigin(of: attempt)
        self.tellServer(of: attempt)
        // It may be this call alone. If it is not, the link should not be trusted for longer.
        if attempt.phase == .sent { self.socket.suspect(attempt.connection) }
        let error = self.timedOut(attempt)
        self.judge(error, on: attempt.connection)
        self.complete(attempt.call, error)
    }

    /// The answer to an attempt did not begin in time.
    func answerDidNotBegin(_ attempt: Attempt) {
        self.tellServer(of: attempt)
        self.socket.suspect(attempt.connection)
        let error = self.firstResponseTimedOut(attempt)
        self.judge(error, on: attempt.connection)
        self.ended(attempt, error)
    }

    func cancel(_ task: SocketTask) {
        // Complete by now: nothing of it may be written any more, for other threads read it.
        guard task.state != .completed else { return }
        var error = SocketError(
            .cancelled,
            message: "the call of type \(task.originalRequest.type) was cancelled",
            endpoint: self.socket.currentEndpoint
        )
        if let key = task.flight.key, let attempt = self.table.remove(key) {
            self.noteOrigin(of: attempt)
            if attempt.serial != nil { error.endpoint = self.endpoint(of: attempt.connection) }
            error.serial = attempt.serial
            error.delivery = attempt.phase == .sent ? .sentUnknown : .notSent
            self.tellServer(of: attempt)
        }
        // A task that is in no table was never started, or is complete, and then this does nothing.
        self.complete(task, error)
    }

    func cancelAll() {
        for key in self.table.keys { self.cancel(key) }
    }

    func cancelTask(withIdentifier identifier: Int) {
        if let key = self.dispatched[identifier] { self.cancel(key) }
    }

    private func cancel(_ key: DispatchKey) {
        guard let task = self.table.call(for: key), task.beginCancelling() else { return }
        self.cancel(task)
    }

    /// The call can be cancelled by its identifier no more.
    @inline(__always)
    func forgetDispatched(_ task: SocketTask) {
        if task.isDispatched { self.dispatched[task.taskIdentifier] = nil }
    }

    func reprioritize(_ task: SocketTask) {
        if let key = task.flight.key { self.table.setPriority(task.priority, key) }
    }

    /// The server should stop working on a call that nobody waits for any more.
    func tellServer(of attempt: Attempt) {
        guard attempt.phase == .sent, let serial = attempt.serial, var frame = self.format.cancel(serial: serial)
        else { return }
        let request = self.request(of: attempt.call)
        if let body = request.cancellationBody { frame.payload = body }
        frame.customFields = try? self.customFields(of: request)
        self.socket.send(frame, .control, on: attempt.connection)
    }

    /// Completes a task that is in the table no more, or never was.
    func complete(_ task: SocketTask, _ error: SocketError) {
        let error = self.honest(error, task)
        self.willComplete(task, .failure(error))
        let ending = task.finish(error, takingHandler: self.callsBackHere(task))
        if case .takenHandler(let handler) = ending { return handler(.failure(error)) }
        self.tell(task, ending)
    }

    private func complete(_ task: SocketTask, _ response: SocketResponse) {
        self.willComplete(task, .success(response))
        let ending = task.finish(response, takingHandler: self.callsBackHere(task))
        if case .takenHandler(let handler) = ending { return handler(.success(response)) }
        self.tell(task, ending)
    }

    /// Whether the task's handler runs on this thread, as soon as there is something to tell.
    private func callsBackHere(_ task: SocketTask) -> Bool { self.callsBackHere && task.callbackQueue == nil }

    /// The same, with what interceptors made of it.
    func complete(_ task: SocketTask, _ result: Result<SocketResponse, SocketError>) {
        switch result {
        case .success(let response): self.complete(task, response)
        case .failure(let error): self.complete(task, error)
        }
    }

    @inline(__always)
    private func willComplete(_ task: SocketTask, _ result: @autoclosure () -> Result<SocketResponse, SocketError>) {
        if task.flight.queued.hasCome, !task.flight.completed.hasCome {
            task.flight.completed.comes(at: self.socket.now)
            if self.isObserved { self.observeCompletion(task, result()) }
        }
        task.flight.key = nil
        self.forgetDispatched(task)
        if !self.isDirect { self.endInterception(task, result()) }
        self.finishDrained()
    }

    private func tell(_ task: SocketTask, _ ending: SocketTask.Ending) {
        switch ending {
        case .none, .takenHandler, .unheard(showsProgress: false):
            break
        case .handler:
            self.callBack(task, .work(task))
        case .unheard(showsProgress: true):
            self.showProgress(of: task)
        case .continuation(let continuation, let showsProgress):
            if showsProgress { self.showProgress(of: task) }
            self.socket.resume(continuation)
        }
    }

    func showProgress(of task: SocketTask) {
        self.callBack(task, .closure { task.updateProgress() })
    }

    /// Has `callback` run where the task's handler does.
    private func callBack(_ task: SocketTask, _ callback: SocketCallback) {
        if let queue = task.callbackQueue {
            queue.run { callback.run() }
        } else {
            self.socket.callBack(callback)
        }
    }

    /// So much of a call's answer has come.
    func isReceiving(_ arriving: FrameDecoder.Arriving) {
        guard !self.format.isPush(serial: arriving.serial),
            let task = self.table.responseBegins(serial: arriving.serial)
        else { return }
        task.flight.firstByte.comesFirst(at: self.socket.now)
        if task.progressed(bytesReceived: arriving.receivedBytes, of: arriving.length) { self.showProgress(of: task) }
    }
}
