import HHSocket
import NIOCore

/// From a task's start to its completion.
extension ClientCore {
    typealias Attempt = DispatchTable<SocketTask>.Attempt

    func start(_ task: SocketTask) {
        // Cancelled meanwhile: the cancellation is submitted too, and completes it.
        guard task.state == .running else { return }
        let request = task.originalRequest
        let now = self.socket.now
        task.flight.queued = now
        self.observe(task)
        guard !self.isInvalidated else { return self.complete(task, .failure(Self.released)) }
        let deadline = now.advanced(clamping: TimeAmount(request.timeout ?? self.configuration.timeout))
        task.flight.deadline = deadline
        guard self.configuration.interceptors.isEmpty else {
            let key = self.table.enter(task, deadline: deadline)
            task.flight.key = key
            self.intercept(task, key)
            return self.armTimer()
        }
        do throws(SocketError) {
            try self.check(request)
        } catch {
            return self.complete(task, .failure(error))
        }
        let submission = self.table.submit(
            task,
            task.priority,
            bytes: request.body.readableBytes,
            isPatient: self.isPatient(task, request),
            deadline: deadline
        )
        if case .refuse(let refusal) = submission {
            self.refuse(task, self.table.enter(task, deadline: deadline), refusal)
        } else {
            self.go(task, submission)
        }
        self.armTimer()
    }

    /// What is sent for the task: its request, or what interceptors have made of that.
    func request(of task: SocketTask) -> SocketRequest { task.flight.request ?? task.originalRequest }

    /// The next attempt of a call that is in the table.
    func attempt(_ task: SocketTask, _ key: DispatchKey) {
        let request = self.request(of: task)
        let submission = self.table.attempt(
            key,
            task.priority,
            bytes: request.body.readableBytes,
            isPatient: self.isPatient(task, request)
        )
        guard case .refuse(let refusal) = submission else { return self.go(task, submission) }
        self.refuse(task, key, refusal)
    }

    /// Ends an attempt that could not begin.
    private func refuse(_ task: SocketTask, _ key: DispatchKey, _ refusal: DispatchTable<SocketTask>.Refusal) {
        task.flight.key = key
        if let idle = self.table.endAttempt(key) { self.ended(idle, .failure(self.refused(refusal))) }
        if refusal == .offline { self.socket.pullForward() }
    }

    private func go(_ task: SocketTask, _ submission: DispatchTable<SocketTask>.Submission) {
        switch submission {
        case .send(let key, let serial):
            self.send(task, key, serial)
        case .wait(let key):
            task.flight.key = key
            if self.table.link == .offline { self.socket.pullForward() }
        case .refuse:
            break
        }
    }

    /// Whether the call waits for a connection also where none is being made. A retry does.
    private func isPatient(_ task: SocketTask, _ request: SocketRequest) -> Bool {
        guard !self.socket.isClosed else { return false }
        return task.flight.retries > 0 || (request.waitsForConnectivity ?? self.configuration.waitsForConnectivity)
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
        _ = try self.socket.customFields(request.header)
    }

    func send(_ task: SocketTask, _ key: DispatchKey, _ serial: UInt32) {
        task.flight.key = key
        task.flight.attempts += 1
        task.flight.server = self.readyEndpoint
        task.flight.firstByte = nil
        let request = self.request(of: task)
        do throws(SocketError) {
            let frame = Frame(
                type: request.type,
                serial: serial,
                payload: request.body,
                customFields: try self.socket.customFields(request.header)
            )
            if try self.socket.send(frame, task.priority) {
                self.leaves(task, request, serial)
            } else {
                self.table.queued(key)
            }
        } catch {
            self.table.queued(key)
            if let attempt = self.table.endAttempt(key) { self.ended(attempt, .failure(error)) }
        }
    }

    /// The request's first bytes leave. A small one leaves as a whole.
    func leaves(_ task: SocketTask, _ request: SocketRequest, _ serial: UInt32) {
        task.flight.sent = self.socket.now
        let length = request.body.readableBytes
        if length <= Frame.unslicedLength { self.progressed(task, bytesSent: length, of: length, serial) }
    }

    /// So many bytes of the body have left.
    func progressed(_ task: SocketTask, bytesSent: Int, of length: Int, _ serial: UInt32) {
        if task.progressed(bytesSent: bytesSent) { self.callBack(task, .closure { task.updateProgress() }) }
        guard bytesSent == length else { return }
        task.flight.bytesSent += length
        let request = self.request(of: task)
        guard let timeout = request.firstResponseTimeout ?? self.configuration.firstResponseTimeout else { return }
        self.table.expectFirstResponse(
            serial: serial,
            by: self.socket.now.advanced(clamping: TimeAmount(timeout))
        )
        self.armTimer()
    }

    // MARK: Ends

    /// An attempt has ended: the call is sent again, goes back to its interceptors, or completes.
    func ended(_ attempt: Attempt, _ result: Result<SocketResponse, SocketError>) {
        let task = attempt.call
        var result = result
        if case .failure(var error) = result {
            if self.retries(attempt, error) { return self.finishDrained() }
            if task.flight.retries > 0 {
                error.message += "; this was attempt \(attempt.count), and it is the last"
                result = .failure(error)
            }
        } else {
            self.retryBucket?.callWasAnswered()
        }
        if let reply = task.flight.reply {
            task.flight.reply = nil
            let reported = self.honest(result, task)
            // Whatever the interceptors make of it, and whether or not they ask once more.
            if !result.isNotExecuted { task.flight.mayHaveRun = true }
            self.finishDrained()
            return reply.resume(returning: reported)
        }
        self.table.remove(attempt.key)
        self.complete(task, result)
    }

    /// What never left in the last attempt may have run in one before.
    private func honest(
        _ result: Result<SocketResponse, SocketError>,
        _ task: SocketTask
    ) -> Result<SocketResponse, SocketError> {
        guard task.flight.mayHaveRun, case .failure(var error) = result, error.notExecuted else { return result }
        error.delivery = .sentUnknown
        return .failure(error)
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
                using: &self.generator
            )
        else { return false }
        let due = self.socket.now.advanced(clamping: TimeAmount(delay))
        guard due < task.flight.deadline, self.retryBucket?.take() ?? true else { return false }
        task.flight.retries += 1
        task.flight.lastFailure = error
        task.flight.mayHaveRun = task.flight.mayHaveRun || !error.notExecuted
        self.table.backOff(attempt.key, until: due)
        self.observeRetry(task, after: error, in: delay)
        if task.progressStartsOver() { self.callBack(task, .closure { task.updateProgress() }) }
        self.armTimer()
        return true
    }

    /// The time of a call is over.
    func expired(_ attempt: Attempt) {
        self.tellServer(of: attempt)
        // It may be this call alone. If it is not, the link should not be trusted for longer.
        if attempt.phase == .sent { self.socket.suspect(attempt.connection) }
        let error = self.timedOut(attempt)
        self.judge(error, on: attempt.connection)
        self.complete(attempt.call, .failure(error))
    }

    /// The answer to an attempt did not begin in time.
    func answerDidNotBegin(_ attempt: Attempt) {
        self.tellServer(of: attempt)
        self.socket.suspect(attempt.connection)
        let error = self.firstResponseTimedOut(attempt)
        self.judge(error, on: attempt.connection)
        self.ended(attempt, .failure(error))
    }

    func cancel(_ task: SocketTask) {
        var error = SocketError(
            .cancelled,
            message: "the call of type \(task.originalRequest.type) was cancelled",
            endpoint: self.socket.currentEndpoint
        )
        if let key = task.flight.key, let attempt = self.table.remove(key) {
            error.serial = attempt.serial
            error.delivery = attempt.phase == .sent ? .sentUnknown : .notSent
            self.tellServer(of: attempt)
        }
        // A task that is in no table was never started, or is complete, and then this does nothing.
        self.complete(task, .failure(error))
    }

    func cancelAll() {
        for key in self.table.keys { self.cancel(key) }
    }

    func cancelTask(withIdentifier identifier: Int) {
        if let key = self.table.firstKey(where: { $0.taskIdentifier == identifier }) { self.cancel(key) }
    }

    private func cancel(_ key: DispatchKey) {
        guard let task = self.table.call(for: key), task.beginCancelling() else { return }
        self.cancel(task)
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
        frame.customFields = try? self.socket.customFields(request.header)
        self.socket.send(frame, .control, on: attempt.connection)
    }

    /// Completes a task that is in the table no more, or never was.
    func complete(_ task: SocketTask, _ result: Result<SocketResponse, SocketError>) {
        let result = self.honest(result, task)
        let wasObserved = task.flight.queued != nil && task.flight.completed == nil
        if wasObserved {
            task.flight.completed = self.socket.now
            self.observeCompletion(task, result)
        }
        task.flight.key = nil
        self.endInterception(task, result)
        self.finishDrained()
        switch task.finish(result) {
        case nil:
            break
        case .nobody:
            if task.showsProgress { self.callBack(task, .closure { task.updateProgress() }) }
        case .handler:
            self.callBack(task, .work(task))
        case .continuation(let continuation):
            if task.showsProgress { self.callBack(task, .closure { task.updateProgress() }) }
            continuation.resume()
        }
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
        if task.flight.firstByte == nil { task.flight.firstByte = self.socket.now }
        if task.progressed(bytesReceived: arriving.receivedBytes, of: arriving.length) {
            self.callBack(task, .closure { task.updateProgress() })
        }
    }
}

extension Result<SocketResponse, SocketError> {
    /// Whether it is known that the server did not run the request.
    fileprivate var isNotExecuted: Bool {
        if case .failure(let error) = self { error.notExecuted } else { false }
    }
}
