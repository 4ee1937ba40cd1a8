// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// The carrier of streams: opens them, and queues those that wait for one of the open streams to end.
///
/// A stream is a call, from its start to its completion, whose request is the stream's opening and whose answer is its
/// end: it has the same interceptors, retries, failover, tracing and metrics as other calls. Its items pass through its
/// ``StreamCall`` and the ``/HHSocket/StreamShell`` of its connection.
final class StreamCarrier: @unchecked Sendable {
    // Proof of Sendable: the constants are Sendable, or accessed only on the socket thread like the variables.
    let loop: SocketLoop
    let maximumItemLength: Int
    let reporter: CallReporter
    private let configuration: ClientConfiguration
    private let driver: any ConnectionDriver
    private let links: ClientLinks
    private let rules: FrameRules
    private let sealer: RequestSealer
    private let bodies: BodyWork
    private let timeouts: CallTimeouts
    /// The engine, which retains this object; nil once the client was released.
    private var engine: CallEngine?
    /// The streams that have begun, until they complete, by the identifiers of their tasks.
    private var runs: [Int: Run] = [:]
    /// The streams that wait until another has ended.
    private var line: WaitingLine<Entry>

    /// The largest number of unsent bytes that the system holds. Small calls overtake bytes that wait here, but none of
    /// those in the system.
    private static let unsentBytes = 128 << 10

    private struct Run {
        let flight: CallFlight
        let call: StreamCall
    }

    /// An entry of the queue. The stream may have been removed.
    private struct Entry {
        let run: Run
        let key: DispatchKey

        var isStub: Bool { !self.run.call.flight.isInLine || self.run.flight.state.key != self.key }
    }

    init(
        _ configuration: ClientConfiguration,
        _ rules: FrameRules,
        sealer: RequestSealer,
        driver: any ConnectionDriver,
        links: ClientLinks,
        bodies: BodyWork,
        timeouts: CallTimeouts,
        reporter: CallReporter,
        loop: SocketLoop
    ) {
        self.loop = loop
        self.maximumItemLength = configuration.socket.maximumPayloadLength
        self.configuration = configuration
        self.driver = driver
        self.links = links
        self.rules = rules
        self.sealer = sealer
        self.bodies = bodies
        self.timeouts = timeouts
        self.reporter = reporter
        self.line = WaitingLine(maximumCount: configuration.maximumWaiting)
    }

    /// Sets the engine. It retains this object, which retains it until ``invalidate()``: a stream that its user has
    /// released may still have work on the socket thread.
    func attach(_ engine: CallEngine) { self.engine = engine }

    /// Forgets all streams, which have completed, after the client was released.
    func invalidate() {
        self.engine = nil
        self.runs = [:]
        // The entries of streams that have left the line retain their calls.
        self.line = WaitingLine(maximumCount: self.configuration.maximumWaiting)
    }

    /// The shell of a connection's streams, where hello agreed on them.
    func shell(on link: Link<FrameLanguage>, _ agreement: Agreement?) -> StreamShell<ClientStreams>? {
        guard let policy = self.configuration.streams, let agreement, let terms = self.terms(by: agreement) else {
            return nil
        }
        let settings = policy.settings(
            terms,
            flags: agreement.flags,
            format: self.rules.format,
            maximumPayloadLength: self.maximumItemLength
        )
        link.limitUnsentBytes(Self.unsentBytes)
        return StreamShell(ClientStreams(settings), over: link)
    }

    /// The terms of streams that hello agreed on, and this client's policy.
    private func terms(by agreement: Agreement?) -> StreamTerms? {
        guard let policy = self.configuration.streams, var terms = agreement?.streams else { return nil }
        terms.maximumStreams = min(terms.maximumStreams, policy.streamLimit)
        return terms
    }

    // MARK: Streams

    /// Begins the call of a stream.
    func begin(_ call: StreamCall, of task: SocketTask, for engine: CallEngine, in turn: inout Turn) {
        // Nil if cancelled meanwhile: the cancellation, which was also submitted, completes the task.
        guard let (priority, context) = task.begin() else { return }
        call.begins(asTask: task.taskIdentifier)
        let flight = CallFlight(.task(task), task.originalRequest)
        if self.engine != nil { self.runs[task.taskIdentifier] = Run(flight: flight, call: call) }
        engine.begin(flight, priority, context: context, in: &turn)
    }

    private func call(of flight: CallFlight) -> StreamCall? {
        flight.task.flatMap { self.runs[$0.taskIdentifier]?.call }
    }

    /// The identifier of a stream on the connection that it is, or was last, open on, and the streams of that.
    private func openStream(of call: StreamCall) -> (id: StreamID, streams: StreamShell<ClientStreams>)? {
        guard let id = call.flight.id, let streams = self.links.connection(call.flight.connection)?.streams else {
            return nil
        }
        return (id, streams)
    }

    /// The traffic of a stream that is open on this connection; nil otherwise.
    ///
    /// - Parameter asksSystem: Whether to query the system for the bytes that the peer has acknowledged.
    func traffic(of call: StreamCall, on connection: ConnectionID, asksSystem: Bool) -> StreamTraffic? {
        guard let id = call.flight.id, let connection = self.links.connection(connection),
            let streams = connection.streams, streams.isOpen(id), let items = streams.with({ $0.traffic(id) })
        else { return nil }
        var received = items.received
        if let arriving = connection.link.arriving(), streams.with({ $0.stream(of: arriving.serial) }) == id {
            received += UInt64(max(0, arriving.receivedBytes))
        }
        let context = asksSystem ? connection.link.context : nil
        let acknowledged = context.flatMap { AcknowledgedBytes.count(of: $0.channel) }
        return StreamTraffic(
            sent: items.sent,
            received: received,
            acknowledgedOnConnection: acknowledged.map { UInt64(max(0, $0)) }
        )
    }

    /// Allows the server to send this amount on an open stream before the application has taken it, if it is more than
    /// the window of hello.
    func widen(_ call: StreamCall, on connection: ConnectionID, to window: UInt64, in turn: inout Turn) {
        guard let id = call.flight.id, let streams = self.links.connection(connection)?.streams else { return }
        streams.change(in: &turn) { $0.widen(id, to: window) }
    }

    /// Notifies the streams of a connection that the client fails over, or that the server is shutting down.
    func drains(_ connection: ClientConnection) {
        for call in self.runs.values.map(\.call) where call.flight.connection == connection.id {
            if let id = call.flight.id, connection.streams?.isOpen(id) == true { call.drains() }
        }
    }

    // MARK: The line at the limit

    /// Opens streams that wait, while more may be open.
    private func serveLine(in turn: inout Turn) {
        while self.line.count > 0, let engine = self.engine, engine.hot.isReady,
            self.links.current?.streams?.with({ $0.canOpen }) == true, let entry = self.popFirst()
        {
            engine.attemptAgain(entry.run.flight, entry.key, isReturning: true, in: &turn)
        }
    }

    /// Makes the streams of the line wait for another connection, as calls do.
    func endLine(in turn: inout Turn) {
        var entries: [Entry] = []
        while let entry = self.popFirst() { entries.append(entry) }
        for entry in entries { self.engine?.attemptAgain(entry.run.flight, entry.key, isReturning: true, in: &turn) }
    }

    private func popFirst() -> Entry? {
        guard self.line.length > 0, let entry = self.line.popFirst(unless: { $0.isStub }) else { return nil }
        entry.run.call.isQueued(false)
        return entry
    }

    private func append(_ entry: Entry, _ priority: FramePriority) {
        entry.run.call.isQueued(true)
        self.line.append(entry, priority, cost: 0)
    }

    /// A stream that may be in the line has ended.
    private func removeFromLine(_ call: StreamCall) {
        guard call.flight.isInLine else { return }
        call.isQueued(false)
        self.line.makeStub(cost: 0) { $0.isStub }
    }
}

extension StreamCarrier: CallCarrier {
    // MARK: Checks

    func check(_ request: SocketRequest, of flight: CallFlight, in turn: inout Turn) throws(SocketError) {
        try self.sealer.check(request, now: turn.now, endpoint: self.driver.currentEndpoint)
        if let call = self.call(of: flight) { try self.check(request, for: call) }
    }

    /// Checks options that only the request of a stream must not have.
    private func check(_ request: SocketRequest, for call: StreamCall) throws(SocketError) {
        guard self.configuration.streams != nil else {
            throw SocketError(
                .featureNotAgreed,
                message: """
                    a stream (type \(request.type)) takes the feature streams, which this client does not ask for; set \
                    SocketClient.Configuration.streams
                    """
            )
        }
        guard !call.kind.clientStreams || request.body.readableBytes == 0 else {
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
        guard call.flight.mayOpenAgain else {
            throw call.flight.lastError
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
    func deadline(of request: SocketRequest, within limit: NIODeadline, now: NIODeadline) -> NIODeadline {
        let isLimited = request.options.timeout != nil || request.options.deadline != nil
        guard isLimited else { return .distantFuture }
        let end = request.options.timeout.map { now.advanced(clamping: TimeAmount(clamping: $0)) } ?? .distantFuture
        return min(end, request.options.deadline ?? .distantFuture)
    }

    // MARK: Opening

    /// Opens a stream, or queues it until a stream may be opened.
    func carry(
        _ departure: Departure,
        serial: UInt32,
        on connection: ClientConnection?,
        for engine: CallEngine,
        in turn: inout Turn
    ) throws(SocketError) -> Carried {
        let (flight, request) = (departure.flight, departure.flight.request)
        guard engine.hot.link != nil, let connection, let call = self.call(of: flight) else {
            throw self.driver.notConnected()
        }
        guard let streams = connection.streams else { throw self.hasNoStreams(request, connection) }
        guard streams.with({ $0.canOpen }) else {
            let entry = Entry(run: Run(flight: flight, call: call), key: departure.key)
            try self.standInLine(entry, departure.priority, on: connection)
            return .parked
        }
        if flight.state.deflated == nil, let policy = try self.sealer.mustDeflate(request, for: connection.origin) {
            self.bodies.deflate(request.body, by: policy, of: departure, for: engine)
            return .parked
        }
        let sealed = try self.sealer.seal(
            request,
            of: flight,
            for: connection.origin,
            now: turn.now,
            endpoint: self.driver.currentEndpoint
        )
        let customFields = try self.sealer.customFields(of: request)
        try self.rules.check(Frame(type: sealed.type, serial: serial, payload: sealed.payload))
        // Until the opening is sent.
        engine.isQueued(departure.key, until: flight.state.deadline)
        self.reporter.count(\.openedStreams)
        connection.opens(serial, cancelledBy: self.cancellation(of: request, customFields, serial: serial))
        let (kind, priority, now) = (call.kind, departure.priority, turn.now)
        let id = streams.with {
            $0.open(
                type: sealed.type,
                serial: serial,
                payload: sealed.payload,
                kind: kind,
                priority: priority,
                now: now
            )
        }
        streams.add(call, as: id, serial: serial)
        call.opened(
            id,
            on: connection.id,
            at: StreamAddress(serial: serial, endpoint: connection.endpoint),
            compression: self.itemCompression(of: request, connection.agreement),
            limits: self.terms(by: connection.agreement)?.reportLimits ?? (0, 0),
            in: &turn
        )
        streams.tend(in: &turn)
        return .reported
    }

    /// The cancel of a stream; nil where it is as any other.
    private func cancellation(of request: SocketRequest, _ customFields: [UInt8]?, serial: UInt32) -> Frame? {
        let body = request.options.cancellationBody
        guard body != nil || customFields != nil, var frame = self.rules.format.cancel(serial: serial) else {
            return nil
        }
        if let body { frame.payload = body }
        frame.customFields = customFields
        return frame
    }

    /// The policy for compressing the items that a client sends; nil if they are not compressed.
    private func itemCompression(of request: SocketRequest, _ agreement: Agreement?) -> CompressionPolicy? {
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

    private func standInLine(
        _ entry: Entry,
        _ priority: FramePriority,
        on connection: ClientConnection
    ) throws(SocketError) {
        guard self.line.hasRoom(for: 0) else {
            throw SocketError(
                .queueFull,
                message: """
                    \(connection.streams?.count ?? 0) streams are open, of \
                    \(self.terms(by: connection.agreement)?.maximumStreams ?? 0) that may be (maximumStreams), and \
                    \(self.line.count) wait for one of them to end already (maximumWaiting)
                    """,
                endpoint: self.driver.currentEndpoint
            )
        }
        self.append(entry, priority)
    }

    // MARK: Ends

    func abandon(_ attempt: CallAttempt, in turn: inout Turn) {
        guard let call = self.call(of: attempt.flight), let (id, streams) = self.openStream(of: call) else { return }
        streams.change(in: &turn) { $0.cancel(id) }
    }

    func mayRepeat(_ flight: CallFlight) -> Bool { self.call(of: flight)?.flight.mayOpenAgain ?? true }

    func attemptFailed(_ flight: CallFlight, _ error: SocketError) {
        self.call(of: flight)?.attemptFailed(error)
    }

    /// The error of a stream whose deadline has passed, or that could not be opened in time.
    func timedOut(_ attempt: CallAttempt, by limit: TimeLimit, for engine: CallEngine) -> SocketError {
        let isOpen = attempt.phase == .sent || attempt.phase == .queued
        guard isOpen || self.call(of: attempt.flight)?.flight.isInLine == true else {
            return self.timeouts.error(of: attempt, by: limit, for: engine)
        }
        let endpoint = isOpen ? self.links.endpoint(of: attempt.connection) : self.driver.currentEndpoint
        let server = endpoint.map { "\($0)" } ?? "the server"
        let what =
            isOpen
            ? "the stream with \(server) did not end in time"
            : "no stream with \(server) became free in time, \(self.line.count - 1) others waiting for one"
        let serial = attempt.serial.map { ", serial \($0)" } ?? ""
        let type = attempt.flight.request.type
        return SocketError(
            .timeout,
            message: "\(what) (timeout or deadline of the request; type \(type)\(serial))",
            endpoint: endpoint,
            serial: attempt.serial,
            delivery: attempt.phase == .sent ? .sentUnknown : .notSent
        )
    }

    func completes(_ flight: CallFlight) {
        guard let call = flight.task.flatMap({ self.runs.removeValue(forKey: $0.taskIdentifier) })?.call else { return }
        flight.addSent(call.flight.sentBytes)
        self.removeFromLine(call)
    }
}

extension StreamCarrier: StreamCallOwner {
    func visit(_ call: StreamCall, in turn: inout Turn) -> Bool {
        guard let (id, streams) = self.openStream(of: call) else { return false }
        streams.visit(call, id, in: &turn)
        return true
    }

    func release(_ call: StreamCall, in turn: inout Turn) -> Bool {
        guard let (id, streams) = self.openStream(of: call) else { return false }
        streams.change(in: &turn) { $0.release(id) }
        return true
    }

    func endByUser(_ call: StreamCall, _ error: SocketError, in turn: inout Turn) {
        guard let (id, streams) = self.openStream(of: call), streams.isOpen(id),
            let key = self.runs[call.flight.identifier]?.flight.state.key
        else { return }
        self.engine?.end(key, error, in: &turn)
    }

    func ended(_ call: StreamCall, _ end: StreamEnd, in turn: inout Turn) {
        switch end.outcome {
        // The code that cancelled it, or lost the connection, ends the call.
        case .cancelled, .connectionLost, .drained, .inputClosed, .failed: break
        case .answered:
            if let answer = end.answer {
                self.links.connection(call.flight.connection)?.receivedWhole(ArrivedFrame(answer), in: &turn)
            }
        case .violated, .damaged, .tooLong, .tooMuchHeld, .idle:
            if let engine = self.engine, let key = self.runs[call.flight.identifier]?.flight.state.key,
                let attempt = engine.endAttempt(key)
            {
                engine.failed(attempt, self.error(of: end.outcome, attempt), in: &turn)
            }
        }
        self.serveLine(in: &turn)
    }

    private func error(of outcome: StreamOutcome, _ attempt: CallAttempt) -> SocketError {
        let endpoint = self.links.endpoint(of: attempt.connection)
        let stream =
            "the stream with \(endpoint), type \(attempt.flight.request.type), serial \(attempt.serial ?? 0),"
        let (code, why): (SocketError.Code, String) =
            switch outcome {
            case .violated(let violation): (.protocolViolation, "was cancelled: \(violation.complaint)")
            case .damaged: (.checksumMismatch, "was cancelled: a frame of it came with a wrong checksum")
            case .tooLong:
                (
                    .frameTooLarge,
                    """
                    was cancelled: an item of it is over the limit of \(self.maximumItemLength) bytes (maximumPayloadLength)
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
}

extension StreamTerms {
    /// The amounts that a reader may take without a report: at the end of a batch, and before that. The unreported
    /// items of all readers together must not stop a sender.
    fileprivate var reportLimits: (quiet: UInt64, most: UInt64) {
        let window = UInt64(self.client.stream)
        let share = UInt64(self.client.connection) / 4 / UInt64(max(1, self.maximumStreams))
        let most = min(8_192, max(1, window / 8), max(1, share))
        return (window >= 4 * StreamFrames.maximumCost - 64 ? most : 0, most)
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
