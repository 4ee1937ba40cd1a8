// SPDX-License-Identifier: Apache-2.0
import Dispatch
import HHSocket
import NIOCore

/// The life of a call, from its task's start to its completion.
extension ClientCore {
    typealias Attempt = CallTable.Attempt

    func start(_ task: SocketTask, in turn: inout Turn) {
        if self.isSentOnFastPath(task, from: .running, in: &turn) { return }
        self.begin(task, in: &turn)
    }

    /// Starts a task on the general path, which all streams take.
    func begin(_ task: SocketTask, in turn: inout Turn) {
        // Nil if cancelled meanwhile: the cancellation, which was also submitted, completes the task.
        guard let priority = task.begin() else { return }
        let request = task.originalRequest
        task.flight.queued.comes(at: turn.now)
        self.reporter.accepted(request, &task.flight)
        guard !self.isInvalidated else { return self.complete(task, Self.released, in: &turn) }
        guard !self.isFinishing else { return self.complete(task, Self.invalidated, in: &turn) }
        let isDirect = self.traits.isDirect || request.options.skipsInterceptors
        if isDirect {
            do throws(SocketError) {
                try self.check(request, in: &turn)
                if let stream = task.flight.stream { try self.check(request, for: stream) }
            } catch {
                return self.complete(task, error, in: &turn)
            }
        }
        // Nothing else bounds the number of calls that are in interceptors or wait between attempts.
        guard self.hot.table.hasRoom else { return self.complete(task, self.tooManyCalls(), in: &turn) }
        let deadline = self.deadline(of: request, in: &turn)
        let key = self.hot.table.enter(task, deadline: deadline)
        task.flight.deadline = task.flight.stream == nil ? deadline : self.streamDeadline(of: request, in: &turn)
        task.flight.key = key
        if task.isDispatched { self.dispatched[task.taskIdentifier] = key }
        if isDirect {
            self.attempt(task, key, request, priority, in: &turn)
        } else {
            self.intercept(task, key)
        }
        self.armTimer()
    }

    /// The deadline of a call that starts now.
    func deadline(of request: SocketRequest, in turn: inout Turn) -> NIODeadline {
        let end = turn.now.advanced(
            clamping: request.options.timeout.map { TimeAmount(clamping: $0) } ?? self.traits.timeout
        )
        // A plain request, as most are, has no options to check.
        guard !request.options.isPlain, let deadline = request.options.deadline else { return end }
        return min(end, deadline)
    }

    /// The request that is sent for the task: its own, or the one that interceptors made of it.
    func request(of task: SocketTask) -> SocketRequest { task.flight.request ?? task.originalRequest }

    /// Begins the next attempt of a call that is in the table.
    func attempt(_ task: SocketTask, _ key: DispatchKey, in turn: inout Turn) {
        self.attempt(task, key, self.request(of: task), task.priority, in: &turn)
    }

    private func attempt(
        _ task: SocketTask,
        _ key: DispatchKey,
        _ request: SocketRequest,
        _ priority: FramePriority,
        in turn: inout Turn
    ) {
        self.follow(
            self.hot.table.attempt(
                key,
                priority,
                bytes: request.waitingLength,
                isPatient: self.isPatient(task, request)
            ),
            task,
            key,
            request,
            priority,
            in: &turn
        )
    }

    func follow(
        _ submission: CallTable.Submission,
        _ task: SocketTask,
        _ key: DispatchKey,
        _ request: SocketRequest,
        _ priority: FramePriority,
        in turn: inout Turn
    ) {
        switch submission {
        case .send(_, let serial):
            self.send(task, request, priority, key, serial, in: &turn)
        case .wait:
            if self.hot.table.link == .offline || self.life.isReconnectDeferred { self.reconnectSooner(in: &turn) }
        case .refuse(let refusal):
            if let idle = self.hot.table.endAttempt(key) { self.ended(idle, self.refused(refusal), in: &turn) }
            if refusal == .offline { self.reconnectSooner(in: &turn) }
        }
    }

    /// Whether the call waits for a connection even if none is being made. Retries do, and so do all calls while the
    /// server goes away.
    func isPatient(_ task: SocketTask, _ request: SocketRequest) -> Bool {
        guard self.hot.table.link != .ready, !self.driver.isClosed else { return false }
        return self.hot.table.link == .goingAway || task.flight.retries > 0
            || (request.options.waitsForConnectivity ?? self.configuration.waitsForConnectivity)
    }

    func check(_ request: SocketRequest, in turn: inout Turn) throws(SocketError) {
        guard self.format.isCallType(request.type) else {
            let types = self.format.layout.applicationTypes
            let owner = self.format.isApplicationType(request.type) ? "a push's" : "reserved"
            throw SocketError(
                .invalidArgument,
                message: """
                    type \(request.type) is \(owner); use another one from \(types.lowerBound) to \(types.upperBound)
                    """
            )
        }
        if let body = request.options.cancellationBody,
            body.readableBytes > self.configuration.socket.maximumPayloadLength
        {
            throw SocketError(
                .frameTooLarge,
                message: """
                    a cancellationBody of \(body.readableBytes) bytes is over the limit of \
                    \(self.configuration.socket.maximumPayloadLength) (maximumPayloadLength)
                    """
            )
        }
        // A request that cannot be sent fails without waiting for a connection.
        _ = try self.customFields(of: request)
        if request.options.asksForMetadata { try self.checkMetadata(of: request, in: &turn) }
    }

    func send(
        _ task: SocketTask,
        _ request: SocketRequest,
        _ priority: FramePriority,
        _ key: DispatchKey,
        _ serial: UInt32,
        in turn: inout Turn
    ) {
        task.flight.attempts += 1
        task.flight.firstByte = .init()
        if let stream = task.flight.stream {
            return self.open(stream, task, request, priority, key, serial, in: &turn)
        }
        do throws(SocketError) {
            if let policy = try self.mustDeflate(request, of: task) {
                return self.deflate(task, request, key, policy, in: &turn)
            }
            let sealed = try self.seal(request, of: task, in: &turn)
            task.flight.payloadLength = sealed.type == request.type ? nil : sealed.payload.readableBytes
            let frame = Frame(
                type: sealed.type,
                serial: serial,
                payload: sealed.payload,
                customFields: try self.customFields(of: request)
            )
            if try self.isSentInPieces(frame, priority, key, in: &turn) { return }
            if try self.send(frame, priority, in: &turn) {
                self.leaves(task, request, serial, in: &turn)
            } else {
                self.hot.table.queued(key)
            }
        } catch {
            self.hot.table.queued(key)
            if let attempt = self.hot.table.endAttempt(key) { self.ended(attempt, error, in: &turn) }
        }
    }

    /// Sends a frame on the current connection.
    ///
    /// - Returns: Whether it is being sent already; false if it was queued.
    private func send(_ frame: Frame, _ priority: FramePriority, in turn: inout Turn) throws(SocketError) -> Bool {
        guard self.hot.link != nil, let connection = self.connection else { throw self.driver.notConnected() }
        try self.connector.rules.check(frame)
        return try self.connector.rules.send(frame, priority, on: connection.link, connection.endpoint, in: &turn)
    }

    /// Sends a long request in pieces, between which other frames may be sent, if hello agreed on that.
    private func isSentInPieces(
        _ frame: Frame,
        _ priority: FramePriority,
        _ key: DispatchKey,
        in turn: inout Turn
    ) throws(SocketError) -> Bool {
        guard frame.payload.readableBytes > StreamFrames.maximumPieceLength, frame.customFields == nil,
            self.hot.link != nil, let streams = self.connection?.streams
        else { return false }
        try self.connector.rules.check(frame)
        try streams.checkRoom(for: frame)
        // Until its first piece leaves.
        self.hot.table.queued(key)
        streams.send(frame, priority, in: &turn)
        return true
    }

    func customFields(of request: SocketRequest) throws(SocketError) -> [UInt8]? {
        request.options.isPlain
            ? try self.traits.customFields.get() : try self.connector.rules.customFields(request.options.header)
    }

    /// Records that the request's first bytes are being sent. A small request is sent as a whole.
    func leaves(_ task: SocketTask, _ request: SocketRequest, _ serial: UInt32, in turn: inout Turn) {
        task.flight.sent.comes(at: turn.now)
        let length = task.flight.payloadLength ?? request.body.readableBytes
        if length <= Frame.unslicedLength { self.progressed(task, payloadBytes: length, request, serial, in: &turn) }
    }

    /// Records the number of bytes of the payload that have been sent.
    func progressed(
        _ task: SocketTask,
        payloadBytes: Int,
        _ request: SocketRequest,
        _ serial: UInt32,
        in turn: inout Turn
    ) {
        let length = request.body.readableBytes
        let isWhole = payloadBytes == task.flight.payloadLength ?? length
        // If the payload contains more than the body, the body's last byte counts as sent only with the whole payload.
        let bytesSent = isWhole ? length : min(payloadBytes, max(0, length - 1))
        if task.progressed(bytesSent: bytesSent) { self.showProgress(of: task, in: &turn) }
        guard isWhole else { return }
        task.flight.bytesSent += length
        // A server may begin its answer before it has received the whole request.
        guard let timeout = request.options.firstResponseTimeout ?? self.configuration.firstResponseTimeout,
            !task.flight.firstByte.hasCome, task.flight.stream == nil
        else { return }
        self.hot.table.expectFirstResponse(
            serial: serial,
            by: turn.now.advanced(clamping: TimeAmount(clamping: timeout))
        )
        self.armTimer()
    }

    // MARK: Ends

    /// Handles a failed attempt: sends the call again, passes the error to its interceptors, or completes the call.
    func ended(_ attempt: Attempt, _ error: SocketError, in turn: inout Turn) {
        let task = attempt.call
        self.noteOrigin(of: attempt)
        var error = error
        if self.isSentAgain(attempt, error, in: &turn) { return self.finishDrained(in: &turn) }
        if self.retries(attempt, error, in: &turn) { return self.finishDrained(in: &turn) }
        if task.flight.retries > 0 { error.message += "; this was attempt \(attempt.count), and it is the last" }
        if let reply = task.flight.reply {
            task.flight.reply = nil
            let reported = self.withActualDelivery(error, task)
            // Even if the interceptors change the error, and whether or not they make the call again.
            if !error.notExecuted { task.flight.mayHaveRun = true }
            task.flight.stream?.flight.lastError = reported
            self.finishDrained(in: &turn)
            return reply.resume(returning: .failure(reported))
        }
        self.hot.table.remove(attempt.key)
        self.complete(task, error, in: &turn)
    }

    /// Handles the answer that ended an attempt: passes it to the call's interceptors, or completes the call.
    func ended(_ task: SocketTask, _ response: SocketResponse, in turn: inout Turn) {
        self.hot.retryBucket?.callWasAnswered()
        if !self.traits.isDirect, let reply = task.flight.reply {
            task.flight.reply = nil
            task.flight.mayHaveRun = true
            self.finishDrained(in: &turn)
            return reply.resume(returning: .success(response))
        }
        // A call that skips the interceptors is still in the table.
        if !self.traits.isDirect, let key = task.flight.key { self.hot.table.remove(key) }
        self.complete(task, response, in: &turn)
    }

    /// Corrects the error's delivery: a request that was not sent in the last attempt may have run in an earlier one.
    private func withActualDelivery(_ error: SocketError, _ task: SocketTask) -> SocketError {
        guard task.flight.mayHaveRun, error.notExecuted else { return error }
        var error = error
        error.delivery = .sentUnknown
        return error
    }

    private func retries(_ attempt: Attempt, _ error: SocketError, in turn: inout Turn) -> Bool {
        let task = attempt.call
        let request = self.request(of: task)
        if let stream = task.flight.stream, !stream.flight.mayOpenAgain { return false }
        guard let policy = request.options.retryPolicy ?? self.configuration.retryPolicy, !self.driver.isClosed,
            let delay = policy.delay(
                after: error,
                attempts: attempt.count,
                retries: task.flight.retries,
                isIdempotent: request.options.isIdempotent,
                hasKey: request.options.idempotencyKey != nil,
                using: &self.generator
            )
        else { return false }
        let due = turn.now.advanced(clamping: TimeAmount(clamping: delay))
        guard due < task.flight.deadline, self.hot.retryBucket?.take() ?? true else { return false }
        task.flight.retries += 1
        task.flight.lastFailure = error
        task.flight.mayHaveRun = task.flight.mayHaveRun || !error.notExecuted
        self.hot.table.backOff(attempt.key, until: due)
        self.reporter.retries(task.originalRequest.type, task.flight, after: error, in: delay)
        if task.progressStartsOver() { self.showProgress(of: task, in: &turn) }
        self.armTimer()
        return true
    }

    /// Notes where the attempt was sent, before the table forgets it.
    func noteOrigin(of attempt: Attempt) {
        if attempt.serial != nil { attempt.call.flight.origin = self.origin(of: attempt.connection) }
    }

    /// Completes a call that timed out.
    func expired(_ attempt: Attempt, in turn: inout Turn) {
        self.noteOrigin(of: attempt)
        self.sendCancel(of: attempt, in: &turn)
        if let stream = attempt.call.flight.stream { return self.expired(attempt, stream, in: &turn) }
        self.giveUpAnswer(to: attempt, in: &turn)
        // Perhaps only this call is affected. If not, the link should no longer be trusted.
        if attempt.phase == .sent { self.driver.perform(.suspect(attempt.connection), in: &turn) }
        let error = self.timedOut(attempt)
        self.judge(error, on: attempt.connection, in: &turn)
        self.complete(attempt.call, error, in: &turn)
    }

    /// Abandons an incomplete answer: if its length is wrong, it withholds later ones. Only formats with separators
    /// allow that.
    private func giveUpAnswer(to attempt: Attempt, in turn: inout Turn) {
        guard self.format.resynchronises, let serial = attempt.serial else { return }
        self.connection(attempt.connection)?.link.giveUp(in: &turn) { $0.serial == serial }
    }

    /// Ends an attempt whose answer did not begin in time.
    func answerDidNotBegin(_ attempt: Attempt, in turn: inout Turn) {
        self.sendCancel(of: attempt, in: &turn)
        self.driver.perform(.suspect(attempt.connection), in: &turn)
        let error = self.firstResponseTimedOut(attempt)
        self.judge(error, on: attempt.connection, in: &turn)
        self.ended(attempt, error, in: &turn)
    }

    func cancel(_ task: SocketTask, in turn: inout Turn) {
        // A completed task must not be written to, since other threads read it.
        guard task.state != .completed else { return }
        var error = SocketError(
            .cancelled,
            message: "the call of type \(task.originalRequest.type) was cancelled",
            endpoint: self.driver.currentEndpoint
        )
        if let key = task.flight.key, let attempt = self.hot.table.remove(key) {
            self.noteOrigin(of: attempt)
            if attempt.serial != nil { error.endpoint = self.endpoint(of: attempt.connection) }
            error.serial = attempt.serial
            error.delivery = attempt.phase == .sent ? .sentUnknown : .notSent
            self.sendCancel(of: attempt, in: &turn)
        }
        // A task that is not in the table was never started, or is complete; then this has no effect.
        self.complete(task, error, in: &turn)
    }

    func cancelAll(in turn: inout Turn) {
        for key in self.hot.table.keys { self.cancel(key, in: &turn) }
    }

    func cancelTask(withIdentifier identifier: Int, in turn: inout Turn) {
        let key = self.dispatched[identifier] ?? self.hot.table.key { $0.identifier == identifier }
        if let key { self.cancel(key, in: &turn) }
    }

    private func cancel(_ key: DispatchKey, in turn: inout Turn) {
        guard let task = self.hot.table.call(for: key), task.beginCancelling() else { return }
        self.cancel(task, in: &turn)
    }

    /// Removes the call from those that can be cancelled by their identifiers.
    @inline(__always)
    func forgetDispatched(_ task: SocketTask) {
        if task.isDispatched { self.dispatched[task.taskIdentifier] = nil }
    }

    func reprioritize(_ task: SocketTask) {
        if let key = task.flight.key { self.hot.table.setPriority(task.priority, key) }
    }

    /// Asks the server to stop working on an abandoned call.
    func sendCancel(of attempt: Attempt, in turn: inout Turn) {
        if let stream = attempt.call.flight.stream {
            self.connection(stream.flight.connection)?.streams?.drop(stream, in: &turn)
            return
        }
        if let serial = attempt.serial, let streams = self.connection(attempt.connection)?.streams {
            // A request whose sending has begun is cancelled below.
            _ = streams.dropPlain(serial: serial, in: &turn)
        }
        guard attempt.phase == .sent, let serial = attempt.serial, var frame = self.format.cancel(serial: serial)
        else { return }
        let request = self.request(of: attempt.call)
        if let body = request.options.cancellationBody { frame.payload = body }
        frame.customFields = try? self.customFields(of: request)
        // If it cannot be sent, the connection is stuck, and the server will notice that.
        self.connection(attempt.connection)?.link.send(frame, .control, in: &turn)
    }

    /// Completes a task that is no longer in the table, or never was.
    func complete(_ task: SocketTask, _ error: SocketError, in turn: inout Turn) {
        let error = self.withActualDelivery(error, task)
        self.willComplete(task, .failure(error), in: &turn)
        let ending = task.finish(error, takingHandler: self.callsBackHere(task))
        if case .takenHandler(let handler) = ending {
            return turn.run(CompletedCall(task: task, handler: handler, result: .failure(error)))
        }
        self.deliver(to: task, ending, in: &turn)
    }

    private func complete(_ task: SocketTask, _ response: SocketResponse, in turn: inout Turn) {
        self.willComplete(task, .success(response), in: &turn)
        let ending = task.finish(response, takingHandler: self.callsBackHere(task))
        if case .takenHandler(let handler) = ending {
            return turn.run(CompletedCall(task: task, handler: handler, result: .success(response)))
        }
        self.deliver(to: task, ending, in: &turn)
    }

    /// Whether the task's handler runs on the socket thread.
    private func callsBackHere(_ task: SocketTask) -> Bool { self.traits.callsBackHere && task.callbackQueue == nil }

    /// Completes the call with the result of its interceptors.
    func complete(_ task: SocketTask, _ result: Result<SocketResponse, SocketError>, in turn: inout Turn) {
        switch result {
        case .success(let response): self.complete(task, response, in: &turn)
        case .failure(let error): self.complete(task, error, in: &turn)
        }
    }

    @inline(__always)
    private func willComplete(
        _ task: SocketTask,
        _ result: @autoclosure () -> Result<SocketResponse, SocketError>,
        in turn: inout Turn
    ) {
        if task.flight.queued.hasCome, !task.flight.completed.hasCome {
            task.flight.completed.comes(at: turn.now)
            if self.traits.isObserved {
                self.reporter.completed(task.originalRequest.type, &task.flight, with: result())
            }
        }
        task.flight.key = nil
        self.forgetDispatched(task)
        if !self.traits.isDirect { self.endInterception(task, result(), in: &turn) }
        self.finishDrained(in: &turn)
    }

    private func deliver(to task: SocketTask, _ ending: SocketTask.Ending, in turn: inout Turn) {
        switch ending {
        case .none, .takenHandler, .unheard(showsProgress: false):
            break
        case .handler:
            self.callBack(task, .work(task), in: &turn)
        case .unheard(showsProgress: true):
            self.showProgress(of: task, in: &turn)
        case .waiter(let waiter, let showsProgress):
            if showsProgress { self.showProgress(of: task, in: &turn) }
            turn.resume(waiter)
        case .stream(let stream, let showsProgress):
            if showsProgress { self.showProgress(of: task, in: &turn) }
            self.leaveStreamLine(stream)
            stream.ended(task.takeResult()) { turn.resume($0) }
        }
    }

    func showProgress(of task: SocketTask, in turn: inout Turn) {
        self.callBack(task, .closure { task.updateProgress() }, in: &turn)
    }

    /// Runs `callback` where the task's handler runs.
    private func callBack(_ task: SocketTask, _ callback: SocketCallback, in turn: inout Turn) {
        turn.callBack(callback, on: task.callbackQueue)
    }

    /// Whether a call waits for the frame that is arriving.
    func isAwaited(_ arriving: FrameDecoder.Arriving) -> Bool {
        !self.isPush(arriving) && !self.format.isControlType(arriving.type)
            && self.hot.table.isAwaited(serial: arriving.serial)
    }

    private func isPush(_ arriving: FrameDecoder.Arriving) -> Bool {
        arriving.isMarkedAsPush || self.format.isPush(type: arriving.type, serial: arriving.serial)
    }

    /// Records that part of a call's answer has been received.
    ///
    /// - Parameter gathered: The number of bytes of earlier pieces.
    func isReceiving(_ arriving: FrameDecoder.Arriving, after gathered: Int = 0, in turn: inout Turn) {
        guard !self.isPush(arriving) else { return }
        // The length of a payload in pieces is known once the last piece begins.
        let isLast = arriving.type & self.traits.flagMask & FrameType.continuesFlag == 0
        self.isReceiving(
            arriving.serial,
            gathered + arriving.receivedBytes,
            of: isLast ? gathered + arriving.length : nil,
            in: &turn
        )
    }

    /// Records that a piece of an answer has been received, and others follow.
    ///
    /// - Parameter gathered: The number of bytes of the pieces so far.
    func pieceCame(serial: UInt32, of gathered: Int, in turn: inout Turn) {
        self.isReceiving(serial, gathered, of: nil, in: &turn)
    }

    private func isReceiving(_ serial: UInt32, _ received: Int, of expected: Int?, in turn: inout Turn) {
        guard let task = self.hot.table.responseBegins(serial: serial) else { return }
        task.flight.firstByte.comesFirst(at: turn.now)
        if task.progressed(bytesReceived: received, of: expected) { self.showProgress(of: task, in: &turn) }
    }
}

extension Turn {
    /// Runs `callback` on a queue; nil for the client's.
    mutating func callBack(_ callback: SocketCallback, on queue: CallbackQueue?) {
        switch queue?.target {
        case nil: self.callBack(callback)
        case .queue(let queue)?: queue.async { callback.run() }
        case .socketThread?: self.run(callback)
        }
    }
}

/// The handler of a completed call, which runs when no state is being accessed. Keeps the task until then, so that weak
/// references to it stay valid.
struct CompletedCall: TurnHandler {
    let task: SocketTask
    let handler: SocketTask.Handler
    let result: Result<SocketResponse, SocketError>

    static func run(at place: UnsafeMutableRawPointer) {
        let call = place.takeHandler(Self.self)
        call.handler(call.result)
        withExtendedLifetime(call.task) {}
    }
}
