// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// Compression and decompression of large bodies, on a queue of the client: on the socket thread they would delay every
/// other call, heartbeat and timeout. Meanwhile their calls are in the table without an attempt. A smaller request may
/// overtake a large one that was resumed first; large ones keep their order.
extension ClientCore {
    // MARK: Requests

    /// The policy by which ``deflate(_:_:_:_:in:)`` must compress the request's body first; nil if it need not.
    ///
    /// - Throws: The errors of ``compression(of:_:)``.
    func mustDeflate(_ request: SocketRequest, of task: SocketTask) throws(SocketError) -> CompressionPolicy? {
        let length = request.body.readableBytes
        guard length > BodyWork.longestDeflatedHere, task.flight.deflated == nil,
            let policy = try self.compression(of: request, self.connection?.agreement), length >= policy.minimumLength
        else { return nil }
        return policy
    }

    /// Ends the attempt, of which nothing was sent, compresses the body, and begins the attempt again.
    func deflate(
        _ task: SocketTask,
        _ request: SocketRequest,
        _ key: DispatchKey,
        _ policy: CompressionPolicy,
        in turn: inout Turn
    ) {
        self.hot.table.queued(key)
        guard self.hot.table.endAttempt(key) != nil else { return }
        task.flight.attempts -= 1
        self.finishDrained(in: &turn)
        self.bodies.deflate(request.body, level: policy.level) { self.continueAttempt(task, key, $0, in: &$1) }
    }

    /// - Parameter deflated: Nil if the body would not become smaller.
    private func continueAttempt(_ task: SocketTask, _ key: DispatchKey, _ deflated: ByteBuffer?, in turn: inout Turn) {
        // Otherwise the call has completed meanwhile.
        guard task.flight.key == key, self.hot.table.phase(of: key) == .idle else { return }
        task.flight.deflated = deflated.map { .smaller($0) } ?? .notSmaller
        guard !self.driver.isClosed else {
            if let idle = self.hot.table.endAttempt(key) { self.ended(idle, Driver.closedByUser, in: &turn) }
            return
        }
        let request = self.request(of: task)
        let priority = task.priority
        let submission = self.hot.table.attemptAgain(
            key,
            priority,
            bytes: request.waitingLength,
            // The connection may have been lost meanwhile.
            isPatient: self.hot.table.link == .ready || self.isPatient(task, request),
            isReturning: false
        )
        self.follow(submission, task, key, request, priority, in: &turn)
        self.armTimer()
    }

    // MARK: Answers

    /// Whether the body of an answer or a push must be decompressed on the compression queue.
    func mustInflate(_ envelope: Envelope, _ status: Status) -> Bool {
        envelope.isCompressed && envelope.body.readableBytes > BodyWork.longestInflatedHere && status != .partial
    }

    /// Ends the attempt that the frame answers, decompresses the body, and then continues the call.
    func inflate(_ frame: Frame, _ envelope: Envelope, on connection: ClientConnection, in turn: inout Turn) {
        let reception = self.hot.table.receive(serial: frame.serial, on: connection.id)
        guard case .answer(let attempt) = reception else { return self.count(reception) }
        let task = attempt.call
        let key = attempt.key
        let answer = CompressedAnswer(
            frame: frame,
            metadata: envelope.metadata?.values ?? [:],
            origin: connection.origin,
            connection: connection.id,
            mayHaveRunBefore: task.flight.mayHaveRun
        )
        task.flight.firstByte.comesFirst(at: turn.now)
        // In case the call is cancelled or times out before its answer can be read.
        task.flight.mayHaveRun = true
        self.bodies.inflate(envelope.body) { self.inflated(answer, $0, task, key, in: &$1) }
        self.finishDrained(in: &turn)
    }

    /// The parts of an answer whose body is being decompressed.
    private struct CompressedAnswer: Sendable {
        var frame: Frame
        var metadata: [String: String]
        var origin: SocketResponse.Origin
        var connection: ConnectionID
        /// Whether an earlier attempt may have run.
        var mayHaveRunBefore: Bool
    }

    private func inflated(
        _ answer: CompressedAnswer,
        _ body: Result<ByteBuffer, EnvelopeError>,
        _ task: SocketTask,
        _ key: DispatchKey,
        in turn: inout Turn
    ) {
        // Otherwise the call has completed meanwhile.
        guard task.flight.key == key, self.hot.table.phase(of: key) == .idle,
            var attempt = self.hot.table.endAttempt(key)
        else { return }
        task.flight.mayHaveRun = answer.mayHaveRunBefore
        task.flight.origin = answer.origin
        attempt.connection = answer.connection
        var frame = answer.frame
        frame.type &= ~self.traits.flagMask
        let error: SocketError
        switch body {
        case .failure(let reason):
            error = self.cannotOpen(answer.frame, reason, attempt, answer.origin)
        case .success(let body):
            frame.payload = body
            task.flight.bytesReceived += body.readableBytes
            guard frame.status != .ok else {
                self.judge(nil, on: answer.connection, in: &turn)
                if self.traits.isDirect { self.hot.table.remove(key) }
                let origin =
                    frame.customFields != nil || !answer.metadata.isEmpty
                    ? SocketResponse.Origin(
                        header: self.format.header(of: frame),
                        endpoint: answer.origin.endpoint,
                        metadata: answer.metadata
                    ) : answer.origin
                return self.ended(task, SocketResponse(frame, origin), in: &turn)
            }
            error = self.failed(frame, answer.metadata, attempt, answer.origin.endpoint)
        }
        self.judge(error, on: answer.connection, in: &turn)
        self.ended(attempt, error, in: &turn)
    }
}
