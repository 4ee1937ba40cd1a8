// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// The fast paths of most calls, alongside the general path in ``ClientCore``.
///
/// The invariant: a fast path may be taken only if it has exactly the effects of the general path, and it ends where
/// that ends. The model's histories run both and compare the results with the model.
extension ClientCore {
    // MARK: Requests

    /// Starts a task at once, without a submission, if the caller runs where handlers run. Any thread. False if the
    /// task must be submitted.
    ///
    /// The general path is ``SocketTask/resume()``, which submits ``start(_:in:)``.
    ///
    /// - Parameter waiter: Notified when the task completes; nil keeps the task's present receiver.
    func startOnFastPath(_ task: SocketTask, _ waiter: TurnWaiter? = nil) -> Bool {
        guard self.traits.isPlain else { return false }
        return self.loop.ifHandlersRun { self.isSentOnFastPath(task, from: .suspended, waiter, in: &$0) }
    }

    /// Sends the request of a task in this state, if it can be sent with the next flush, unchanged, and without
    /// possible failure. False, without side effects, if the general path must be taken.
    ///
    /// The general path is the rest of ``start(_:in:)``: it adds the call to the table, begins an attempt, puts the
    /// request into its envelope, makes a frame, and sends it.
    func isSentOnFastPath(
        _ task: SocketTask,
        from state: SocketTask.State,
        _ waiter: TurnWaiter? = nil,
        in turn: inout Turn
    ) -> Bool {
        let length = task.originalRequest.body.readableBytes
        guard self.traits.isPlain, self.canSendOnFastPath(task.originalRequest),
            task.leaves(from: state, waiter)
        else { return false }
        let deadline = self.deadline(of: task.originalRequest, in: &turn)
        let (key, serial) = self.hot.table.enterSent(task, deadline: deadline)
        task.flight.isSentOnFastPath(key, at: turn.now, deadline, length)
        if task.isDispatched { self.dispatched[task.taskIdentifier] = key }
        self.hot.link?._withUnsafeGuaranteedRef { link in
            link.sendOnFastPath(task.originalRequest.type, serial: serial, task.originalRequest.body, in: &turn)
        }
        if deadline < self.hot.timerFires { self.armTimer() }
        return true
    }

    /// Whether the request of a new call can be sent with the next flush, unchanged, and without possible failure.
    @inline(__always)
    private func canSendOnFastPath(_ request: borrowing SocketRequest) -> Bool {
        let length = request.body.readableBytes
        return length <= self.traits.largestPlainBody && self.canSendOnFastPath(length: length)
            && self.hot.table.canSend && request.options.isPlain && self.format.isApplicationType(request.type)
    }

    /// Returns the turn whose handlers are running if a light call can be made in it, by ``send(_:_:_:in:)``, which
    /// gives it back to the loop. May be called on any thread. Nil if a task must be made and resumed.
    func turnOfHandlers(toSend request: borrowing SocketRequest) -> Turn? {
        guard self.traits.isLight, let turn = self.loop.takeTurnOfHandlers() else { return nil }
        guard self.canSendOnFastPath(request) else {
            turn.giveBack()
            return nil
        }
        return turn
    }

    /// Makes a light call in the turn that ``turnOfHandlers(toSend:)`` has returned, and sends its request.
    ///
    /// The general path is that of a task: ``startOnFastPath(_:_:)``. The parameters are not combined in a
    /// ``LightCall``, which is so large that it would be copied rather than moved.
    func send(
        _ identifier: Int,
        _ request: consuming SocketRequest,
        _ handler: consuming SocketTask.Handler?,
        _ waiter: LightCall.Waiter? = nil,
        in turn: inout Turn
    ) {
        let deadline = self.deadline(of: request, in: &turn)
        // Sent first, while it is available here, so that it need not be read from the table.
        let serial = self.hot.table.nextSerialToSend()
        self.sendBytes(of: request, serial, in: &turn)
        let now = turn.now
        self.hot.table.enterSent(serial: serial, deadline: deadline)
            .initialize(to: LightCall(identifier, consume request, consume handler, waiter, sent: now))
        if deadline < self.hot.timerFires { self.armTimer() }
    }

    /// Not inlined: a parameter is known to be retained.
    @inline(never)
    private func sendBytes(of request: borrowing SocketRequest, _ serial: UInt32, in turn: inout Turn) {
        self.hot.link?._withUnsafeGuaranteedRef {
            $0.sendOnFastPath(request.type, serial: serial, request.body, in: &turn)
        }
    }

    /// Makes a task of a light call that has been sent, since something other than its answer happens to it.
    func promote(_ call: LightCall, _ key: DispatchKey, deadline: NIODeadline) -> SocketTask {
        let task = self.makeTask(call)
        let length = call.request.body.readableBytes
        task.wasSentLight(bytes: length)
        task.flight.isSentOnFastPath(key, at: call.sent, deadline, length)
        self.dispatched[call.identifier] = key
        return task
    }

    /// Makes a task for a call that cannot be light, or no longer.
    func makeTask(_ call: LightCall) -> SocketTask {
        let completion: SocketTask.Completion =
            if let handler = call.receiver.handler {
                .handler(handler)
            } else if let waiter = call.receiver.waiter {
                .handler { waiter.resume(returning: $0) }
            } else {
                .nobody
            }
        return SocketTask(
            identifier: call.identifier,
            request: call.request,
            client: self,
            completion: completion,
            // A caller that awaits the result continues whatever becomes of the callback queue.
            callbackQueue: call.receiver.waiter == nil ? nil : .socketThread,
            isDispatched: true
        )
    }

    private func canSendOnFastPath(length: Int) -> Bool {
        guard length <= self.configuration.socket.maximumPayloadLength else { return false }
        return self.hot.link?._withUnsafeGuaranteedRef { $0.canSendOnFastPath(length: length) } ?? false
    }

    // MARK: Answers

    /// Receives frames of the standard format that are complete and valid, as most are, without creating `Frame`
    /// values. The first frame of another kind stays in the batch.
    ///
    /// The general path is ``ClientConnection/received(_:in:)``.
    func receiveOnFastPath(
        _ batch: inout Batch<FrameLanguage>,
        on connection: ClientConnection,
        in turn: inout Turn
    ) {
        while let header = batch.soundApplicationHeader() {
            self.received(header, batch.takePayload(of: header), on: connection, in: &turn)
        }
    }

    /// Receives an answer or a push. A successful answer without an envelope completes its task at once, unless there
    /// are interceptors.
    private func received(
        _ header: FrameHeader,
        _ payload: consuming ByteBuffer,
        on connection: ClientConnection,
        in turn: inout Turn
    ) {
        guard header.status == .ok, header.type & FrameType.allFlags == 0, self.traits.isDirect,
            // Only frames of the standard format reach this code.
            header.serial != FrameSerial.push,
            // The end of a stream follows its items, and a last piece those before it.
            connection.streams?.claims(header.serial) != true
        else { return self.received(Frame(header, payload), on: connection, in: &turn) }
        if let place = self.hot.table.takeAnsweredLight(serial: header.serial, on: connection.id) {
            let receiver = LightCall.takeReceiver(at: place)
            let response = SocketResponse(header, payload, connection.origin)
            return self.answered(receiver, response, on: connection, in: &turn)
        }
        guard var task = self.hot.table.takeAnswered(serial: header.serial, on: connection.id, keeping: false) else {
            return self.received(Frame(header, payload), on: connection, in: &turn)
        }
        self.judge(nil, on: connection.id, in: &turn)
        guard !self.traits.isObserved, SocketTask.isUnshared(&task), task.hasHandlerAlone else {
            self.note(task, payload.readableBytes, connection, in: &turn)
            return self.ended(task, SocketResponse(header, payload, connection.origin), in: &turn)
        }
        // No other code can access the task, so its metrics need not be kept.
        self.forgetDispatched(task)
        self.hot.retryBucket?.callWasAnswered()
        self.finishDrained(in: &turn)
        let response = SocketResponse(header, payload, connection.origin)
        guard self.traits.callsBackHere, let handler = task.takeHandlerOfUnshared() else {
            task.finishUnshared(consume response)
            return turn.callBack(.work(task))
        }
        turn.run(AnsweredCall(task, handler, consume response))
    }
}

extension ClientCore {
    /// Completes a light call with its answer.
    @inline(__always)
    private func answered(
        _ receiver: consuming LightCall.Receiver,
        _ response: consuming SocketResponse,
        on connection: ClientConnection,
        in turn: inout Turn
    ) {
        self.judge(nil, on: connection.id, in: &turn)
        self.hot.retryBucket?.callWasAnswered()
        self.finishDrained(in: &turn)
        if let handler = receiver.handler {
            turn.run(AnsweredLightCall(handler: handler, response: response))
        } else if let waiter = receiver.waiter {
            turn.run(AnsweredWaiter(continuation: waiter, response: response))
        }
    }
}

/// The handler of an answered call, which runs after the units of this read have been processed.
struct AnsweredCall: TurnHandler {
    struct Answer {
        let handler: SocketTask.Handler
        let response: SocketResponse

        consuming func run() {
            self.handler(.success(self.response))
        }
    }

    /// Released just before the handler runs, which usually makes another call that reuses the memory.
    private var task: SocketTask
    private var answer: Answer

    init(_ task: SocketTask, _ handler: @escaping SocketTask.Handler, _ response: consuming SocketResponse) {
        self.task = task
        self.answer = Answer(handler: handler, response: response)
    }

    static func run(at place: UnsafeMutableRawPointer) {
        // Moved out separately: a copy would count references.
        let call = place.assumingMemoryBound(to: Self.self)
        guard let task = call.pointer(to: \.task), let answer = call.pointer(to: \.answer) else {
            preconditionFailure("stored properties have addresses")
        }
        task.deinitialize(count: 1)
        answer.move().run()
    }
}
