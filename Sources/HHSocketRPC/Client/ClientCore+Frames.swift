import HHSocket
import HHSocketHello
import NIOCore

/// What the server sends.
extension ClientCore {
    func received(_ header: FrameHeader, _ payload: consuming ByteBuffer, on id: ConnectionID) {
        guard header.status == .ok, header.type & FrameType.allFlags == 0, self.isDirect,
            !self.format.isPush(serial: header.serial),
            var task = self.table.takeAnswered(serial: header.serial, keeping: false)
        else { return self.received(Frame(header, payload), on: id) }
        self.judge(nil, on: id)
        guard !self.isObserved, SocketTask.isUnshared(&task), task.hasHandlerAlone else {
            self.note(task, payload.readableBytes, id)
            return self.ended(task, SocketResponse(header, payload, self.origin(of: id)))
        }
        self.forgetDispatched(task)
        self.retryBucket?.callWasAnswered()
        self.finishDrained()
        let response = SocketResponse(header, payload, self.origin(of: id))
        guard self.callsBackHere, let handler = task.takeHandlerOfUnshared() else {
            task.finishUnshared(consume response)
            return self.socket.callBack(.work(task))
        }
        // Gone before the handler makes the next.
        _ = consume task
        handler(.success(consume response))
    }

    func received(_ frame: Frame, on id: ConnectionID) {
        if frame.type & self.flagMask == 0 {
            self.received(frame, metadata: [:], on: id)
        } else {
            self.receivedSealed(frame, on: id)
        }
    }

    /// The same for a frame with flags.
    private func receivedSealed(_ frame: Frame, on id: ConnectionID) {
        let origin = self.origin(of: id)
        let isPush = self.format.isPush(serial: frame.serial)
        // What nobody waits for need not be opened.
        guard isPush || self.table.call(withSerial: frame.serial) != nil else {
            return self.count(self.table.receive(serial: frame.serial, isFinal: frame.status != .partial))
        }
        do throws(EnvelopeError) {
            var envelope = try Envelope.openCompressed(
                type: frame.type,
                payload: frame.payload,
                agreedFlags: origin.agreement?.flags ?? 0
            )
            if self.mustInflate(envelope, frame.status) {
                guard isPush else { return self.inflate(frame, envelope, on: id) }
                var push = frame
                (push.type, push.payload) = (envelope.type, envelope.body)
                return self.standInLine(
                    WaitingPush(
                        frame: push,
                        metadata: envelope.metadata?.values ?? [:],
                        endpoint: origin.endpoint,
                        isCompressed: true
                    )
                )
            }
            try envelope.inflate(limit: self.socket.maximumPayloadLength)
            var opened = frame
            (opened.type, opened.payload) = (envelope.type, envelope.body)
            self.received(opened, metadata: envelope.metadata?.values ?? [:], on: id)
        } catch {
            let type = frame.type & ~self.flagMask
            if isPush { return self.receivedPush(type, thatCannotBeRead: error, origin.endpoint) }
            self.receive(frame, on: id) { self.cannotOpen(frame, error, $0, origin) }
        }
    }

    /// The error of an attempt whose answer has come and cannot be read.
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

    private func received(_ frame: Frame, metadata: [String: String], on id: ConnectionID) {
        guard !self.format.isPush(serial: frame.serial) else {
            return self.receivedPush(frame, metadata, self.endpoint(of: id))
        }
        if frame.status == .ok, let task = self.table.takeAnswered(serial: frame.serial, keeping: !self.isDirect) {
            self.note(task, frame.payload.readableBytes, id)
            self.judge(nil, on: id)
            return self.ended(task, SocketResponse(frame, self.origin(of: frame, metadata, on: id)))
        }
        let endpoint = self.endpoint(of: id)
        switch frame.status {
        case .ok:
            self.count(self.table.receive(serial: frame.serial))
        case .partial:
            self.receive(frame, on: id, isFinal: false) { attempt in
                var attempt = attempt
                attempt.phase = .sent
                self.tellServer(of: attempt)
                return self.failed(
                    SocketError.Code(frame.status),
                    "\(endpoint) answered with a part of a stream (status 206), but this call expects one answer",
                    frame,
                    metadata,
                    endpoint
                )
            }
        default:
            self.receive(frame, on: id) { self.failed(frame, metadata, $0, endpoint) }
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

    func received(corrupt frame: Frame, _ mismatch: FrameDecoder.ChecksumMismatch, on id: ConnectionID) {
        let endpoint = self.endpoint(of: id)
        self.count(\.checksumFailures)
        guard !self.format.isPush(serial: frame.serial), !self.format.isControlType(frame.type) else { return }
        self.receive(frame, on: id) { _ in
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
            // What the server said is not known.
            error.delivery = .sentUnknown
            error.body = nil
            return error
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

    /// What the answer tells of itself.
    private func note(_ task: SocketTask, _ length: Int, _ id: ConnectionID) {
        task.flight.firstByte.comesFirst(at: self.socket.now)
        task.flight.bytesReceived += length
        task.flight.origin = self.origin(of: id)
    }

    /// An answer with which an attempt fails.
    private func receive(
        _ frame: Frame,
        on id: ConnectionID,
        isFinal: Bool = true,
        _ error: (Attempt) -> SocketError
    ) {
        let reception = self.table.receive(serial: frame.serial, isFinal: isFinal)
        guard case .answer(let attempt) = reception else { return self.count(reception) }
        self.note(attempt.call, frame.payload.readableBytes, id)
        let error = error(attempt)
        self.judge(error, on: id)
        self.ended(attempt, error)
    }

    /// Counts an answer that nobody waits for.
    func count(_ reception: DispatchTable<SocketTask>.Reception) {
        switch reception {
        case .answer: assertionFailure("somebody waits for this answer")
        case .late: self.count(\.lateResponses)
        case .duplicate: self.count(\.duplicateResponses)
        case .unknown: self.count(\.unknownResponses)
        }
    }

    // MARK: Frames that leave

    func frameWillLeave(type: UInt32, serial: UInt32, on id: ConnectionID) -> Bool {
        guard self.format.isApplicationType(type & ~self.flagMask) else { return true }
        guard self.table.willLeave(serial: serial, on: id), let task = self.table.call(withSerial: serial) else {
            return false
        }
        self.leaves(task, self.request(of: task), serial)
        return true
    }

    func frameProgressed(type: UInt32, serial: UInt32, payloadBytes: Int) {
        guard self.format.isApplicationType(type & ~self.flagMask), let task = self.table.call(withSerial: serial)
        else { return }
        self.progressed(task, payloadBytes: payloadBytes, self.request(of: task), serial)
    }
}
