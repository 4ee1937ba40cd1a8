import HHSocket
import NIOCore

/// The ways that nearly every call takes, each beside the general one in ``ClientCore``.
///
/// The invariant: a fast way may be taken only where it does exactly what the general way would do, and it ends where
/// that ends. The model's histories run both, and compare what comes of them with the model.
extension ClientCore {
    // MARK: A request leaves

    /// Starts a task here and now where handlers run, so that it need not be submitted. Any thread; false where it must
    /// be.
    ///
    /// The general way is ``SocketTask/resume()``, which submits ``start(_:in:)``.
    ///
    /// - Parameter waiter: Notified when it completes; nil: the receiver stays.
    func startOnFastPath(_ task: SocketTask, _ waiter: TurnWaiter? = nil) -> Bool {
        guard self.traits.isPlain else { return false }
        return self.loop.ifHandlersRun { self.isSentOnFastPath(task, from: .suspended, waiter, in: &$0) }
    }

    /// Sends the request of a task in this state if it can leave with the next flush: nothing stands between it and the
    /// wire, and nothing can go wrong.
    ///
    /// The general way is the rest of ``start(_:in:)``: enter the table, begin an attempt, put the request into its
    /// envelope, make a frame, send that.
    func isSentOnFastPath(
        _ task: SocketTask,
        from state: SocketTask.State,
        _ waiter: TurnWaiter? = nil,
        in turn: inout Turn
    ) -> Bool {
        let length = task.originalRequest.body.readableBytes
        guard self.traits.isPlain, length <= self.traits.largestPlainBody, self.canSendOnFastPath(length: length),
            self.hot.table.canSend, task.originalRequest.options.isPlain,
            self.format.isApplicationType(task.originalRequest.type),
            task.leaves(from: state, waiter, bytesSent: length)
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

    private func canSendOnFastPath(length: Int) -> Bool {
        guard length <= self.configuration.socket.maximumPayloadLength else { return false }
        return self.hot.link?._withUnsafeGuaranteedRef { $0.canSendOnFastPath(length: length) } ?? false
    }

    // MARK: An answer comes

    /// Takes frames of the standard format that have come whole and sound, as nearly all do, without making frames of
    /// them; the first that is of another kind is left in the batch.
    ///
    /// The general way is ``ClientConnection/received(_:in:)``.
    func receiveOnFastPath(
        _ batch: inout Batch<FrameLanguage>,
        on connection: ClientConnection,
        in turn: inout Turn
    ) {
        while let header = batch.soundApplicationHeader() {
            self.received(header, batch.takePayload(of: header), on: connection, in: &turn)
        }
    }

    /// An answer or a push. A successful answer without an envelope completes its task at once, unless interceptors
    /// stand around it.
    private func received(
        _ header: FrameHeader,
        _ payload: consuming ByteBuffer,
        on connection: ClientConnection,
        in turn: inout Turn
    ) {
        guard header.status == .ok, header.type & FrameType.allFlags == 0, self.traits.isDirect,
            !self.format.isPush(serial: header.serial),
            var task = self.hot.table.takeAnswered(serial: header.serial, keeping: false)
        else { return self.received(Frame(header, payload), on: connection, in: &turn) }
        self.judge(nil, on: connection.id, in: &turn)
        guard !self.traits.isObserved, SocketTask.isUnshared(&task), task.hasHandlerAlone else {
            self.note(task, payload.readableBytes, connection, in: &turn)
            return self.ended(task, SocketResponse(header, payload, connection.origin), in: &turn)
        }
        // Nobody can look at the task any more, so that what it knows of itself need not be kept.
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

/// The handler of a call that was answered, which runs when the units of this read have been taken.
struct AnsweredCall: TurnHandler {
    struct Answer {
        let handler: SocketTask.Handler
        let response: SocketResponse

        consuming func run() {
            self.handler(.success(self.response))
        }
    }

    /// Released just before the handler runs, which as a rule makes another call: that uses the same memory at once.
    private var task: SocketTask
    private var answer: Answer

    init(_ task: SocketTask, _ handler: @escaping SocketTask.Handler, _ response: consuming SocketResponse) {
        self.task = task
        self.answer = Answer(handler: handler, response: response)
    }

    static func run(at place: UnsafeMutableRawPointer) {
        // Moved out one after the other: a copy would count references.
        let call = place.assumingMemoryBound(to: Self.self)
        guard let task = call.pointer(to: \.task), let answer = call.pointer(to: \.answer) else {
            preconditionFailure("stored properties have addresses")
        }
        task.deinitialize(count: 1)
        answer.move().run()
    }
}
