// SPDX-License-Identifier: Apache-2.0
import Dispatch
import Foundation
import HHSocket
import NIOCore

/// A client's calls on the socket thread: performs the decisions of ``DispatchTable``.
///
/// `ClientCore+Calls` has the life of a call, `ClientCore+Interception` its interceptors, `ClientCore+Answers` the
/// server's answers, `ClientCore+Connections` the changes of connections, `ClientCore+GoAway` servers that shut down,
/// `ClientCore+Errors` the errors of calls that fail locally, and `FastPath` the path of almost all calls.
final class ClientCore: @unchecked Sendable {
    // Proof of Sendable: the constants never change or are locked; every other property is accessed only on the socket
    // thread.
    let driver: any ConnectionDriver
    let loop: SocketLoop
    let connector: FrameConnector
    let configuration: ClientConfiguration
    let traits: CallTraits
    let format: WireFormat
    let streams = EventStreams()
    let locks = TaskLocks()
    let bodies: BodyWork
    let reporter: CallReporter
    let pushes: PushCenter
    let audience: any ClientAudience

    // Unchecked: a call accesses it some ten times, only on the socket thread, and every access ends before other code
    // is called.
    #if !DEBUG && !CHECKED_EXCLUSIVITY
    @exclusivity(unchecked)
    #endif
    var hot: Hot
    /// The keys of the incomplete calls made by `dispatch`, by task identifier, except light ones.
    var dispatched: [Int: DispatchKey] = [:]
    var generator = SystemRandomNumberGenerator()
    /// The streams that wait until another has ended.
    var streamLine: StreamLine
    /// The work that follows the connection.
    var followers = ConnectionFollowers()
    private var timer: SocketLoop.TimerID?
    var life = Life()
    /// The connection that calls are sent on while it is ready; else the latest one.
    var connection: ClientConnection? {
        didSet {
            self.hot.link = self.connection.map { Unmanaged.passUnretained($0.link) }
            self.hot.connectionID = self.connection?.id ?? ConnectionID(number: 0)
        }
    }
    /// The draining connections: replaced by another, with calls still in flight.
    var left: [ConnectionID: ClientConnection] = [:]

    /// State that every call touches.
    struct Hot: ~Copyable {
        var table: CallTable
        var retryBucket: RetryBucket?
        /// The outcomes of the latest calls to the current server; nil without an error-rate policy.
        var errorRate: ErrorRateWindow?
        /// The time at which the timer for the table's alarms fires.
        var timerFires = NIODeadline.distantFuture
        /// The identifier of the current or latest connection; 0 if there has been none.
        var connectionID = ConnectionID(number: 0)
        /// The link of the connection while it is ready. Unmanaged, to avoid counting a reference for every call: the
        /// connection keeps it.
        var link: Unmanaged<Link<FrameLanguage>>?
        /// Called once the last call has completed.
        var finished: (() -> Void)?
    }

    struct Life {
        var isInvalidated = false
        /// Whether new calls are refused.
        var isFinishing = false
        /// Whether reconnecting is deferred until a call requires it.
        var isReconnectDeferred = false
        /// The latest connection whose go-away has been parsed.
        var goneAway = ConnectionID(number: 0)
    }

    /// - Parameters:
    ///   - connector: Makes the driver's links.
    ///   - driver: Makes connections, and must notify this object of their changes.
    ///   - audience: Receives events and pushes that belong to no call.
    init(
        configuration: ClientConfiguration,
        connector: FrameConnector,
        driver: any ConnectionDriver,
        loop: SocketLoop,
        audience: any ClientAudience
    ) {
        self.driver = driver
        self.loop = loop
        self.connector = connector
        self.configuration = configuration
        self.format = connector.rules.format
        self.audience = audience
        self.reporter = CallReporter(configuration)
        self.bodies = BodyWork(loop, maximumPayloadLength: configuration.socket.maximumPayloadLength)
        self.pushes = PushCenter(
            configuration.socket,
            driver: driver,
            bodies: self.bodies,
            reporter: self.reporter,
            audience: audience,
            loop: loop
        )
        self.streamLine = StreamLine(maximumCount: configuration.maximumWaiting)
        self.traits = CallTraits(
            configuration,
            connector.rules,
            self.reporter,
            callbackQueue: loop.callbackQueue
        )
        self.hot = Hot(
            table: DispatchTable(
                serialRange: connector.rules.format.layout.requestSerials,
                maximumInFlight: configuration.maximumInFlight,
                maximumWaiting: configuration.maximumWaiting,
                maximumWaitingBytes: configuration.maximumWaitingBytes,
                maximumTombstones: configuration.maximumTombstones
            ),
            retryBucket: configuration.retryBudget.map { RetryBucket($0) },
            errorRate: configuration.errorRatePolicy.map { ErrorRateWindow($0) }
        )
        self.hot.table.promote = { [unowned self] in self.promote($0, $1, deadline: $2) }
    }

    var isInvalidated: Bool { self.life.isInvalidated }
    var isFinishing: Bool { self.life.isFinishing }

    // MARK: Any thread

    static var released: SocketError {
        SocketError(.cancelled, message: "the client was released, or invalidated, before the call completed")
    }

    static var invalidated: SocketError {
        SocketError(
            .cancelled,
            message: "the client takes no more calls after finishTasksAndInvalidate(); make another client"
        )
    }

    func submit(_ submission: Submission) -> Bool { self.loop.submit(submission) }

    /// Runs a task's handler on its callback queue, after the socket thread has ended.
    func callBackAfterInvalidation(_ task: SocketTask) {
        (task.callbackQueue ?? self.loop.callbackQueue).run { task.callBack() }
    }

    /// The metrics of a complete task; nil if the client never accepted it.
    func metrics(of task: SocketTask) -> SocketTaskMetrics? {
        let flight = task.flight
        guard let queued = flight.queued.date, let completed = flight.completed.date else { return nil }
        // The current time by both clocks, which diverge when the device sleeps or its clock is set.
        let (today, now) = (Date(), self.configuration.socket.time.now())
        func date(_ moment: NIODeadline) -> Date {
            today.addingTimeInterval(Double((moment - now).nanoseconds) / 1e9)
        }
        return SocketTaskMetrics(
            queued: date(queued),
            sent: flight.sent.date.map { date($0) },
            firstByte: flight.firstByte.date.map { date($0) },
            completed: date(completed),
            duration: Duration(completed - queued),
            server: flight.origin?.endpoint,
            attempts: Int(flight.attempts),
            bytesSent: flight.bytesSent,
            bytesReceived: flight.bytesReceived
        )
    }

    func count(_ counter: WritableKeyPath<ClientStatistics, Int>, by amount: Int = 1) {
        self.reporter.count(counter, by: amount)
    }

    // MARK: The end

    /// Refuses new calls from now on, and calls `finished` once the earlier ones have completed.
    func finishTasks(_ finished: @escaping () -> Void) {
        guard !self.isFinishing, !self.isInvalidated else { return }
        self.life.isFinishing = true
        self.hot.table.takesCalls = false
        self.hot.finished = finished
    }

    /// Completes all calls and ends all subscriptions, after the driver was invalidated.
    func invalidated(in turn: inout Turn) {
        self.life.isInvalidated = true
        if let timer = self.timer { self.loop.removeTimer(timer) }
        for key in self.hot.table.keys {
            guard let removed = self.hot.table.remove(key) else { continue }
            var error = Self.released
            error.serial = removed.serial
            if removed.phase == .sent { error.delivery = .sentUnknown }
            self.complete(removed.call, error, in: &turn)
        }
        self.turnEnded()
        self.connection?.streams?.abandon()
        for connection in self.left.values { connection.streams?.abandon() }
        // Tasks that the user keeps retain this object, but no longer need the connection.
        self.connection = nil
        self.followers.clientIsGone()
        self.pushes.finish()
        self.streams.finish()
    }

    // MARK: Time

    /// Sets the single timer of all calls to the earliest alarm, if it would fire later. Completed calls do not move
    /// it.
    func armTimer() {
        guard let alarm = self.hot.table.earliestAlarm, alarm < self.hot.timerFires else { return }
        self.hot.timerFires = alarm
        if let timer = self.timer { self.loop.removeTimer(timer) }
        self.timer = self.loop.setTimer(alarm) { self.timerFired(in: &$0) }
    }

    private func timerFired(in turn: inout Turn) {
        self.timer = nil
        // Due alarms are handled below and require no timer.
        self.hot.timerFires = .distantPast
        while let alarm = self.hot.table.nextAlarm(now: turn.now) {
            switch alarm {
            case .expired(let attempt): self.expired(attempt, in: &turn)
            case .noFirstResponse(let attempt): self.answerDidNotBegin(attempt, in: &turn)
            case .retry(let key, let task): self.attempt(task, key, in: &turn)
            }
        }
        self.hot.table.dropStaleAlarms()
        self.hot.timerFires = .distantFuture
        self.armTimer()
    }
}

extension ClientCore: TurnHost {
    func turnEnds(in turn: inout Turn) {
        if self.hot.table.waitingCount > 0, self.hot.table.link == .ready { self.sendWaiting(in: &turn) }
    }

    func turnEnded() {
        if self.hot.finished != nil, self.hot.table.count == 0 { self.hot.finished.take()?() }
        guard self.traits.isObserved else { return }
        self.driver.measure()
        self.reporter.measure(inFlight: self.hot.table.inFlightCount, waiting: self.hot.table.waitingCount)
    }
}
