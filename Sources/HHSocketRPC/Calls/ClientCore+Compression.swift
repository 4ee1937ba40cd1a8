// SPDX-License-Identifier: Apache-2.0
import DequeModule
import Dispatch
import HHSocket
import NIOCore

/// Compression and decompression of large bodies, on a queue of the client: on the socket thread they would delay every
/// other call, heartbeat and timeout. Meanwhile their calls are in the table without an attempt. A smaller request may
/// overtake a large one that was resumed first; large ones keep their order.
extension ClientCore {
    /// The largest body that is compressed on the socket thread: 64 KiB, in half a millisecond at the 136 MB/s that
    /// were measured for level 1.
    private static let longestDeflatedHere = 64 << 10
    /// The largest compressed body that is decompressed on the socket thread: 4 KiB. zlib makes at most 1,032 times
    /// as many bytes of them, 4 MiB.
    private static let longestInflatedHere = 4 << 10

    // MARK: Requests

    /// The policy by which ``deflate(_:_:_:_:in:)`` must compress the request's body first; nil if it need not.
    ///
    /// - Throws: The errors of ``compression(of:_:)``.
    func mustDeflate(_ request: SocketRequest, of task: SocketTask) throws(SocketError) -> CompressionPolicy? {
        let length = request.body.readableBytes
        guard length > Self.longestDeflatedHere, task.flight.deflated == nil,
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
        let body = request.body
        self.compressionQueue.async {
            let deflated = Envelope.deflate(body, level: policy.level)
            _ = self.submit(.closure { self.continueAttempt(task, key, deflated, in: &$0) })
        }
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
        envelope.isCompressed && envelope.body.readableBytes > Self.longestInflatedHere && status != .partial
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
        let limit = self.configuration.socket.maximumPayloadLength
        self.compressionQueue.async {
            let body = Result { () throws(EnvelopeError) in try Envelope.inflate(envelope.body, limit: limit) }
            _ = self.submit(.closure { self.inflated(answer, body, task, key, in: &$0) })
        }
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

    // MARK: Pushes

    /// The size of the queued pushes above which reading is suspended: 1 MiB.
    private static let longestPushLine = 1 << 20

    /// A queued push: one that is being decompressed, or a later one.
    struct WaitingPush: Sendable {
        var frame: Frame
        var metadata: [String: String]
        var endpoint: Endpoint
        /// Whether the frame's payload must be decompressed.
        var isCompressed: Bool
    }

    /// Whether reading should be suspended because of the pushes that are queued.
    var pushLineIsFull: Bool { self.pushes.lineBytes > Self.longestPushLine }

    /// Delivers the push after earlier ones.
    func standInLine(_ push: WaitingPush, in turn: inout Turn) {
        let wasFull = self.pushLineIsFull
        var push = push
        push.frame.payload = push.frame.payload.detached
        self.pushes.line.append(push)
        self.pushes.lineBytes += push.frame.payload.readableBytes
        if !wasFull, self.pushLineIsFull { self.holdReading(in: &turn) }
        // Otherwise the first push is being decompressed.
        if self.pushes.line.count == 1 { self.deliverPushLine(in: &turn) }
    }

    private func deliverPushLine(in turn: inout Turn) {
        while let first = self.pushes.line.first {
            guard !first.isCompressed else { return self.inflateFirstPush(first.frame.payload) }
            self.dequeue(in: &turn)
            self.deliverPush(first.frame, first.metadata, first.endpoint, in: &turn)
        }
    }

    private func inflateFirstPush(_ compressed: ByteBuffer) {
        let limit = self.configuration.socket.maximumPayloadLength
        self.compressionQueue.async {
            let body = Result { () throws(EnvelopeError) in try Envelope.inflate(compressed, limit: limit) }
            _ = self.submit(.closure { self.inflatedFirstPush(body, in: &$0) })
        }
    }

    private func inflatedFirstPush(_ body: Result<ByteBuffer, EnvelopeError>, in turn: inout Turn) {
        guard !self.isInvalidated, let first = self.pushes.line.first else { return }
        self.dequeue(in: &turn)
        switch body {
        case .success(let body):
            var frame = first.frame
            frame.payload = body
            self.deliverPush(frame, first.metadata, first.endpoint, in: &turn)
        case .failure(let reason):
            self.receivedPush(first.frame.type, thatCannotBeRead: reason, first.endpoint)
        }
        self.deliverPushLine(in: &turn)
        self.handOverPushes(in: &turn)
    }

    /// Removes the first push from the queue.
    private func dequeue(in turn: inout Turn) {
        guard let first = self.pushes.line.popFirst() else { return }
        let wasFull = self.pushLineIsFull
        self.pushes.lineBytes -= first.frame.payload.readableBytes
        if wasFull, !self.pushLineIsFull { self.releaseReading(in: &turn) }
    }
}
