// SPDX-License-Identifier: Apache-2.0
import HHSocket
import Logging
import NIOCore

/// The streams that wait for one of those that are open to end.
struct StreamLine {
    /// A place in the queue. The stream may have been removed.
    struct Place {
        let task: SocketTask
        let key: DispatchKey
        let stream: StreamCall

        var isStub: Bool { !self.stream.flight.isInLine || self.task.flight.key != self.key }
    }

    private var line: WaitingLine<Place>

    init(maximumCount: Int) {
        self.line = WaitingLine(maximumCount: maximumCount)
    }

    var count: Int { self.line.count }
    var hasRoom: Bool { self.line.hasRoom(for: 0) }

    mutating func append(_ place: Place, _ priority: FramePriority) {
        place.stream.flight.isInLine = true
        self.line.dropStubs { $0.isStub }
        self.line.append(place, priority, cost: 0)
    }

    mutating func popFirst() -> Place? {
        guard self.line.length > 0, let place = self.line.popFirst(unless: { $0.isStub }) else { return nil }
        place.stream.flight.isInLine = false
        return place
    }

    /// A stream in the queue has ended.
    mutating func leave(_ stream: StreamCall) {
        guard stream.flight.isInLine else { return }
        stream.flight.isInLine = false
        self.line.leave(cost: 0)
    }
}

/// Streams. Each is a call, from its start to its completion, whose request is the stream's opening and whose answer is
/// its end: it has the same interceptors, retries, failover, tracing and metrics as other calls. Its items pass through
/// its ``StreamCall`` and the ``ConnectionStreams`` of its connection.
extension ClientCore {
    /// The streams of a connection, where hello agreed on them.
    func streams(on link: Link<FrameLanguage>, _ agreement: Agreement?) -> ConnectionStreams? {
        guard let policy = self.configuration.streams, let agreement, var terms = agreement.streams else { return nil }
        terms.maximumStreams = min(terms.maximumStreams, policy.streamLimit)
        let settings = policy.settings(
            terms,
            flags: agreement.flags,
            format: self.format,
            maximumPayloadLength: self.configuration.socket.maximumPayloadLength
        )
        return ConnectionStreams(settings, link: link, core: self)
    }

    /// Checks options that only the request of a stream must not have.
    func check(_ request: SocketRequest, for stream: StreamCall) throws(SocketError) {
        guard self.configuration.streams != nil else {
            throw SocketError(
                .featureNotAgreed,
                message: """
                    a stream (type \(request.type)) takes the feature streams, which this client does not ask for; set \
                    SocketClient.Configuration.streams
                    """
            )
        }
        guard !stream.kind.clientStreams || request.body.readableBytes == 0 else {
            throw SocketError(
                .invalidArgument,
                message: """
                    the request of a stream whose items the client sends (type \(request.type)) has no body, and this one \
                    has \(request.body.readableBytes) bytes: send them as an item
                    """
            )
        }
        guard request.options.idempotencyKey == nil else {
            throw SocketError(
                .invalidArgument,
                message: "a stream (type \(request.type)) has no idempotencyKey: a server could not repeat its items"
            )
        }
        guard stream.flight.mayOpenAgain else {
            throw stream.flight.lastError
                ?? SocketError(
                    .invalidArgument,
                    message: """
                        an interceptor called next again, and the stream (type \(request.type)) cannot be opened again: items \
                        have left or come
                        """
                )
        }
    }

    /// The deadline of a whole stream: none unless the request sets one.
    func streamDeadline(of request: SocketRequest, in turn: inout Turn) -> NIODeadline {
        let isLimited = request.options.timeout != nil || request.options.deadline != nil
        guard isLimited else { return .distantFuture }
        let end =
            request.options.timeout.map { turn.now.advanced(clamping: TimeAmount(clamping: $0)) } ?? .distantFuture
        return min(end, request.options.deadline ?? .distantFuture)
    }

    // MARK: Opening

    /// Begins the attempt of a stream that has a serial: opens it, or queues it until a stream may be opened.
    func open(
        _ stream: StreamCall,
        _ task: SocketTask,
        _ request: SocketRequest,
        _ priority: FramePriority,
        _ key: DispatchKey,
        _ serial: UInt32,
        in turn: inout Turn
    ) {
        do throws(SocketError) {
            guard self.hot.link != nil, let connection = self.connection else { throw self.driver.notConnected() }
            guard let streams = connection.streams else { throw self.hasNoStreams(request, connection) }
            guard streams.canOpen else {
                return try self.standInLine(stream, task, key, priority, streams, in: &turn)
            }
            if let policy = try self.mustDeflate(request, of: task) {
                return self.deflate(task, request, key, policy, in: &turn)
            }
            let sealed = try self.seal(request, of: task, in: &turn)
            task.flight.payloadLength = sealed.type == request.type ? nil : sealed.payload.readableBytes
            stream.flight.customFields = try self.customFields(of: request)
            try self.connector.rules.check(Frame(type: sealed.type, serial: serial, payload: sealed.payload))
            let compression = try self.itemCompression(of: request, connection.agreement)
            // Until the opening is sent.
            self.hot.table.queued(key)
            self.hot.table.setDeadline(task.flight.deadline, key)
            self.armTimer()
            self.count(\.openedStreams)
            streams.open(
                task,
                stream,
                sealed,
                serial: serial,
                priority: priority,
                compression: compression,
                in: &turn
            )
        } catch {
            self.hot.table.queued(key)
            if let attempt = self.hot.table.endAttempt(key) { self.ended(attempt, error, in: &turn) }
        }
    }

    /// The policy for compressing the items that a client sends; nil if they are not compressed.
    private func itemCompression(
        of request: SocketRequest,
        _ agreement: Agreement?
    ) throws(SocketError) -> CompressionPolicy? {
        guard agreement?.has(.compression) == true else { return nil }
        switch request.options.compresses {
        case false?: return nil
        case true?:
            return CompressionPolicy(
                minimumLength: 0,
                level: (self.configuration.compression ?? CompressionPolicy()).level
            )
        case nil: return self.configuration.compression
        }
    }

    private func hasNoStreams(_ request: SocketRequest, _ connection: ClientConnection) -> SocketError {
        let why =
            connection.agreement == nil
            ? "it answered hello with an error, as servers without hello do" : "it did not accept that"
        return SocketError(
            .featureNotAgreed,
            message: """
                a stream (type \(request.type)) takes the feature streams, which was not agreed on with \
                \(connection.endpoint): \(why)
                """,
            endpoint: connection.endpoint
        )
    }

    // MARK: The line at the limit

    private func standInLine(
        _ stream: StreamCall,
        _ task: SocketTask,
        _ key: DispatchKey,
        _ priority: FramePriority,
        _ streams: ConnectionStreams,
        in turn: inout Turn
    ) throws(SocketError) {
        guard self.streamLine.hasRoom else {
            throw SocketError(
                .queueFull,
                message: """
                    \(streams.openCount) streams are open, of \(streams.maximumStreams) that may be (maximumStreams), and \
                    \(self.streamLine.count) wait for one of them to end already (maximumWaiting)
                    """,
                endpoint: self.driver.currentEndpoint
            )
        }
        self.hot.table.queued(key)
        guard self.hot.table.endAttempt(key) != nil else { return }
        task.flight.attempts -= 1
        self.streamLine.append(StreamLine.Place(task: task, key: key, stream: stream), priority)
        self.finishDrained(in: &turn)
    }

    func leaveStreamLine(_ stream: StreamCall) { self.streamLine.leave(stream) }

    /// Opens streams that wait, while more may be open.
    func serveStreamLine(in turn: inout Turn) {
        while self.streamLine.count > 0, self.hot.table.link == .ready, self.connection?.streams?.canOpen == true,
            let place = self.streamLine.popFirst()
        {
            self.attemptAgain(place, in: &turn)
        }
    }

    /// Makes the streams of the line wait for another connection, as calls do.
    func endStreamLine(in turn: inout Turn) {
        var places: [StreamLine.Place] = []
        while let place = self.streamLine.popFirst() { places.append(place) }
        for place in places { self.attemptAgain(place, in: &turn) }
    }

    private func attemptAgain(_ place: StreamLine.Place, in turn: inout Turn) {
        let request = self.request(of: place.task)
        let submission = self.hot.table.attemptAgain(
            place.key,
            place.task.priority,
            bytes: request.waitingLength,
            isReturning: true
        )
        self.follow(submission, place.task, place.key, request, place.task.priority, in: &turn)
    }

    // MARK: Ends

    /// A stream has ended because of the server, or locally. The server has been notified.
    func streamFailed(_ task: SocketTask, _ outcome: StreamOutcome, in turn: inout Turn) {
        guard let key = task.flight.key, let attempt = self.hot.table.endAttempt(key) else { return }
        let error = self.error(of: outcome, attempt)
        self.judge(error, on: attempt.connection, in: &turn)
        self.ended(attempt, error, in: &turn)
    }

    /// Ends a stream that is open by an error of this side. Without effect on any other.
    func fail(_ stream: StreamCall, _ error: SocketError, in turn: inout Turn) {
        self.connection(stream.flight.connection)?.streams?.fail(stream, error, in: &turn)
    }

    /// Ends the call of a stream with a local error, and notifies the server.
    func endStream(of task: SocketTask, _ error: SocketError, in turn: inout Turn) {
        guard let key = task.flight.key, let attempt = self.hot.table.remove(key) else { return }
        self.noteOrigin(of: attempt)
        self.sendCancel(of: attempt, in: &turn)
        var error = error
        error.endpoint = self.endpoint(of: attempt.connection)
        error.serial = attempt.serial
        self.complete(task, error, in: &turn)
    }

    /// Completes a stream whose deadline has passed, or that could not be opened in time.
    func expired(_ attempt: Attempt, _ stream: StreamCall, in turn: inout Turn) {
        let request = self.request(of: attempt.call)
        let isOpen = attempt.phase == .sent || attempt.phase == .queued
        guard isOpen || stream.flight.isInLine else {
            return self.complete(attempt.call, self.timedOut(attempt), in: &turn)
        }
        let endpoint = isOpen ? self.endpoint(of: attempt.connection) : self.driver.currentEndpoint
        let place = endpoint.map { "\($0)" } ?? "the server"
        let what =
            isOpen
            ? "the stream with \(place) did not end in time"
            : "no stream with \(place) became free in time, \(self.streamLine.count - 1) others waiting for one"
        let serial = attempt.serial.map { ", serial \($0)" } ?? ""
        self.complete(
            attempt.call,
            SocketError(
                .timeout,
                message: "\(what) (timeout or deadline of the request; type \(request.type)\(serial))",
                endpoint: endpoint,
                serial: attempt.serial,
                delivery: attempt.phase == .sent ? .sentUnknown : .notSent
            ),
            in: &turn
        )
    }

    private func error(of outcome: StreamOutcome, _ attempt: Attempt) -> SocketError {
        let endpoint = self.endpoint(of: attempt.connection)
        let stream =
            "the stream with \(endpoint), type \(self.request(of: attempt.call).type), "
            + "serial \(attempt.serial ?? 0),"
        let (code, why): (SocketError.Code, String) =
            switch outcome {
            case .violated(let violation): (.protocolViolation, "was cancelled: \(violation.complaint)")
            case .damaged: (.checksumMismatch, "was cancelled: a frame of it came with a wrong checksum")
            case .tooLong:
                (
                    .frameTooLarge,
                    """
                    was cancelled: an item of it is over the limit of \
                    \(self.configuration.socket.maximumPayloadLength) bytes (maximumPayloadLength)
                    """
                )
            case .tooMuchHeld:
                (
                    .queueFull,
                    """
                    was cancelled: more than \(self.configuration.streams?.maximumHeldBytes ?? 0) bytes of what came would \
                    wait on the connection (StreamPolicy.maximumHeldBytes); take items sooner
                    """
                )
            case .idle:
                (
                    .timeout,
                    """
                    was cancelled: nothing moved on it for \
                    \(self.configuration.streams?.idleLimit.map { "\($0)" } ?? "too long") (StreamPolicy.idleLimit)
                    """
                )
            default: (.connectionLost, "has ended")
            }
        return SocketError(
            code,
            message: "\(stream) \(why)",
            endpoint: endpoint,
            serial: attempt.serial,
            delivery: .sentUnknown
        )
    }

    // MARK: Payloads in pieces

    func receivedWhole(_ frame: Frame, onConnection id: ConnectionID, in turn: inout Turn) {
        guard let connection = self.connection(id) else { return }
        self.receivedWhole(frame, on: connection, in: &turn)
    }

    /// The answer to a plain call, or a push, arrived in pieces that cannot be joined.
    func received(
        brokenPieces type: UInt32,
        _ serial: UInt32,
        _ failure: PayloadFailure,
        onConnection id: ConnectionID,
        in turn: inout Turn
    ) {
        guard let connection = self.connection(id) else { return }
        let endpoint = connection.endpoint
        let limits = self.configuration
        let (code, why): (SocketError.Code, String) =
            switch failure {
            case .damaged: (.checksumMismatch, "a piece of it has a wrong checksum")
            case .tooLong:
                (
                    .frameTooLarge,
                    "it is over the limit of \(limits.socket.maximumPayloadLength) bytes (maximumPayloadLength)"
                )
            case .tooMuchHeld:
                (
                    .queueFull,
                    "too much of what came waits on the connection (StreamPolicy.maximumHeldBytes)"
                )
            case .differentPieces: (.protocolViolation, "its pieces differ in type, flags or status")
            }
        let frame = Frame(type: type, serial: serial)
        guard !self.format.isPush(frame) else {
            return self.pushes.receivedBroken(type, why, from: endpoint)
        }
        self.receive(frame, on: connection, isFinal: false, in: &turn) { _, _ in
            SocketError(
                code,
                message: "the answer of \(endpoint) to serial \(serial), which came in pieces, cannot be used: \(why)",
                endpoint: endpoint,
                serial: serial,
                delivery: .sentUnknown
            )
        }
    }
}

extension StreamViolation {
    /// The mistake of the server, in words.
    fileprivate var complaint: String {
        switch self {
        case .beyondWindow: "the server sent more than the stream's window allows"
        case .itemAfterEnd: "the server sent an item after the end of its items"
        case .endWithinItem: "the server ended its items in the middle of one"
        case .unexpectedItem: "the server sent an item, and on a stream of this kind it sends none"
        case .bodyInOpening: "its opening has a body"
        case .metadataOnItem: "the server sent metadata with an item"
        case .keyOnStream: "its opening has an idempotency key"
        case .differentPieces: "the pieces of an item differ in type, flags or status"
        case .flagNotAgreed: "an item has a flag that hello did not agree on"
        case .serialInUse: "its serial is in use"
        }
    }
}

extension SocketError {
    /// The error if no streams can be in the format; nil if they can.
    static func refusalOfStreams(in format: WireFormat) -> SocketError? {
        guard !format.supportsStreams else { return nil }
        return SocketError(
            .invalidArgument,
            message: """
                the wire format \(format) cannot have streams (SocketClient.Configuration.streams): \
                \(WireFormat.streamsNeed)
                """
        )
    }
}
