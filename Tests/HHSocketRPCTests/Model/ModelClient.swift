// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// The required behaviour of a client, as simple as possible: lists that are searched linearly, without tables, heaps,
/// queues or timers. Time is in nanoseconds from the start.
struct ModelClient {
    struct Limits {
        var serials: ClosedRange<UInt32> = 50...UInt32.max
        var inFlight = 4
        var waiting = 4
        var waitingBytes = 40
        var tombstones = 3
        var budget = 2
        var deposit = 300
        /// The number of pushes beyond its policy that wait for a subscriber: none.
        var morePushes = 0
        /// The fraction of its limit that may still wait for a subscriber when reading resumes: half.
        var releasingPart = 2
        /// Whether the innermost interceptor is notified of each failed attempt: no, only of the last.
        var retriesOutsideOfInterceptors = false
        /// Whether all attempts of a call count together: no, they count separately for each request of an interceptor.
        var countsAttemptsOfAllAskings = false
        /// The number of times that a call is sent again after a 504.
        var resends = 3
        /// Whether such calls wait before the calls that were never sent.
        var resendsGoFirst = true
        /// Whether an interceptor is notified that its call has ended.
        var stopsInterceptors = true
    }

    struct Plan: CustomStringConvertible {
        var type: UInt32 = 16
        var body = ""
        var priority: Float = 0.5
        var timeout: Int
        var isPatient = false
        var isIdempotent = false
        /// Whether a Swift task on the client's executor waits for it.
        var isAwaited = false
        var firstResponse: Int?
        var attempts = 1
        /// The first back-off in nanoseconds; set when the call is made.
        var backoff = 0
        var codes: Set<SocketError.Code> = []
        /// The plans of the call's interceptors, the outermost first.
        var interceptions: [Interception] = []

        var description: String {
            let retry = self.attempts > 1 ? ", \(self.attempts) attempts, \(self.codes.count) codes" : ""
            let flags =
                (self.isPatient ? ", patient" : "") + (self.isIdempotent ? ", idempotent" : "")
                + (self.isAwaited ? ", awaited" : "")
            let first = self.firstResponse.map { ", first response \($0) ns" } ?? ""
            let interceptions = self.interceptions.map { ", \($0)" }.joined()
            return
                "(\(self.body.utf8.count) B, priority \(self.priority), \(self.timeout) ns\(first)\(flags)\(retry)\(interceptions))"
        }
    }

    enum Phase: Equatable {
        case suspended
        /// Its interceptors are running.
        case idle
        case waiting(position: Int)
        case queued(UInt32, on: Int, position: Int)
        case sent(UInt32, on: Int)
        case backingOff(until: Int)
        case completed
    }

    struct Call {
        var plan: Plan
        var priority: Float
        var phase = Phase.suspended
        var deadline = 0
        /// Its priority when it took its place in the waiting line.
        var linePriority: Float = 0
        /// Whether it waits although no attempt is in progress.
        var waitsPatiently = false
        /// Whether it waits before the calls that were never sent.
        var isReturning = false
        /// The number of times that a 504 moved it to another connection since the innermost interceptor's request.
        var resends = 0
        /// The time by which an answer must have begun.
        var firstResponse: Int?
        var attempts = 0
        var retries = 0
        var mayHaveRun = false
        var isCancelled = false
        /// The body of the plan, possibly changed by interceptors.
        var body: String
        /// The number of attempts since the innermost interceptor's request.
        var attemptsOfAsking = 0
        /// The interceptors that have begun and not returned, the outermost first.
        var interceptors: [Interceptor] = []
        /// Whether the innermost waits for the server's answer.
        var isAsking = false

        init(_ plan: Plan) {
            self.plan = plan
            self.priority = plan.priority
            self.body = plan.body
        }

        var serial: UInt32? {
            switch self.phase {
            case .queued(let serial, _, _), .sent(let serial, _): serial
            default: nil
            }
        }

        var connection: Int? {
            switch self.phase {
            case .queued(_, let connection, _), .sent(_, let connection): connection
            default: nil
            }
        }
    }

    enum Link: Equatable {
        case offline, connecting, ready(Int)
        /// Ready only for the calls in flight.
        case goingAway(Int)

        var connection: Int? {
            switch self {
            case .offline, .connecting: nil
            case .ready(let connection), .goingAway(let connection): connection
            }
        }
    }

    let limits: Limits
    var calls: [Call] = []
    private(set) var now = 0
    private(set) var link = Link.offline
    private(set) var draining: [Int] = []
    private var lastConnection = 0
    private var isClosed = false
    /// Whether the next attempt begins later, and was not requested yet.
    private var isReconnectDeferred = false
    /// The connection that has sent the last go-away.
    private var goneAway: Int?
    private var isPeerReading = true
    private var lastPosition = 0
    private var nextSerial: UInt32
    private var hasWrapped = false
    /// Serials whose late answer may still arrive.
    private var tombstones: [UInt32] = []
    private var budget: Int
    private var ends: [(time: Int, isWrong: Bool)] = []
    /// Queued frames that belong to no call any more, because the peer does not read: cancels.
    private var queuedCancels: [(text: String, connection: Int, position: Int)] = []

    // The results of a step.
    var wire: [String] = []
    var completions: [String] = []
    var pulls = 0
    var suspicions = 0
    var failures: [String] = []
    /// The notifications of interceptors.
    var log: [String] = []
    var pushes: ModelPushes
    // The results of all steps.
    var late = 0
    var duplicates = 0
    var unknown = 0
    var corrupt = 0
    var goAways = 0
    var malformedGoAways = 0
    var resent = 0

    init(limits: Limits) {
        self.limits = limits
        self.nextSerial = limits.serials.lowerBound
        self.budget = limits.budget * 1_000
        self.pushes = ModelPushes(limits: limits)
    }

    var inFlightCount: Int { self.calls.count { $0.serial != nil } }
    var waiting: [Int] {
        self.calls.indices.filter { if case .waiting = self.calls[$0].phase { true } else { false } }
    }

    var waitingBytes: Int { self.waiting.reduce(0) { $0 + self.calls[$1].body.utf8.count } }

    /// Whether one more call may begin, regardless of the others.
    var hasRoom: Bool {
        let begun = self.calls.count { $0.phase != .suspended && $0.phase != .completed }
        return begun < self.limits.inFlight + self.limits.waiting
    }

    // MARK: The user

    mutating func resume(_ index: Int) {
        guard self.calls[index].phase == .suspended, !self.calls[index].isCancelled else { return }
        guard self.hasRoom else { return self.complete(index, .queueFull, .notSent) }
        self.calls[index].deadline = self.now + self.calls[index].plan.timeout
        guard self.calls[index].plan.interceptions.isEmpty else { return self.beginInterception(index) }
        self.attempt(index)
    }

    mutating func cancel(_ index: Int) {
        guard self.calls[index].phase != .completed else { return }
        self.calls[index].isCancelled = true
        let wasSent = self.endAttempt(index)
        self.complete(index, .cancelled, wasSent ? .sentUnknown : .notSent)
    }

    mutating func setPriority(_ priority: Float, _ index: Int) {
        self.calls[index].priority = priority
        guard case .waiting = self.calls[index].phase else { return }
        self.lastPosition += 1
        self.calls[index].linePriority = priority
        self.calls[index].phase = .waiting(position: self.lastPosition)
    }

    // MARK: Attempts

    mutating func attempt(_ index: Int) {
        guard case .ready(let connection) = self.link else { return self.wait(index) }
        guard self.waiting.isEmpty, let serial = self.takeSerial() else {
            return self.ended(index, .tooManyInFlight, .notSent)
        }
        self.send(index, serial, connection)
    }

    /// Sends calls that wait despite a connection, while more may be in flight, at the end of each turn.
    mutating func sendWaiting() {
        guard case .ready(let connection) = self.link else { return }
        while let next = self.firstInLine(), let serial = self.takeSerial() { self.send(next, serial, connection) }
    }

    private mutating func wait(_ index: Int) {
        let call = self.calls[index]
        let isGoingAway = if case .goingAway = self.link { true } else { false }
        let isPatient = !self.isClosed && (call.plan.isPatient || call.retries > 0 || isGoingAway)
        guard isPatient || self.link == .connecting else {
            self.ended(index, .notConnected, .notSent)
            self.pull()
            return
        }
        let waiting = self.waiting
        guard waiting.count < self.limits.waiting,
            waiting.isEmpty || self.waitingBytes + call.body.utf8.count <= self.limits.waitingBytes
        else { return self.ended(index, .queueFull, .notSent) }
        self.stand(index, isPatient: isPatient, isReturning: false)
    }

    private mutating func stand(_ index: Int, isPatient: Bool, isReturning: Bool) {
        self.lastPosition += 1
        self.calls[index].linePriority = self.calls[index].priority
        self.calls[index].waitsPatiently = isPatient
        self.calls[index].isReturning = isReturning
        self.calls[index].phase = .waiting(position: self.lastPosition)
        if self.link == .offline || self.isReconnectDeferred { self.pull() }
    }

    private mutating func pull() {
        self.pulls += 1
        self.isReconnectDeferred = false
    }

    private mutating func send(_ index: Int, _ serial: UInt32, _ connection: Int) {
        self.calls[index].attempts += 1
        self.calls[index].attemptsOfAsking += 1
        self.lastPosition += 1
        self.calls[index].linePriority = self.calls[index].priority
        self.calls[index].phase = .queued(serial, on: connection, position: self.lastPosition)
        guard self.calls[index].body.utf8.count <= 1_000 else {
            self.calls[index].phase = .suspended
            return self.ended(index, .frameTooLarge, .notSent)
        }
        if self.isPeerReading { self.noteSent(index) }
    }

    private mutating func noteSent(_ index: Int) {
        guard case .queued(let serial, let connection, _) = self.calls[index].phase else { return }
        self.calls[index].phase = .sent(serial, on: connection)
        self.calls[index].firstResponse = self.calls[index].plan.firstResponse.map { self.now + $0 }
        self.wire.append("request \(serial) '\(self.calls[index].body)' on \(connection)")
    }

    private mutating func takeSerial() -> UInt32? {
        let busy = Set(self.calls.compactMap(\.serial)).union(self.tombstones)
        guard self.inFlightCount < self.limits.inFlight, busy.count < self.limits.serials.count else { return nil }
        while true {
            let serial = self.nextSerial
            if serial == self.limits.serials.upperBound {
                self.nextSerial = self.limits.serials.lowerBound
                self.hasWrapped = true
            } else {
                self.nextSerial += 1
            }
            if !busy.contains(serial) { return serial }
        }
    }

    /// Ends the call's attempt without an answer, and notifies the server if it may know the call.
    ///
    /// - Returns: Whether the request was sent.
    private mutating func endAttempt(_ index: Int) -> Bool {
        guard case .sent(let serial, let connection) = self.calls[index].phase else { return false }
        self.bury(serial)
        self.notifyServer(serial, connection)
        return true
    }

    private mutating func notifyServer(_ serial: UInt32, _ connection: Int) {
        guard self.link.connection == connection || self.draining.contains(connection) else { return }
        let text = "cancel \(serial) '' on \(connection)"
        guard !self.isPeerReading else { return self.wire.append(text) }
        self.lastPosition += 1
        self.queuedCancels.append((text, connection, self.lastPosition))
    }

    private mutating func bury(_ serial: UInt32) {
        self.tombstones.append(serial)
        if self.tombstones.count > self.limits.tombstones { self.tombstones.removeFirst() }
    }

    // MARK: Ends

    private static let notExecuted: Set<SocketError.Code> = [.undefinedType, .overloaded, .draining]

    /// - Parameter code: The error; nil for an answer with 200.
    private mutating func ended(_ index: Int, _ code: SocketError.Code?, _ delivery: SocketError.Delivery) {
        guard let code else {
            self.budget = min(self.limits.budget * 1_000, self.budget + self.limits.deposit)
            return self.conclude(index, nil, delivery)
        }
        let call = self.calls[index]
        let notExecuted = Self.isNotExecuted(code, delivery)
        let attempts = self.limits.countsAttemptsOfAllAskings ? call.attempts : call.attemptsOfAsking
        let delay = call.plan.backoff << call.retries
        let isInside = !call.isAsking || !self.limits.retriesOutsideOfInterceptors
        if isInside, !self.isClosed, attempts < call.plan.attempts, call.plan.codes.contains(code),
            notExecuted || call.plan.isIdempotent, self.now + delay < call.deadline, self.budget >= 1_000
        {
            self.budget -= 1_000
            self.calls[index].retries += 1
            self.calls[index].mayHaveRun = call.mayHaveRun || !notExecuted
            self.calls[index].phase = .backingOff(until: self.now + delay)
            self.calls[index].firstResponse = nil
        } else {
            self.conclude(index, code, delivery)
        }
    }

    /// Ends the call without a further attempt.
    private mutating func conclude(_ index: Int, _ code: SocketError.Code?, _ delivery: SocketError.Delivery) {
        guard self.calls[index].isAsking else { return self.complete(index, code, delivery) }
        self.calls[index].phase = .idle
        self.notifyInterceptor(index, Outcome(code, self.honest(index, code, delivery)))
        if code.map({ !Self.isNotExecuted($0, delivery) }) ?? true { self.calls[index].mayHaveRun = true }
        self.finishDrained()
    }

    private static func isNotExecuted(_ code: SocketError.Code, _ delivery: SocketError.Delivery) -> Bool {
        delivery == .notSent || (delivery == .answered && Self.notExecuted.contains(code))
    }

    /// Adjusts the delivery: it must not claim that the server did not run a call that it may have run.
    private func honest(
        _ index: Int,
        _ code: SocketError.Code?,
        _ delivery: SocketError.Delivery
    ) -> SocketError.Delivery {
        guard let code, self.calls[index].mayHaveRun, Self.isNotExecuted(code, delivery) else { return delivery }
        return .sentUnknown
    }

    mutating func complete(_ index: Int, _ code: SocketError.Code?, _ delivery: SocketError.Delivery) {
        let delivery = self.honest(index, code, delivery)
        self.calls[index].phase = .completed
        if self.calls[index].isAsking { self.notifyInterceptor(index, Outcome(code, delivery)) }
        self.completions.append(
            code.map { "\(index) \($0) \(delivery) after \(self.calls[index].attempts)" }
                ?? "\(index) ok after \(self.calls[index].attempts)"
        )
        self.finishDrained()
    }

    private mutating func finishDrained() {
        let busy = Set(self.calls.compactMap(\.connection))
        self.draining.removeAll { !busy.contains($0) }
        let open = self.draining
        self.queuedCancels.removeAll { cancel in
            self.link.connection != cancel.connection && !open.contains(cancel.connection)
        }
    }

    private mutating func judge(_ isWrong: Bool?, on connection: Int) {
        guard let isWrong, self.link == .ready(connection) else { return }
        self.ends.removeAll { self.now - $0.time > 30_000_000_000 }
        self.ends = self.ends.suffix(9) + [(self.now, isWrong)]
        let wrong = self.ends.filter(\.isWrong).count
        guard isWrong, self.ends.count >= 5, wrong * 2 >= self.ends.count else { return }
        self.failures.append("\(wrong) of \(self.ends.count)")
        self.ends = []
    }

    // MARK: The server

    mutating func answer(_ serial: UInt32, _ status: Status, isCorrupt: Bool) {
        if isCorrupt { self.corrupt += 1 }
        guard let index = self.calls.firstIndex(where: { $0.serial == serial }),
            let connection = self.calls[index].connection
        else {
            if let grave = self.tombstones.firstIndex(of: serial) {
                self.late += 1
                if status != .partial || isCorrupt { self.tombstones.remove(at: grave) }
            } else if self.limits.serials.contains(serial), self.hasWrapped || serial < self.nextSerial {
                self.duplicates += 1
            } else {
                self.unknown += 1
            }
            return
        }
        let wasSent = if case .sent = self.calls[index].phase { true } else { false }
        self.calls[index].phase = .suspended
        if isCorrupt {
            self.judge(true, on: connection)
            self.ended(index, .checksumMismatch, .sentUnknown)
        } else if status == .partial {
            if wasSent { self.bury(serial) }
            self.notifyServer(serial, connection)
            self.judge(false, on: connection)
            self.ended(index, .server(.partial), .answered)
        } else if status == .ok {
            self.judge(false, on: connection)
            self.ended(index, nil, .answered)
        } else {
            let code = SocketError.Code(status)
            let isWrong: Bool? =
                code == .unknown || code == .lostPacket ? true : Self.notExecuted.contains(code) ? nil : false
            self.judge(isWrong, on: connection)
            if code != .draining || !self.isSentAgain(index, connection) { self.ended(index, code, .answered) }
        }
        self.finishDrained()
    }

    /// Handles a 504: the server of this connection is about to end, and has not run the call.
    private mutating func isSentAgain(_ index: Int, _ connection: Int) -> Bool {
        guard !self.isClosed else { return false }
        self.switchServer(of: connection)
        guard self.calls[index].resends < self.limits.resends, self.link != .ready(connection) else { return false }
        self.resent += 1
        self.calls[index].resends += 1
        self.calls[index].attemptsOfAsking -= 1
        self.calls[index].firstResponse = nil
        guard case .ready(let next) = self.link, let serial = self.takeSerial() else {
            self.stand(index, isPatient: true, isReturning: true)
            return true
        }
        self.send(index, serial, next)
        return true
    }

    private mutating func switchServer(of connection: Int) {
        guard self.link == .ready(connection) else { return }
        self.link = .goingAway(connection)
        var queued: [(index: Int, position: Int)] = []
        for index in self.calls.indices {
            if case .queued(_, connection, let position) = self.calls[index].phase { queued.append((index, position)) }
        }
        for entry in queued.sorted(by: { $0.position < $1.position }) {
            self.calls[entry.index].attempts -= 1
            self.calls[entry.index].attemptsOfAsking -= 1
            self.stand(entry.index, isPatient: true, isReturning: false)
        }
        self.deferReconnect()
    }

    mutating func goAway(isMalformed: Bool) {
        guard let connection = self.link.connection else { return }
        self.goAways += 1
        guard self.goneAway != connection else { return }
        self.goneAway = connection
        if isMalformed { self.malformedGoAways += 1 }
        self.switchServer(of: connection)
    }

    mutating func deferReconnect() {
        let isGoingAway = if case .goingAway = self.link { true } else { false }
        guard isGoingAway || self.link == .connecting else { return }
        self.isReconnectDeferred = true
        if isGoingAway && self.inFlightCount > 0 || !self.waiting.isEmpty { self.pull() }
    }

    mutating func answerBegins(_ serial: UInt32) {
        if let index = self.calls.firstIndex(where: { $0.serial == serial }) { self.calls[index].firstResponse = nil }
    }

    mutating func stopReading() { self.isPeerReading = false }

    mutating func read() {
        self.isPeerReading = true
        for connection in Set(self.queuedCancels.map(\.connection) + self.calls.compactMap(\.connection)).sorted() {
            for cancel in self.queuedCancels where cancel.connection == connection { self.wire.append(cancel.text) }
            var queued: [(index: Int, priority: Float, position: Int)] = []
            for index in self.calls.indices {
                if case .queued(_, connection, let position) = self.calls[index].phase {
                    queued.append((index, self.calls[index].linePriority, position))
                }
            }
            queued.sort { ($0.priority, -$0.position) > ($1.priority, -$1.position) }
            for entry in queued { self.noteSent(entry.index) }
        }
        self.queuedCancels = []
    }

    // MARK: The connection

    mutating func beginConnecting() {
        guard self.link == .offline else { return }
        self.isClosed = false
        self.isReconnectDeferred = false
        self.link = .connecting
    }

    mutating func becomeReady() {
        self.lastConnection += 1
        self.isReconnectDeferred = false
        let predecessor = self.link.connection
        if predecessor == nil { self.tombstones = [] }
        if let predecessor { self.draining.append(predecessor) }
        self.link = .ready(self.lastConnection)
        self.ends = []
        self.sendWaiting()
        self.finishDrained()
    }

    private func firstInLine() -> Int? {
        self.waiting.max { first, second in
            guard case .waiting(let firstPosition) = self.calls[first].phase,
                case .waiting(let secondPosition) = self.calls[second].phase
            else { return false }
            return (self.calls[first].linePriority, self.isAhead(first), -firstPosition)
                < (self.calls[second].linePriority, self.isAhead(second), -secondPosition)
        }
    }

    private func isAhead(_ index: Int) -> Int {
        self.calls[index].isReturning && self.limits.resendsGoFirst ? 1 : 0
    }

    /// - Parameter order: The order in which calls end, since the retry budget may not suffice for all.
    mutating func lose(_ code: SocketError.Code, _ order: [Int]) {
        guard let connection = self.link.connection else { return }
        self.link = .offline
        self.lost(connection, code, order)
    }

    mutating func loseDraining(_ code: SocketError.Code, _ order: [Int]) {
        guard let connection = self.draining.first else { return }
        self.draining.removeFirst()
        self.lost(connection, code, order)
    }

    private mutating func lost(_ connection: Int, _ code: SocketError.Code, _ order: [Int]) {
        for index in order where self.calls[index].connection == connection {
            let wasSent = if case .sent = self.calls[index].phase { true } else { false }
            self.calls[index].phase = .suspended
            self.ended(index, code, wasSent ? .sentUnknown : .notSent)
        }
        self.finishDrained()
    }

    mutating func becomeOffline(_ code: SocketError.Code, _ order: [Int]) {
        self.link = .offline
        let waiting = Set(self.waiting)
        for index in order where waiting.contains(index) && !self.calls[index].waitsPatiently {
            self.calls[index].phase = .suspended
            self.ended(index, code, .notSent)
        }
    }

    mutating func close() {
        self.isClosed = true
        let order = Array(self.calls.indices)
        self.lose(.cancelled, order)
        while !self.draining.isEmpty { self.loseDraining(.cancelled, order) }
        self.link = .offline
        for index in self.calls.indices {
            switch self.calls[index].phase {
            case .waiting, .backingOff: self.ended(index, .cancelled, .notSent)
            default: break
            }
        }
    }

    /// Releases the client.
    mutating func release() {
        self.close()
        for index in self.calls.indices where self.calls[index].phase == .idle {
            self.complete(index, .cancelled, .notSent)
        }
    }

    // MARK: Time

    mutating func advance(to time: Int) {
        while let (due, index) = self.nextAlarm(), due <= time {
            defer { self.sendWaiting() }
            self.now = due
            let call = self.calls[index]
            if call.deadline <= due {
                var connection: Int?
                if case .sent(_, let on) = call.phase { connection = on }
                let wasSent = self.endAttempt(index)
                if let connection {
                    self.suspicions += 1
                    self.judge(true, on: connection)
                }
                self.complete(index, .timeout, wasSent ? .sentUnknown : .notSent)
            } else if case .backingOff = call.phase {
                self.calls[index].phase = .suspended
                self.attempt(index)
            } else if case .sent(_, let connection) = call.phase {
                _ = self.endAttempt(index)
                self.suspicions += 1
                self.judge(true, on: connection)
                self.calls[index].phase = .suspended
                self.calls[index].firstResponse = nil
                self.ended(index, .timeout, .sentUnknown)
                self.finishDrained()
            }
        }
        self.now = time
    }

    private func nextAlarm() -> (Int, Int)? {
        self.calls.indices.compactMap { index -> (Int, Int)? in
            let call = self.calls[index]
            switch call.phase {
            case .suspended, .completed: return nil
            case .backingOff(let until): return (min(call.deadline, until), index)
            case .sent: return (min(call.deadline, call.firstResponse ?? .max), index)
            case .idle, .waiting, .queued: return (call.deadline, index)
            }
        }.min { $0.0 < $1.0 }
    }
}
