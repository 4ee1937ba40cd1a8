// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// The end of an attempt: the server's answer with status 200, or the error that the call fails with.
typealias CallOutcome = Result<SocketResponse, SocketError>

/// The reading of answers: a frame becomes the end of the attempt that it answers.
struct AnswerReader: Sendable {
    let format: WireFormat
    /// The bits of a type that are flags; 0 where the wire format has no room for them.
    let flagMask: UInt32
    private let maximumPayloadLength: Int
    /// Whether the client could say hello and does not.
    private let omitsHello: Bool

    init(_ configuration: SocketConfiguration, saysHello: Bool) {
        self.format = configuration.wireFormat
        self.omitsHello = self.format.supportsHello && !saysHello
        self.flagMask = self.format.supportsHello ? FrameType.allFlags : 0
        self.maximumPayloadLength = configuration.maximumPayloadLength
    }

    // MARK: Envelopes

    /// The state of a frame with flags, whose envelope has been opened.
    enum Opening {
        /// Its payload is the body.
        case open(metadata: [String: String])
        /// Its payload is the compressed body, which must be decompressed on another thread.
        case compressed(metadata: [String: String])
        case unreadable(EnvelopeError)
    }

    /// Opens the envelope of a frame with flags in place: it has none afterwards.
    ///
    /// - Parameter agreedFlags: The flags that hello agreed on.
    func open(_ frame: inout ArrivedFrame, agreedFlags: UInt32) -> Opening {
        do throws(EnvelopeError) {
            let contents = try Envelope.open(&frame, agreedFlags: agreedFlags)
            let metadata = contents.metadata?.values ?? [:]
            guard contents.isCompressed else { return .open(metadata: metadata) }
            guard frame.length <= BodyWork.longestInflatedHere || frame.status == .partial else {
                return .compressed(metadata: metadata)
            }
            try Envelope.inflate(&frame, limit: self.maximumPayloadLength)
            return .open(metadata: metadata)
        } catch {
            return .unreadable(error)
        }
    }

    /// The type of a frame without flags.
    func plainType(_ type: UInt32) -> UInt32 { type & ~self.flagMask }

    // MARK: Pushes

    func isPush(_ arriving: FrameDecoder.Arriving) -> Bool {
        arriving.isMarkedAsPush || self.format.isPush(type: arriving.type, serial: arriving.serial)
    }

    // MARK: Outcomes

    /// The origin of an answer, given that of its connection.
    func origin(
        of frame: borrowing ArrivedFrame,
        metadata: [String: String],
        on connection: SocketResponse.Origin
    ) -> SocketResponse.Origin {
        guard frame.customFields != nil || !metadata.isEmpty else { return connection }
        return SocketResponse.Origin(
            header: self.format.header(of: frame),
            endpoint: connection.endpoint,
            metadata: metadata
        )
    }

    /// The end of an attempt that was answered.
    ///
    /// - Parameters:
    ///   - frame: The answer, without flags and without its envelope.
    ///   - requestType: The type of the request.
    ///   - connection: The origin of its connection.
    func outcome(
        of frame: Frame,
        metadata: [String: String],
        requestType: UInt32,
        on connection: SocketResponse.Origin
    ) -> CallOutcome {
        if frame.status == .ok {
            let answer = ArrivedFrame(frame)
            let origin = self.origin(of: answer, metadata: metadata, on: connection)
            return .success(SocketResponse(answer, origin))
        }
        return .failure(
            self.failed(frame, metadata: metadata, requestType: requestType, from: connection.endpoint)
        )
    }

    /// The error of an attempt that was answered with a status other than 200.
    private func failed(
        _ frame: Frame,
        metadata: [String: String],
        requestType: UInt32,
        from endpoint: Endpoint
    ) -> SocketError {
        let code = SocketError.Code(frame.status)
        var message: String
        if frame.status == .partial {
            message = "\(endpoint) answered with a part of a stream (status 206), but this call expects one answer"
        } else {
            let name = code.serverStatus == nil ? " (\(code))" : ", which is not a status known here"
            message =
                "\(endpoint) answered type \(requestType), serial \(frame.serial), with "
                + "status \(frame.status)\(name)"
            // A server that requires a hello answers so.
            if self.omitsHello, frame.status == .illegalFormat, frame.payload.readableBytes == 0 {
                message += "; it may require hello, which this client does not send (SocketClient.Configuration.hello)"
            }
        }
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

    // MARK: Answers that cannot be used

    /// The error of an attempt whose answer's envelope cannot be opened.
    func unreadable(
        _ frame: Frame,
        _ reason: EnvelopeError,
        requestType: UInt32,
        from endpoint: Endpoint
    ) -> SocketError {
        SocketError(
            reason,
            """
            the answer of \(endpoint) to type \(requestType), serial \(frame.serial), with status \(frame.status),
            """,
            endpoint: endpoint,
            serial: frame.serial
        )
    }

    /// The error of an attempt whose answer came with a wrong checksum. The server's answer is unknown.
    func corrupt(
        serial: UInt32,
        bytes length: Int,
        _ mismatch: FrameDecoder.ChecksumMismatch,
        from endpoint: Endpoint
    ) -> SocketError {
        SocketError(
            .checksumMismatch,
            message: """
                the answer of \(endpoint) to serial \(serial), \(length) bytes, came with a wrong checksum: \(mismatch)
                """,
            endpoint: endpoint,
            serial: serial,
            delivery: .sentUnknown
        )
    }

    /// The serial of the answer that malformed bytes seem to be; nil if it cannot be read, or if they seem to be
    /// something else.
    func serial(ofMalformed reason: FrameError) -> UInt32? {
        guard let type = reason.type, let serial = reason.serial, !reason.isMarkedAsPush,
            !self.format.isPush(type: type, serial: serial), !self.format.isControlType(type)
        else { return nil }
        return serial
    }

    /// The error of an attempt whose answer is malformed. The server's answer is unknown.
    func malformed(_ reason: FrameError, serial: UInt32, from endpoint: Endpoint) -> SocketError {
        SocketError(
            .illegalFormat,
            message: "the answer of \(endpoint) to serial \(serial) is malformed: \(reason.message)",
            underlying: reason,
            endpoint: endpoint,
            serial: serial,
            delivery: .sentUnknown
        )
    }

    /// The error of an attempt whose answer arrived in pieces that cannot be joined.
    func broken(_ failure: PayloadFailure, serial: UInt32, from endpoint: Endpoint) -> SocketError {
        let (code, why) = self.describe(failure)
        return SocketError(
            code,
            message: "the answer of \(endpoint) to serial \(serial), which came in pieces, cannot be used: \(why)",
            endpoint: endpoint,
            serial: serial,
            delivery: .sentUnknown
        )
    }

    /// The reason why pieces cannot be joined.
    func describe(_ failure: PayloadFailure) -> (code: SocketError.Code, why: String) {
        switch failure {
        case .damaged: (.checksumMismatch, "a piece of it has a wrong checksum")
        case .tooLong:
            (
                .frameTooLarge,
                "it is over the limit of \(self.maximumPayloadLength) bytes (maximumPayloadLength)"
            )
        case .tooMuchHeld:
            (
                .queueFull,
                "too much of what came waits on the connection (StreamPolicy.maximumHeldBytes)"
            )
        case .differentPieces: (.protocolViolation, "its pieces differ in type, flags or status")
        }
    }
}
