// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// Frames that the server sends.
extension ClientCore {
    func received(_ frame: Frame, on connection: ClientConnection, in turn: inout Turn) {
        if let streams = connection.streams, streams.receive(frame, in: &turn) { return }
        self.receivedWhole(frame, on: connection, in: &turn)
    }

    /// Receives an answer or a push that belongs to no stream, or ends one, and is no piece.
    func receivedWhole(_ frame: Frame, on connection: ClientConnection, in turn: inout Turn) {
        if frame.type & self.traits.flagMask == 0 {
            self.received(frame, metadata: [:], on: connection, in: &turn)
        } else {
            self.receivedSealed(frame, on: connection, in: &turn)
        }
    }

    /// Receives an answer or a push whose frame has flags.
    private func receivedSealed(_ frame: Frame, on connection: ClientConnection, in turn: inout Turn) {
        let origin = connection.origin
        let isPush = self.format.isPush(frame)
        // An answer that no call waits for need not be opened.
        guard isPush || self.hot.table.isAwaited(serial: frame.serial) else {
            return self.count(
                self.hot.table.receive(serial: frame.serial, on: connection.id, isFinal: frame.status != .partial)
            )
        }
        do throws(EnvelopeError) {
            var envelope = try Envelope.openCompressed(
                type: frame.type,
                payload: frame.payload,
                agreedFlags: origin.agreement?.flags ?? 0
            )
            if self.mustInflate(envelope, frame.status) {
                guard isPush else { return self.inflate(frame, envelope, on: connection, in: &turn) }
                var push = frame
                (push.type, push.payload) = (envelope.type, envelope.body)
                return self.pushes.receivedCompressed(
                    push,
                    envelope.metadata?.values ?? [:],
                    from: origin.endpoint,
                    in: &turn
                )
            }
            try envelope.inflate(limit: self.configuration.socket.maximumPayloadLength)
            var opened = frame
            (opened.type, opened.payload) = (envelope.type, envelope.body)
            self.received(opened, metadata: envelope.metadata?.values ?? [:], on: connection, in: &turn)
        } catch {
            let type = frame.type & ~self.traits.flagMask
            if isPush { return self.pushes.receivedUnreadable(type, error, from: origin.endpoint) }
            self.receive(frame, on: connection, in: &turn) { attempt, _ in
                self.cannotOpen(frame, error, attempt, origin)
            }
        }
    }

    /// The error of an attempt whose answer cannot be opened.
    func cannotOpen(
        _ frame: Frame,
        _ reason: EnvelopeError,
        _ attempt: Attempt,
        _ origin: SocketResponse.Origin
    ) -> SocketError {
        SocketError(
            reason,
            """
            the answer of \(origin.endpoint) to type \(self.request(of: attempt.call).type), serial \
            \(frame.serial), with status \(frame.status),
            """,
            endpoint: origin.endpoint,
            serial: frame.serial
        )
    }

    private func received(
        _ frame: Frame,
        metadata: [String: String],
        on connection: ClientConnection,
        in turn: inout Turn
    ) {
        guard !self.format.isPush(frame) else {
            return self.pushes.received(frame, metadata, from: connection.endpoint, in: &turn)
        }
        if !self.format.responsesHaveType, let task = self.hot.table.call(withSerial: frame.serial) {
            var typed = frame
            typed.type = self.request(of: task).type
            return self.receivedAnswer(typed, metadata: metadata, on: connection, in: &turn)
        }
        self.receivedAnswer(frame, metadata: metadata, on: connection, in: &turn)
    }

    private func receivedAnswer(
        _ frame: Frame,
        metadata: [String: String],
        on connection: ClientConnection,
        in turn: inout Turn
    ) {
        if frame.status == .ok,
            let task = self.hot.table.takeAnswered(
                serial: frame.serial,
                on: connection.id,
                keeping: !self.traits.isDirect
            )
        {
            self.note(task, frame.payload.readableBytes, connection, in: &turn)
            self.judge(nil, on: connection.id, in: &turn)
            return self.ended(task, SocketResponse(frame, self.origin(of: frame, metadata, on: connection)), in: &turn)
        }
        let endpoint = connection.endpoint
        switch frame.status {
        case .ok:
            self.count(self.hot.table.receive(serial: frame.serial, on: connection.id))
        case .partial:
            self.receive(frame, on: connection, isFinal: false, in: &turn) { attempt, turn in
                var attempt = attempt
                attempt.phase = .sent
                self.sendCancel(of: attempt, in: &turn)
                return self.failed(
                    SocketError.Code(frame.status),
                    "\(endpoint) answered with a part of a stream (status 206), but this call expects one answer",
                    frame,
                    metadata,
                    endpoint
                )
            }
        default:
            self.receive(frame, on: connection, in: &turn) { attempt, _ in
                self.failed(frame, metadata, attempt, endpoint)
            }
        }
    }

    /// The error of an attempt that was answered with a status other than 200.
    func failed(
        _ frame: Frame,
        _ metadata: [String: String],
        _ attempt: Attempt,
        _ endpoint: Endpoint
    ) -> SocketError {
        let code = SocketError.Code(frame.status)
        let name = code.serverStatus == nil ? " (\(code))" : ", which is not a status known here"
        return self.failed(
            code,
            "\(endpoint) answered type \(self.request(of: attempt.call).type), serial \(frame.serial), with "
                + "status \(frame.status)\(name)",
            frame,
            metadata,
            endpoint
        )
    }

    func received(
        corrupt frame: Frame,
        _ mismatch: FrameDecoder.ChecksumMismatch,
        on connection: ClientConnection,
        in turn: inout Turn
    ) {
        let endpoint = connection.endpoint
        self.count(\.checksumFailures)
        if let streams = connection.streams, streams.receive(frame, isDamaged: true, in: &turn) { return }
        guard !self.format.isPush(frame), !self.format.isControlType(frame.type) else { return }
        self.receive(frame, on: connection, in: &turn) { _, _ in
            var error = self.failed(
                .checksumMismatch,
                """
                the answer of \(endpoint) to serial \(frame.serial) came with checksum \
                \(mismatch.received) where its \(frame.payload.readableBytes) bytes amount to \(mismatch.computed)
                """,
                frame,
                [:],
                endpoint
            )
            // The server's answer is unknown.
            error.delivery = .sentUnknown
            error.body = nil
            return error
        }
    }

    /// Fails the call whose answer bytes seem to be that are no frame, where that can be read.
    func received(malformed reason: FrameError, on connection: ClientConnection, in turn: inout Turn) {
        let endpoint = connection.endpoint
        self.count(\.malformedFrames)
        guard let type = reason.type, let serial = reason.serial, !reason.isMarkedAsPush,
            !self.format.isPush(type: type, serial: serial), !self.format.isControlType(type),
            self.hot.table.isAwaited(serial: serial)
        else { return }
        self.receive(Frame(type: type, serial: serial), on: connection, in: &turn) { _, _ in
            SocketError(
                .illegalFormat,
                message: "the answer of \(endpoint) to serial \(serial) is malformed: \(reason.message)",
                underlying: reason,
                endpoint: endpoint,
                serial: serial,
                // The server's answer is unknown.
                delivery: .sentUnknown
            )
        }
    }

    private func failed(
        _ code: SocketError.Code,
        _ message: String,
        _ frame: Frame,
        _ metadata: [String: String],
        _ endpoint: Endpoint
    ) -> SocketError {
        var error = SocketError(
            code,
            message: message,
            endpoint: endpoint,
            serial: frame.serial,
            delivery: .answered,
            body: frame.payload
        )
        if !metadata.isEmpty { error.metadata = metadata }
        return error
    }

    /// Notes the length and the origin of an answer.
    func note(_ task: SocketTask, _ length: Int, _ connection: ClientConnection, in turn: inout Turn) {
        task.flight.firstByte.comesFirst(at: turn.now)
        task.flight.bytesReceived += length
        task.flight.origin = connection.origin
    }

    /// Receives an answer that fails its attempt with the result of `error`.
    func receive(
        _ frame: Frame,
        on connection: ClientConnection,
        isFinal: Bool = true,
        in turn: inout Turn,
        _ error: (Attempt, inout Turn) -> SocketError
    ) {
        let reception = self.hot.table.receive(serial: frame.serial, on: connection.id, isFinal: isFinal)
        guard case .answer(let attempt) = reception else { return self.count(reception) }
        self.note(attempt.call, frame.payload.readableBytes, connection, in: &turn)
        let error = error(attempt, &turn)
        self.judge(error, on: connection.id, in: &turn)
        self.ended(attempt, error, in: &turn)
    }

    /// Counts an answer that no call waits for.
    func count(_ reception: CallTable.Reception) {
        switch reception {
        case .answer: assertionFailure("a caller waits for this answer")
        case .late: self.count(\.lateResponses)
        case .duplicate: self.count(\.duplicateResponses)
        case .unknown: self.count(\.unknownResponses)
        }
    }

    // MARK: Outgoing frames

    func frameWillBeSent(type: UInt32, serial: UInt32, on id: ConnectionID, in turn: inout Turn) -> Bool {
        guard self.format.isApplicationType(type & ~self.traits.flagMask) else { return true }
        guard self.hot.table.willSend(serial: serial, on: id), let task = self.hot.table.call(withSerial: serial)
        else {
            return false
        }
        self.leaves(task, self.request(of: task), serial, in: &turn)
        return true
    }

    func frameProgressed(type: UInt32, serial: UInt32, payloadBytes: Int, in turn: inout Turn) {
        guard self.format.isApplicationType(type & ~self.traits.flagMask),
            let task = self.hot.table.call(withSerial: serial)
        else { return }
        self.progressed(task, payloadBytes: payloadBytes, self.request(of: task), serial, in: &turn)
    }
}
