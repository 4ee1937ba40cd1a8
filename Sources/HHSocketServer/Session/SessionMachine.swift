// SPDX-License-Identifier: Apache-2.0
import HHSocketLink

/// Decides, for one connection, which answer belongs to which frame, and tracks the requests in flight. It does no I/O.
///
/// `Work` represents a running handler that can be stopped: a task in the server, a string in the tests.
///
/// Three kinds of errors are distinguished. A frame that the protocol forbids but whose end is known (reserved serial,
/// duplicate serial, wrong checksum) is answered and forgotten. Bytes whose framing is in doubt do not get here: the
/// decoder ends the stream. A legal race (a cancel that is too late, the result of a handler that was stopped) is
/// dropped.
struct SessionMachine<Work> {
    /// The way in which the router would handle a frame's type.
    enum Handling: Hashable {
        case none
        case synchronous
        case asynchronous
    }

    /// The number of a handler's run. A serial does not identify it, because it may be reused while a cancelled handler
    /// still runs. Runs are numbered from 1; where answers are kept in order, requests that need no run are numbered
    /// too.
    typealias RunID = UInt64

    /// The reason why a valid request is not begun.
    enum Refusal: Error, Hashable {
        case inFlight, bytes, rate, concurrency
        /// Too many requests of its type, or of its client's identity, are in flight.
        case type, identity
        /// An admission refuses it, with this status.
        case admission(Status)
        /// Its body is longer than its type allows.
        case bodyLength
        /// Its deadline has passed.
        case deadline
        /// The client must say hello and has not.
        case noHello
        /// The body is compressed, and the client is a stranger.
        case compression
        /// It is to open a stream, on which hello has not agreed.
        case noStreams
        /// It is to open a stream, and has a body where it may have none, or an idempotency key.
        case opening
        /// The maximum number of streams is open.
        case streams
    }

    /// The request of a frame.
    enum Reception {
        /// A request that may be run as far as this connection knows. The caller checks the other limits, then calls
        /// ``admit(_:bytes:refusal:)``, in the same turn.
        case admit(Admission)
        /// Answer with this status, the frame's own type and serial, and no payload.
        case answer(Status, RunID?)
        /// Stop this handler; nothing is answered.
        case stop(Work?, RunID)
        case ignore
    }

    /// A request that may be run.
    struct Admission: Hashable {
        let serial: UInt32
        let isAsynchronous: Bool
        /// Its number where answers are kept in order.
        let number: RunID?
    }

    /// The way in which a request is begun.
    enum Start: Hashable {
        /// Run the synchronous handler and answer.
        case runSynchronously(RunID?)
        /// Start the handler, then call ``started(_:serial:run:)``, in the same turn.
        case start(RunID)
        /// An answer, as ``Reception/answer(_:_:)``.
        case answer(Status, RunID?)
    }

    /// A request that was stopped because its time is over.
    struct Expired {
        var work: Work?
    }

    /// The step that follows a handler's result.
    enum ResultAction: Hashable {
        case send
        /// The result is no longer needed.
        case drop
    }

    private struct Slot {
        var run: RunID
        var work: Work?
        /// The size of its body, in bytes.
        var bytes: Int
    }

    /// The maximum number of requests in flight; it grows when the client's identity becomes known.
    var maximumInFlight: Int
    private let format: WireFormat
    private let counts: SessionCounts
    private let requestSerials: ClosedRange<UInt32>
    private var slots: [UInt32: Slot] = [:]
    /// The number of stopped handlers that have not returned yet. Their serials are free again, but they still run:
    /// without a limit a client could accumulate them by sending and cancelling requests in turn.
    private var stopped = 0
    private var lastRun: RunID = 0
    /// The number of bytes of the bodies of requests whose handler runs. Bodies of stopped handlers count until these
    /// return.
    private(set) var bodyBytes = 0
    private var outstandingPings = 0
    /// The number of frames since it was last taken that request nothing or cannot be answered usefully.
    private(set) var unproductiveFrames = 0
    /// The serial of a server's ping; nil if the format has none.
    private let pingSerial: UInt32?
    /// Whether only the server pings.
    private let onlyServerPings: Bool
    private let numbersAll: Bool
    private(set) var isDraining = false
    /// Whether the client was notified of the drain, and closes when it has its answers.
    private(set) var awaitsClientClose = false
    private(set) var inputIsClosed = false
    private(set) var isClosed = false

    /// - Parameters:
    ///   - numbersAll: Whether requests that are answered without a run have a number too.
    ///   - counts: The counts of the event loop.
    init(
        maximumInFlight: Int,
        format: WireFormat = .standard,
        numbersAll: Bool = false,
        counts: SessionCounts = SessionCounts()
    ) {
        self.counts = counts
        self.maximumInFlight = maximumInFlight
        self.numbersAll = numbersAll
        self.format = format
        let layout = format.layout
        self.requestSerials = layout.requestSerials
        self.pingSerial = layout.heartbeat?.serverSerial
        self.onlyServerPings = layout.heartbeat?.pingedBy == .server
    }

    /// The counts since they were last taken.
    var statistics: ServerStatistics { self.counts.statistics }

    /// Whether the maximum number of requests is in flight.
    var isAtLimit: Bool { self.slots.count >= self.maximumInFlight }

    /// Requests whose handler runs and whose answer is awaited.
    var inFlight: Int { self.slots.count }

    /// Whether the connection may close once every answer has been flushed.
    var isFinished: Bool {
        (self.inputIsClosed || (self.isDraining && !self.awaitsClientClose)) && self.slots.isEmpty
    }

    // MARK: From the wire

    mutating func receive(type: UInt32, serial: UInt32, isCorrupt: Bool = false, handling: Handling) -> Reception {
        guard !self.isClosed else { return .ignore }
        if self.format.isControlType(type) {
            guard !isCorrupt else { return self.receivedCorruptControl(type: type, serial: serial) }
            return self.receivedControl(type: type, serial: serial)
        }
        let number = self.nextNumber()
        guard !isCorrupt else {
            self.counts.count(.badChecksums)
            self.unproductiveFrames += 1
            return .answer(.lostPacket, number)
        }
        self.counts.count(.requests)
        guard self.requestSerials.contains(serial), self.slots.isEmpty || self.slots[serial] == nil else {
            self.counts.count(.illegalRequests)
            self.unproductiveFrames += 1
            return .answer(.illegalFormat, number)
        }
        guard !self.isDraining else {
            self.counts.count(.refusedWhileDraining)
            return .answer(.draining, number)
        }
        switch handling {
        case .none:
            self.counts.count(.unknownTypes)
            self.unproductiveFrames += 1
            return .answer(.undefinedType, number)
        case .synchronous:
            return .admit(Admission(serial: serial, isAsynchronous: false, number: number))
        case .asynchronous:
            guard self.slots.count < self.maximumInFlight, self.stopped < self.maximumInFlight else {
                return .answer(self.status(of: .inFlight), number)
            }
            return .admit(Admission(serial: serial, isAsynchronous: true, number: number))
        }
    }

    /// Begins a request, unless a limit prevents it.
    ///
    /// - Parameter bytes: The number of bytes of the body.
    mutating func admit(_ admission: Admission, bytes: Int, refusal: Refusal?) -> Start {
        if let refusal { return .answer(self.status(of: refusal), admission.number) }
        guard admission.isAsynchronous else { return .runSynchronously(admission.number) }
        let run = admission.number ?? self.nextRun()
        self.slots[admission.serial] = Slot(run: run, bytes: bytes)
        self.bodyBytes += bytes
        return .start(run)
    }

    private mutating func nextRun() -> RunID {
        self.lastRun += 1
        return self.lastRun
    }

    /// Returns the number of a new request; nil if requests that need no run have none.
    private mutating func nextNumber() -> RunID? { self.numbersAll ? self.nextRun() : nil }

    /// Counts a refusal. Returns its status.
    private mutating func status(of refusal: Refusal) -> Status {
        switch refusal {
        case .deadline:
            self.counts.count(.deadlinesExceeded)
            return .deadlineExceeded
        case .noHello, .noStreams, .opening:
            self.counts.count(.illegalRequests)
            self.unproductiveFrames += 1
            return .illegalFormat
        case .compression:
            self.counts.count(.illegalRequests)
            self.unproductiveFrames += 1
            return .noPermission
        case .admission(let status):
            self.counts.count(.refusedByAdmission)
            return status
        case .bodyLength:
            self.counts.count(.illegalRequests)
            return .illegalLength
        case .inFlight: break
        case .type: self.counts.count(.overloadsOfType)
        case .identity: self.counts.count(.overloadsOfIdentity)
        case .bytes: self.counts.count(.overloadsOfMemory)
        case .rate: self.counts.count(.overloadsOfRate)
        case .concurrency: self.counts.count(.overloadsOfConcurrency)
        case .streams: self.counts.count(.overloadsOfStreams)
        }
        self.counts.count(.overloads)
        return .overloaded
    }

    /// Records a request whose body cannot be read.
    ///
    /// - Returns: Its number where answers are kept in order.
    mutating func receivedIllegal() -> RunID? {
        self.counts.count(.requests)
        self.counts.count(.illegalRequests)
        self.unproductiveFrames += 1
        return self.nextNumber()
    }

    /// Ends a request in flight whose time is over. Returns nil if it has been answered, or was stopped.
    ///
    /// - Parameter isOurs: Whether it exceeded the server's timeout.
    mutating func expire(serial: UInt32, run: RunID, isOurs: Bool = false) -> Expired? {
        guard let slot = self.slots[serial], slot.run == run else { return nil }
        self.slots[serial] = nil
        self.stopped += 1
        if isOurs { self.counts.count(.handlerTimeouts) } else { self.counts.count(.deadlinesExceeded) }
        return Expired(work: slot.work)
    }

    /// Ends a request in flight for a reason other than its time or a cancel. Returns nil if it has been answered, or
    /// was stopped.
    mutating func end(serial: UInt32, run: RunID) -> Expired? {
        guard let slot = self.slots[serial], slot.run == run else { return nil }
        self.slots[serial] = nil
        self.stopped += 1
        return Expired(work: slot.work)
    }

    func isInFlight(_ serial: UInt32) -> Bool { self.slots[serial] != nil }

    /// The serials of valid requests that a synchronous handler may answer immediately, as it nearly always may; nil if
    /// there are none now. Report such a request by ``receivedOnFastPath(_:)``, any other by
    /// ``receive(type:serial:isCorrupt:handling:)``.
    var serialsOnFastPath: ClosedRange<UInt32>? {
        self.slots.isEmpty && !self.isClosed && !self.isDraining ? self.requestSerials : nil
    }

    /// Records valid requests that are answered immediately.
    mutating func receivedOnFastPath(_ count: Int = 1) {
        self.counts.count(.requests, by: count)
    }

    /// Counts an unproductive frame that is not counted as such here.
    mutating func receivedUnproductive() {
        self.unproductiveFrames += 1
    }

    /// Returns the number of unproductive frames since the last call.
    mutating func takeUnproductiveFrames() -> Int {
        defer { self.unproductiveFrames = 0 }
        return self.unproductiveFrames
    }

    private mutating func receivedCorruptControl(type: UInt32, serial: UInt32) -> Reception {
        self.counts.count(.badChecksums)
        self.unproductiveFrames += 1
        // Control frames other than a heartbeat are never answered; nor is a frame that looks like an answer to our
        // ping.
        guard self.format.isHeartbeatRequest(type: type, serial: serial), !self.onlyServerPings,
            !self.isAnswerToPing(serial)
        else { return .ignore }
        return .answer(.lostPacket, nil)
    }

    /// Records bytes that are not a frame, in a format with separators.
    ///
    /// - Returns: Whether the answer is ``Status/illegalFormat``, with this type and serial: they belong to a request
    ///   that is not in flight.
    mutating func receivedMalformed(type: UInt32?, serial: UInt32?) -> Bool {
        guard !self.isClosed else { return false }
        self.counts.count(.illegalRequests)
        self.unproductiveFrames += 1
        guard let type, let serial, self.format.isCallType(type), self.requestSerials.contains(serial) else {
            return false
        }
        return self.slots[serial] == nil
    }

    private mutating func receivedControl(type: UInt32, serial: UInt32) -> Reception {
        if self.format.isHeartbeatAnswer(type: type) {
            if self.outstandingPings > 0 { self.outstandingPings -= 1 } else { self.unproductiveFrames += 1 }
            return .ignore
        }
        if self.format.isHeartbeatRequest(type: type, serial: serial) {
            if self.isAnswerToPing(serial) {
                self.outstandingPings -= 1
                return .ignore
            }
            self.unproductiveFrames += 1
            // Where only the server pings, an answer would be answered in turn, without end.
            guard !self.onlyServerPings else { return .ignore }
            self.counts.count(.heartbeatsAnswered)
            return .answer(.ok, nil)
        }
        switch type {
        case self.format.layout.cancel?.type:
            guard let slot = self.slots.removeValue(forKey: serial) else {
                self.counts.count(.ignoredControlFrames)
                self.unproductiveFrames += 1
                return .ignore
            }
            self.stopped += 1
            self.counts.count(.cancelledRequests)
            return .stop(slot.work, slot.run)
        default:
            self.counts.count(.ignoredControlFrames)
            self.unproductiveFrames += 1
            return .ignore
        }
    }

    private func isAnswerToPing(_ serial: UInt32) -> Bool {
        self.outstandingPings > 0 && serial == self.pingSerial
    }

    /// Records that the bytes can no longer be split into frames.
    mutating func lostFraming() {
        self.counts.count(.protocolErrors)
    }

    /// The client will send nothing more, but may still read.
    mutating func closedInput() {
        self.inputIsClosed = true
    }

    // MARK: From the handlers

    mutating func started(_ work: Work, serial: UInt32, run: RunID) {
        guard self.slots[serial]?.run == run else { return }
        self.slots[serial]?.work = work
    }

    /// Records that a handler returned or threw.
    ///
    /// - Parameter bytes: The length of the request's body in bytes.
    mutating func finished(serial: UInt32, run: RunID, bytes: Int = 0) -> ResultAction {
        self.bodyBytes -= bytes
        guard self.slots[serial]?.run == run else {
            self.stopped -= 1
            return .drop
        }
        self.slots[serial] = nil
        return .send
    }

    // MARK: From this side

    /// Records that a ping is about to be sent, with the format's serial for a server's ping.
    mutating func pinged() {
        self.outstandingPings += 1
        self.counts.count(.pingsSent)
    }

    /// Refuses requests from now on; those in flight are finished.
    ///
    /// - Parameter isAnnounced: Whether the client is notified, and closes the connection itself.
    mutating func drain(isAnnounced: Bool = false) {
        self.isDraining = true
        if isAnnounced { self.awaitsClientClose = true }
    }

    /// Frees memory that many requests in flight have left behind.
    mutating func releaseRest() {
        if self.slots.isEmpty, self.slots.capacity > 0 { self.slots = [:] }
    }

    /// Ends the connection, and returns the work that is to be stopped.
    mutating func close() -> [Work] {
        self.isClosed = true
        defer {
            self.stopped += self.slots.count
            self.slots = [:]
        }
        return self.slots.values.compactMap(\.work)
    }
}
