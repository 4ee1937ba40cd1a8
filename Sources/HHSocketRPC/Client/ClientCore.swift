import HHSocket
import Logging
import NIOConcurrencyHelpers
import NIOCore

/// A client's calls and pushes on the socket thread: performs what ``DispatchTable`` decides.
final class ClientCore: FrameConsumer, @unchecked Sendable {
    // Proof of Sendable: the constants never change or are locked; every other property is touched
    // on the socket thread alone.
    let socket: SocketCore
    let streams = EventStreams()
    private let timeout: Duration
    private let waitsForConnectivity: Bool
    private let format: WireFormat
    private let shared = NIOLockedValueBox(Shared())

    private var table: DispatchTable<SocketTask>
    private var pushes = PushRouter()
    /// How the latest calls to the present server ended; nil where nobody wants to know.
    private var errorRate: ErrorRateWindow?
    private var deadlineTimer: Scheduled<Void>?
    private var deadlineTimerFires = NIODeadline.distantFuture
    private var isInvalidated = false
    /// What calls leave by, and where it leads, while it is ready.
    private var connection = ConnectionID(number: 0)
    private var endpoint = Endpoint(host: "", port: 0)
    /// Where the connections lead that were left for another and finish what is in flight.
    private var leftEndpoints: [ConnectionID: Endpoint] = [:]

    /// What other threads see.
    private struct Shared {
        weak var client: SocketClient?
        weak var delegate: (any SocketClientDelegate)?
        var statistics = ClientStatistics()
    }

    init(configuration: SocketClient.Configuration) {
        self.socket = SocketCore(configuration: configuration.socket)
        self.timeout = configuration.timeout
        self.waitsForConnectivity = configuration.waitsForConnectivity
        self.format = configuration.socket.wireFormat
        self.table = DispatchTable(
            serialRange: self.format.layout.requestSerials,
            maximumInFlight: configuration.maximumInFlight,
            maximumWaiting: configuration.maximumWaiting,
            maximumWaitingBytes: configuration.maximumWaitingBytes,
            maximumTombstones: configuration.maximumTombstones
        )
        self.errorRate = configuration.errorRatePolicy.map { ErrorRateWindow($0) }
        self.socket.setConsumer(self)
    }

    // MARK: Any thread

    static var released: SocketError {
        SocketError(.cancelled, message: "the client was released before the call completed")
    }

    func submit(_ submission: Submission) -> Bool { self.socket.submit(submission) }

    func setClient(_ client: SocketClient) {
        self.shared.withLockedValue { $0.client = client }
    }

    var delegate: (any SocketClientDelegate)? {
        get { self.shared.withLockedValue { $0.delegate } }
        set { self.shared.withLockedValue { $0.delegate = newValue } }
    }

    var statistics: ClientStatistics { self.shared.withLockedValue { $0.statistics } }

    private func count(_ counter: WritableKeyPath<ClientStatistics, Int>, by amount: Int = 1) {
        self.shared.withLockedValue { $0.statistics[keyPath: counter] += amount }
    }

    /// Has a task's handler run where handlers run, when the socket thread has ended.
    func callBackAfterInvalidation(_ task: SocketTask) {
        self.socket.configuration.callbackQueue.run { task.callBack() }
    }

    // MARK: Calls

    func start(_ task: SocketTask) {
        // Cancelled meanwhile: the cancellation is submitted too, and completes it.
        guard task.state == .running else { return }
        guard !self.isInvalidated else { return self.complete(task, .failure(Self.released)) }
        let request = task.originalRequest
        do throws(SocketError) {
            try self.check(request)
        } catch {
            return self.complete(task, .failure(error))
        }
        let deadline = self.socket.now.advanced(clamping: TimeAmount(request.timeout ?? self.timeout))
        let submission = self.table.submit(
            task,
            request.priority,
            bytes: request.body.readableBytes,
            isPatient: (request.waitsForConnectivity ?? self.waitsForConnectivity) && !self.socket.isClosed,
            deadline: deadline
        )
        switch submission {
        case .send(let key, let serial):
            self.send(task, key, serial)
        case .wait(let key):
            task.key = key
            if self.table.link == .offline { self.socket.pullForward() }
        case .refuse(.offline):
            self.complete(task, .failure(self.socket.notConnected()))
            self.socket.pullForward()
        case .refuse(let refusal):
            self.complete(task, .failure(self.refused(refusal)))
        }
        self.armDeadlineTimer()
    }

    private func check(_ request: SocketRequest) throws(SocketError) {
        guard self.format.isApplicationType(request.type) else {
            let types = self.format.layout.applicationTypes
            throw SocketError(
                .invalidArgument,
                message:
                    "type \(request.type) is reserved; use another one from \(types.lowerBound) to \(types.upperBound)"
            )
        }
        // What cannot be sent need not wait for a connection.
        _ = try self.socket.customFields(request.header)
    }

    private func send(_ task: SocketTask, _ key: DispatchKey, _ serial: UInt32) {
        task.key = key
        let request = task.originalRequest
        do throws(SocketError) {
            let frame = Frame(
                type: request.type,
                serial: serial,
                payload: request.body,
                customFields: try self.socket.customFields(request.header)
            )
            let isLeaving = try self.socket.send(frame, request.priority)
            if !isLeaving { self.table.queued(key) }
        } catch {
            self.table.queued(key)
            if self.table.remove(key) != nil { self.complete(task, .failure(error)) }
        }
    }

    func cancel(_ task: SocketTask) {
        var error = SocketError(
            .cancelled,
            message: "the call of type \(task.originalRequest.type) was cancelled",
            endpoint: self.socket.currentEndpoint
        )
        if let key = task.key, let removed = self.table.remove(key) {
            error.serial = removed.serial
            error.delivery = removed.phase == .sent ? .sentUnknown : .notSent
            self.tellServer(of: removed)
        }
        // A task that is in no table was never started, or is complete, and then this does nothing.
        self.complete(task, .failure(error))
    }

    func cancelAll() {
        for key in self.table.keys { self.cancel(key) }
    }

    func cancelTask(withIdentifier identifier: Int) {
        if let key = self.table.firstKey(where: { $0.taskIdentifier == identifier }) { self.cancel(key) }
    }

    private func cancel(_ key: DispatchKey) {
        guard let task = self.table.call(for: key), task.beginCancelling() else { return }
        self.cancel(task)
    }

    /// The server should stop working on a call that nobody waits for any more.
    private func tellServer(of removed: DispatchTable<SocketTask>.Removed) {
        guard removed.phase == .sent, let serial = removed.serial, var frame = self.format.cancel(serial: serial)
        else { return }
        frame.customFields = try? self.socket.customFields(removed.call.originalRequest.header)
        self.socket.send(frame, .control, on: removed.connection)
    }

    private func complete(_ task: SocketTask, _ result: Result<SocketResponse, SocketError>) {
        task.key = nil
        self.finishDrained()
        switch task.finish(result) {
        case nil, .nobody: break
        case .handler: self.socket.callBack(.work(task))
        case .continuation(let continuation): continuation.resume()
        }
    }

    private func refused(_ refusal: DispatchTable<SocketTask>.Refusal) -> SocketError {
        switch refusal {
        case .offline:
            self.socket.notConnected()
        case .tooManyInFlight:
            SocketError(
                .tooManyInFlight,
                message: """
                    \(self.table.inFlightCount) calls to \(self.place) are in flight already (maximumInFlight); wait for \
                    some to complete
                    """,
                endpoint: self.socket.currentEndpoint
            )
        case .queueFull:
            SocketError(
                .queueFull,
                message: """
                    \(self.table.waitingCount) calls, \(self.table.waitingBytes) bytes, wait for a connection to \
                    \(self.place) already (maximumWaiting, maximumWaitingBytes)
                    """,
                endpoint: self.socket.currentEndpoint
            )
        }
    }

    private var place: String { self.socket.currentEndpoint.map { "\($0)" } ?? "the server" }

    // MARK: Deadlines

    /// One timer for all calls: set to the earliest deadline, and never moved when that call completes in time.
    private func armDeadlineTimer() {
        guard let deadline = self.table.earliestDeadline, deadline < self.deadlineTimerFires else { return }
        self.deadlineTimer?.cancel()
        self.deadlineTimerFires = deadline
        self.deadlineTimer = self.socket.eventLoop.scheduleTask(deadline: deadline) { [weak self] in
            self?.deadlineTimerFired()
        }
    }

    private func deadlineTimerFired() {
        self.deadlineTimer = nil
        self.deadlineTimerFires = .distantFuture
        self.socket.turn {
            while let expired = self.table.expire(now: self.socket.now) {
                self.tellServer(of: expired)
                // It may be this call alone. If it is not, the link should not be trusted for longer.
                if expired.phase == .sent { self.socket.suspect(expired.connection) }
                let error = self.timedOut(expired)
                self.judge(error, on: expired.connection)
                self.complete(expired.call, .failure(error))
            }
            self.table.dropStaleDeadlines()
            self.armDeadlineTimer()
        }
    }

    private func timedOut(_ expired: DispatchTable<SocketTask>.Removed) -> SocketError {
        let request = expired.call.originalRequest
        let last = self.socket.lastError
        let what =
            switch expired.phase {
            case .waiting: "no connection to \(self.place)"
            case .queued: "\(self.place) did not read"
            case .sent: "no answer from \(self.place)"
            }
        let serial = expired.serial.map { ", serial \($0)" } ?? ""
        let cause = last.map { "; the last connect error: \($0.message)" } ?? ""
        return SocketError(
            .timeout,
            message: "\(what) within \(request.timeout ?? self.timeout) (type \(request.type)\(serial))\(cause)",
            underlying: last,
            endpoint: self.socket.currentEndpoint ?? last?.endpoint,
            serial: expired.serial,
            delivery: expired.phase == .sent ? .sentUnknown : .notSent
        )
    }

    // MARK: Frames

    func received(_ frame: Frame, on id: ConnectionID) {
        let endpoint = self.endpoint(of: id)
        guard !self.format.isPush(serial: frame.serial) else { return self.receivedPush(frame, endpoint) }
        switch frame.status {
        case .ok:
            self.receive(frame.serial, on: id) { _ in
                .success(
                    SocketResponse(
                        type: frame.type,
                        serial: frame.serial,
                        status: frame.status,
                        body: frame.payload,
                        header: self.format.header(of: frame),
                        endpoint: endpoint
                    )
                )
            }
        case .partial:
            self.receive(frame.serial, on: id, isFinal: false) { task in
                self.tellServer(of: .init(call: task, phase: .sent, serial: frame.serial, connection: id))
                return .failure(
                    self.failed(
                        SocketError.Code(frame.status),
                        "\(endpoint) answered with a part of a stream (status 206), but this call expects one answer",
                        frame,
                        endpoint
                    )
                )
            }
        default:
            self.receive(frame.serial, on: id) { task in
                let code = SocketError.Code(frame.status)
                let name = code.serverStatus == nil ? " (\(code))" : ", which is not a status known here"
                return .failure(
                    self.failed(
                        code,
                        "\(endpoint) answered type \(task.originalRequest.type), serial \(frame.serial), with status "
                            + "\(frame.status)\(name)",
                        frame,
                        endpoint
                    )
                )
            }
        }
    }

    func received(corrupt frame: Frame, _ mismatch: FrameDecoder.ChecksumMismatch, on id: ConnectionID) {
        let endpoint = self.endpoint(of: id)
        self.count(\.checksumFailures)
        guard !self.format.isPush(serial: frame.serial), !self.format.isControlType(frame.type) else { return }
        self.receive(frame.serial, on: id) { task in
            var error = self.failed(
                .checksumMismatch,
                """
                the answer of \(endpoint) to serial \(frame.serial) came with checksum \
                \(mismatch.received) where its \(frame.payload.readableBytes) bytes amount to \(mismatch.computed)
                """,
                frame,
                endpoint
            )
            // What the server said is not known.
            error.delivery = .sentUnknown
            error.body = nil
            return .failure(error)
        }
    }

    private func failed(
        _ code: SocketError.Code,
        _ message: String,
        _ frame: Frame,
        _ endpoint: Endpoint
    ) -> SocketError {
        SocketError(
            code,
            message: message,
            endpoint: endpoint,
            serial: frame.serial,
            delivery: .answered,
            body: frame.payload
        )
    }

    private func receive(
        _ serial: UInt32,
        on id: ConnectionID,
        isFinal: Bool = true,
        _ result: (SocketTask) -> Result<SocketResponse, SocketError>
    ) {
        switch self.table.receive(serial: serial, isFinal: isFinal) {
        case .answer(let task):
            let result = result(task)
            if case .failure(let error) = result { self.judge(error, on: id) } else { self.judge(nil, on: id) }
            self.complete(task, result)
        case .late: self.count(\.lateResponses)
        case .duplicate: self.count(\.duplicateResponses)
        case .unknown: self.count(\.unknownResponses)
        }
    }

    /// What the end of a call tells of the server; nil: it was answered as it should be.
    private func judge(_ error: SocketError?, on id: ConnectionID) {
        // What a connection that was left still answers tells nothing of its successor.
        guard self.errorRate != nil, id == self.connection, self.table.link == .ready, self.socket.isNetworkReachable,
            let isWrong = ErrorRateWindow.judge(error),
            let verdict = self.errorRate?.ended(isWrong: isWrong, now: self.socket.now)
        else { return }
        self.socket.serverFails(self.endpoint, wrong: verdict.wrong, calls: verdict.calls)
    }

    func frameWillLeave(type: UInt32, serial: UInt32) -> Bool {
        self.format.isControlType(type) || self.table.willLeave(serial: serial)
    }

    func frameProgressed(type: UInt32, serial: UInt32, payloadBytes: Int) {
        guard self.format.isApplicationType(type) else { return }
        self.table.call(withSerial: serial)?.progressed(bytesSent: payloadBytes)
    }

    // MARK: Pushes

    /// A mailbox into which the pushes of `type` come, or those of every type, until it is cancelled. Any thread.
    func subscribe(to type: UInt32?, _ policy: PushBufferingPolicy) -> PushMailbox {
        let mailbox = PushMailbox(policy) { [weak self] mailbox in
            self?.socket.submit(.closure { [weak self] in self?.mailboxChanged(mailbox, type) })
        }
        let isAlive = self.submit(
            .closure {
                if self.isInvalidated {
                    mailbox.finish()
                } else {
                    self.pushes.add(mailbox, type)
                }
            }
        )
        if !isAlive { mailbox.finish() }
        return mailbox
    }

    /// Any thread.
    func pushHandlerFailed(_ type: UInt32, _ error: any Error) {
        self.count(\.failedPushHandlers)
        self.socket.configuration.logger?.warning(
            "a handler of pushes failed",
            metadata: ["type": "\(type)", "error": "\(error)"]
        )
    }

    private func mailboxChanged(_ mailbox: PushMailbox, _ type: UInt32?) {
        if mailbox.isOver { self.pushes.remove(mailbox, type) }
        // Asked anew: since this was submitted somebody may have fallen behind again.
        self.socket.setReading(isSuspended: self.pushes.holdsReading)
    }

    private func receivedPush(_ frame: Frame, _ endpoint: Endpoint) {
        self.count(\.pushes)
        let push = SocketPush(
            type: frame.type,
            status: frame.status,
            body: frame.payload,
            header: self.format.header(of: frame),
            endpoint: endpoint
        )
        let routed = self.pushes.route(push)
        if routed.dropped > 0 { self.count(\.droppedPushes, by: routed.dropped) }
        if routed.holdsReading { self.socket.setReading(isSuspended: self.pushes.holdsReading) }
        if !routed.isClaimed { self.tell { $0.client($1, didReceive: push) } }
    }

    // MARK: The connection

    func connectionIsBeingMade() {
        self.table.linkIsConnecting()
    }

    func connectionIsReady(_ id: ConnectionID, _ endpoint: Endpoint) {
        if self.table.link == .ready { self.leftEndpoints[self.connection] = self.endpoint }
        self.connection = id
        self.endpoint = endpoint
        self.errorRate?.clear()
        self.table.linkIsReady(id)
        while let (next, key) = self.table.nextWaiting() {
            if let serial = next.serial {
                self.send(next.call, key, serial)
            } else {
                self.complete(next.call, .failure(self.refused(.tooManyInFlight)))
            }
        }
    }

    func connectionDrains(_ id: ConnectionID) {
        self.table.linkDrains(id)
        self.finishDrained()
    }

    /// Lets go of the connections that were left and have nothing in flight any more.
    private func finishDrained() {
        while let connection = self.table.nextDrained() {
            self.leftEndpoints[connection] = nil
            self.socket.finishDraining(connection)
        }
    }

    private func endpoint(of id: ConnectionID) -> Endpoint {
        id == self.connection ? self.endpoint : self.leftEndpoints[id] ?? self.endpoint
    }

    func connectionWasLost(_ id: ConnectionID, _ error: SocketError) {
        self.leftEndpoints[id] = nil
        for lost in self.table.linkWasLost(id) {
            var error = error
            error.serial = lost.serial
            error.delivery = lost.phase == .sent ? .sentUnknown : .notSent
            self.complete(lost.call, .failure(error))
        }
    }

    func connectionIsOffline(_ error: SocketError) {
        self.fail(self.table.linkIsOffline(), error)
    }

    private func fail(_ waiting: [DispatchTable<SocketTask>.Removed], _ error: SocketError) {
        for waiting in waiting {
            var error = error
            error.delivery = .notSent
            self.complete(waiting.call, .failure(error))
        }
    }

    func happened(_ event: SocketEvent) {
        switch event {
        // Nobody reconnects any more, so no call need wait for that.
        case .closed: self.fail(self.table.linkIsOffline(isForGood: true), self.socket.closedByUser)
        case .gaveUp(let error): self.fail(self.table.linkIsOffline(isForGood: true), error)
        default: break
        }
        self.streams.yield(event)
        self.tell { $0.client($1, didReceive: event) }
    }

    func socketWasInvalidated() {
        self.isInvalidated = true
        self.deadlineTimer?.cancel()
        for key in self.table.keys {
            guard let removed = self.table.remove(key) else { continue }
            self.complete(removed.call, .failure(Self.released))
        }
        self.pushes.finish()
        self.streams.finish()
    }

    private func tell(_ body: @escaping @Sendable (any SocketClientDelegate, SocketClient) -> Void) {
        let (delegate, client) = self.shared.withLockedValue { ($0.delegate, $0.client) }
        guard let delegate, let client else { return }
        self.socket.callBack(.closure { body(delegate, client) })
    }
}
