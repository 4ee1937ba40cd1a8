import HHSocket
import NIOConcurrencyHelpers
import NIOCore

@testable import HHSocketRPC

/// A connection in virtual time, which does what a history says. Calls on it run on the socket thread as far as the client
/// can tell: one thing after the other, on the one thread that the history runs on.
final class SimulatedConnection: FrameCarrier, @unchecked Sendable {
    // Proof of Sendable: a history runs on one thread, and so does all that is submitted in it. Interceptors submit from other
    // threads, into what a lock guards.
    enum Link: Equatable {
        case offline, connecting
        case ready(ConnectionID)
    }

    private struct Queued {
        var frame: Frame
        var priority: FramePriority
    }

    private struct Inbox {
        var submissions: [Submission] = []
        var isInvalidated = false
    }

    let format: WireFormat
    let maximumPayloadLength = 1_000
    let callbackQueue = CallbackQueue.socketThread
    /// Told of everything; taken back by ``invalidate()``.
    var consumer: ClientCore?

    /// The time of this world, which the history moves on.
    private(set) var time = NIODeadline.uptimeNanoseconds(1_000_000_000_000)
    /// When the present turn began.
    private var turnTime = NIODeadline.uptimeNanoseconds(0)
    private var isInTurn = false
    private(set) var link = Link.offline
    /// Whether the ready connection's server is about to end.
    private(set) var isLeft = false
    private(set) var draining: [ConnectionID] = []
    var isClosed = false
    var isNetworkReachable = true
    /// What hello leads to on the next connection.
    var agreement: Agreement?
    /// Whether peers read. While they do not, frames queue.
    private(set) var isPeerReading = true
    /// Whether the client wants nothing more to be read. What was read by then still comes.
    private(set) var isReadingSuspended = false
    /// Set while what was read is handed over.
    private var isHandingOver = false
    private var queues: [ConnectionID: [Queued]] = [:]
    private var lastConnection: UInt64 = 0
    private let inbox = NIOLockedValueBox(Inbox())
    /// Told, on any thread, that something was submitted, or refused.
    private let submitted: @Sendable () -> Void
    private(set) var timer = NIODeadline.distantFuture

    /// The last frame that left.
    private(set) var lastFrame: Frame?
    // What a step has brought, until ``take()``.
    private var output = Output()
    /// A promise that the client has broken.
    private(set) var broken: String?

    /// What the client did.
    struct Output: Equatable {
        /// What left, in order.
        var wire: [String] = []
        var pulls = 0
        var suspicions = 0
        var failures: [String] = []
    }

    init(format: WireFormat, submitted: @escaping @Sendable () -> Void = {}) {
        self.format = format
        self.submitted = submitted
    }

    func take() -> Output {
        defer { self.output = Output() }
        return self.output
    }

    // MARK: What the client asks

    let currentEndpoint: Endpoint? = Endpoint(host: "simulated", port: 1)
    let lastError: SocketError? = nil
    func notConnected() -> SocketError { SocketError(.notConnected, message: "offline") }
    var closedByUser: SocketError { SocketError(.cancelled, message: "closed") }

    func submit(_ submission: Submission) -> Bool {
        defer { self.submitted() }
        return self.inbox.withLockedValue { inbox in
            guard !inbox.isInvalidated else { return false }
            inbox.submissions.append(submission)
            return true
        }
    }

    /// The time of the present turn. As on a socket it stands still until the next, and whoever looks at it outside a turn would
    /// see the time of some turn before.
    var now: NIODeadline {
        if !self.isInTurn { self.broken = "the time was looked at outside a turn" }
        return self.turnTime
    }

    func turn(_ body: () -> Void) {
        guard !self.isInTurn else { return body() }
        self.isInTurn = true
        self.turnTime = self.time
        body()
        self.consumer?.turnEnds()
        self.isInTurn = false
        self.consumer?.turnEnded()
    }
    func setConsumerTimer(_ deadline: NIODeadline) { self.timer = deadline }
    func callBack(_ callback: SocketCallback) { callback.run() }
    func customFields(_ header: [String: [UInt8]]) throws(SocketError) -> [UInt8]? { nil }

    func send(_ frame: Frame, _ priority: FramePriority) throws(SocketError) -> Bool {
        guard case .ready(let id) = self.link, !self.isLeft else {
            self.broken = "a frame was sent although nothing is ready: \(frame)"
            throw self.notConnected()
        }
        guard frame.payload.readableBytes <= self.maximumPayloadLength else {
            throw SocketError(.frameTooLarge, message: "too large")
        }
        return self.put(frame, priority, id)
    }

    var isDelivering: Bool {
        self.isHandingOver && self.inbox.withLockedValue { $0.submissions.isEmpty && !$0.isInvalidated }
    }

    func canSendAtOnce(length: Int) -> Bool {
        guard self.format == .standard, case .ready(let id) = self.link else { return false }
        return self.isPeerReading && length <= self.maximumPayloadLength && self.queues[id] == nil
    }

    func resume(_ continuation: UnsafeContinuation<Void, Never>) { continuation.resume() }

    func sendAtOnce(type: UInt32, serial: UInt32, _ payload: ByteBuffer) {
        guard case .ready(let id) = self.link, !self.isLeft else {
            return self.broken = "a frame was sent at once although nothing is ready: \(serial)"
        }
        self.leaves(Frame(type: type, serial: serial, payload: payload), id)
    }

    func send(_ frame: Frame, _ priority: FramePriority, on id: ConnectionID) {
        guard self.link == .ready(id) || self.draining.contains(id) else { return }
        _ = self.put(frame, priority, id)
    }

    private func put(_ frame: Frame, _ priority: FramePriority, _ id: ConnectionID) -> Bool {
        guard self.isPeerReading else {
            self.queues[id, default: []].append(Queued(frame: frame, priority: priority))
            return false
        }
        self.leaves(frame, id)
        return true
    }

    private func leaves(_ frame: Frame, _ id: ConnectionID) {
        self.lastFrame = frame
        let kind = frame.type == FrameType.cancel ? "cancel" : "request"
        self.output.wire.append("\(kind) \(frame.serial) '\(String(buffer: frame.payload))' on \(id.number)")
    }

    func setReading(isSuspended: Bool) { self.isReadingSuspended = isSuspended }
    func pullForward() { self.output.pulls += 1 }
    func suspect(_ id: ConnectionID) { self.output.suspicions += 1 }

    func serverFails(_ endpoint: Endpoint, wrong: Int, calls: Int) {
        self.output.failures.append("\(wrong) of \(calls)")
    }

    func leave(_ id: ConnectionID, _ departure: ServerDeparture) {
        guard self.link == .ready(id), !self.isLeft else { return }
        self.isLeft = true
        self.consumer?.connectionIsLeaving(id)
        self.consumer?.attemptIsPutOff()
    }

    func finishDraining(_ id: ConnectionID) {
        if !self.draining.contains(id) { self.broken = "connection \(id.number) is finished, and does not drain" }
        self.draining.removeAll { $0 == id }
        self.queues[id] = nil
    }

    // MARK: What the history does

    /// Runs what was submitted, as the socket thread does when it wakes up.
    func runSubmissions() {
        while true {
            let batch = self.inbox.withLockedValue { $0.submissions.take() }
            guard !batch.isEmpty else { break }
            self.turn {
                for submission in batch {
                    switch submission {
                    case .work(let work, let operation): work.performOnSocketThread(operation)
                    case .closure(let closure): closure()
                    }
                }
            }
        }
    }

    func advance(to time: NIODeadline) {
        while self.timer <= time {
            self.time = max(self.time, self.timer)
            self.timer = .distantFuture
            self.turn { self.consumer?.timerFired() }
            if self.timer <= self.time { return self.broken = "the timer spins" }
        }
        self.time = time
    }

    func beginConnecting() {
        guard self.link == .offline else { return }
        self.isClosed = false
        self.link = .connecting
        self.turn { self.consumer?.connectionIsBeingMade() }
    }

    func becomeReady() {
        self.lastConnection += 1
        let id = ConnectionID(number: self.lastConnection)
        var predecessor: ConnectionID?
        if case .ready(let id) = self.link { predecessor = id }
        if let predecessor { self.draining.append(predecessor) }
        self.link = .ready(id)
        self.isLeft = false
        self.turn {
            self.consumer?.connectionIsReady(id, Endpoint(host: "simulated", port: 1), self.agreement)
            if let predecessor { self.consumer?.connectionDrains(predecessor) }
        }
    }

    /// The ready connection is lost; what follows is for the history to say.
    func lose(_ error: SocketError) {
        guard case .ready(let id) = self.link else { return }
        self.link = .offline
        self.isLeft = false
        self.queues[id] = nil
        self.turn { self.consumer?.connectionWasLost(id, error) }
    }

    /// The server of the ready connection is about to end, and says so.
    func goAway(_ payload: ByteBuffer) {
        guard case .ready(let id) = self.link else { return }
        let frame = Frame(type: FrameType.goAway, serial: FrameSerial.goAway, payload: payload)
        self.turn {
            if let departure = self.consumer?.receivedGoAway(frame, on: id) { self.leave(id, departure) }
        }
    }

    /// The next attempts to connect begin later.
    func putOff() {
        guard self.isLeft || self.link == .connecting else { return }
        self.turn { self.consumer?.attemptIsPutOff() }
    }

    /// The oldest of the connections that drain is lost.
    func loseDraining(_ error: SocketError) {
        guard let id = self.draining.first else { return }
        self.draining.removeFirst()
        self.queues[id] = nil
        self.turn { self.consumer?.connectionWasLost(id, error) }
    }

    func becomeOffline(_ error: SocketError) {
        self.link = .offline
        self.turn { self.consumer?.connectionIsOffline(error) }
    }

    func close() {
        self.isClosed = true
        self.lose(self.closedByUser)
        while !self.draining.isEmpty { self.loseDraining(self.closedByUser) }
        self.link = .offline
        self.turn { self.consumer?.happened(.closed) }
    }

    /// What a read brings. In the standard format a frame comes in parts, as from a socket.
    func deliver(_ frame: Frame, on id: ConnectionID) {
        self.turn {
            self.isHandingOver = true
            if self.format == .standard {
                let header = FrameHeader(
                    type: frame.type,
                    serial: frame.serial,
                    status: frame.status,
                    length: UInt32(frame.payload.readableBytes),
                    headerLength: FrameDirection.response.headerLength
                )
                self.consumer?.received(header, frame.payload, on: id)
            } else {
                self.consumer?.received(frame, on: id)
            }
            self.isHandingOver = false
        }
    }

    func stopReading() { self.isPeerReading = false }

    func read() {
        self.isPeerReading = true
        self.turn { self.sendQueued() }
    }

    private func sendQueued() {
        for id in self.queues.keys.sorted(by: { $0.number < $1.number }) {
            // The highest priority first, equals in the order they came.
            while let queue = self.queues[id], let best = queue.map(\.priority).max(),
                let index = queue.firstIndex(where: { $0.priority == best })
            {
                let next = queue[index].frame
                self.queues[id]?.remove(at: index)
                if self.consumer?.frameWillLeave(type: next.type, serial: next.serial, on: id) == true {
                    self.leaves(next, id)
                }
            }
            self.queues[id] = nil
        }
    }

    func invalidate() {
        self.close()
        self.inbox.withLockedValue { $0.isInvalidated = true }
        self.runSubmissions()
        self.turn { self.consumer?.socketWasInvalidated() }
        self.consumer = nil
    }
}

extension Array {
    fileprivate mutating func take() -> [Element] {
        defer { self = [] }
        return self
    }
}
