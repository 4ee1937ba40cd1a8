// SPDX-License-Identifier: Apache-2.0
package import Logging
import NIOCore

/// The run loop of a socket's thread: everything on it happens in one of its turns.
///
/// A turn delivers received units, runs handlers, then the work that other threads have submitted, and flushes. An
/// event that occurs while the turn is held (such as the end of a channel during its flush) waits until the turn is
/// free.
@usableFromInline
package final class SocketLoop: @unchecked Sendable {
    // Proof of Sendable: the constants are Sendable; the variables are accessed only on the event loop.

    /// The current turn, if there is one.
    @usableFromInline
    enum Phase {
        /// No turn is in progress.
        case idle
        /// A turn is in progress, and a caller holds it.
        case running
        /// A turn is in progress and no caller holds it: a read has been delivered, and its end follows.
        case paused
        /// A turn is in progress and no caller holds it: handlers run, and may take it.
        case handlers
        /// A turn flushes: work that is submitted now waits for the next one.
        case ending
    }

    /// Work that a turn gathers.
    @usableFromInline
    struct Hot: ~Copyable {
        @usableFromInline var phase = Phase.idle
        @usableFromInline var now = NIODeadline.uptimeNanoseconds(0)
        /// Whether the clock has been read in this turn.
        @usableFromInline var hasTime = false
        /// The time of the loop's own clock when ``now`` was read, where these are two; see ``began(_:)``.
        var ownTime = NIODeadline.uptimeNanoseconds(0)
        /// Whether the turn is the last: the loop has been closed in it.
        var isLast = false
        /// The number of jobs that may still run in this turn. Others wait for the next one: jobs that make jobs again
        /// and again must not keep the loop from reading.
        var remainingJobs = SocketLoop.maximumJobsInTurn
        /// The time of the first check of the jobs' duration in the last turn with many.
        var jobsBegan = NIODeadline.uptimeNanoseconds(0)
        /// The number of consecutive turns that ended because they had run enough jobs, without a read in between.
        var busyTurns = 0
        var taskTurns = TaskTurns()
        /// The end of a pause in which only a read begins a turn; nil without a pause.
        var restEnd: NIODeadline?
        var host: (any TurnHost)?
        /// Storage that is used again.
        var batch: [Submission] = []
        /// Closures that wait for ``Turn/after(_:)``.
        var later: [(inout Turn) -> Void] = []
        /// Submissions of this thread that have not run yet.
        var own: [Submission] = []
        /// The link to flush; almost always there is one at most.
        var touched: (any TurnLink)?
        var alsoTouched: [any TurnLink] = []
        var wantsFlush = false
        /// The callbacks for the user's queue.
        var callbacks: [SocketCallback] = []
        @usableFromInline var continuations: [UnsafeContinuation<Void, Never>] = []
    }

    private typealias Timers = LoopTimers<(inout Turn) -> Void>

    /// The largest number of Swift jobs that run in one turn.
    static let maximumJobsInTurn = 1_024
    /// The approximate time limit of jobs in one turn; checked after every ``jobsBetweenChecks`` jobs.
    private static let maximumTimeOfJobs = TimeAmount.milliseconds(5)
    private static let jobsBetweenChecks = 64
    /// About how long a turn serves one connection, or passes through all: others of the loop wait meanwhile.
    private static let turnBudget = TimeAmount.milliseconds(1)
    private static let leastTurnBudget = TimeAmount.microseconds(100)
    /// The number of times that the pause doubles while nothing is read: the event loop may need longer to reach its
    /// channels, especially in unoptimised builds.
    private static let maximumDoublings = 5

    package let eventLoop: any EventLoop
    /// Handlers that wait, at a fixed address: they are moved in through a ``Turn``.
    @usableFromInline let handlers = UnsafeMutablePointer<HandlerBuffer>.allocate(capacity: 1)
    /// Buffers for bytes that are usually released when the turn ends.
    package let buffers = BufferPool()
    /// Buffers for reads of the connections that share them.
    package let receiveBuffers = ReceiveBuffers()
    /// Nil where it is the event loop's own, and all time is the system's.
    private let thread: LoopThread?
    package let callbackQueue: CallbackQueue
    private let callsBackHere: Bool
    private let submissions = SubmissionQueue()
    private let lateJobs = LateJobs()
    #if DEBUG
    let jobWatch: JobWatch?
    #endif
    /// The timers of deadlines.
    private let timers: Timers
    /// The timers by the loop's own clock; the same object where deadlines have that clock too.
    private let pauses: Timers
    /// The timers that limit the time of what ends with the loop: by the clock of deadlines.
    private let endings: Timers
    /// The number of links whose units wait for another turn.
    private var yieldingCount = 0
    private var isDrainScheduled = false
    /// Whether nothing that is submitted from now on runs.
    private var isClosed = false
    // Unchecked: a call accesses it about ten times, only on this thread, and every access ends before other code is
    // called.
    #if !DEBUG && !CHECKED_EXCLUSIVITY
    @exclusivity(unchecked)
    #endif
    @usableFromInline var hot = Hot()

    /// - Parameters:
    ///   - callbackQueue: The queue for callbacks of turns.
    ///   - thread: The clock and the wake-up of the loop; the event loop's own by default.
    ///   - time: The clock of turns and timers; the thread's by default.
    ///   - logger: The logger for warnings about jobs that block the thread, in debug builds.
    package init(
        eventLoop: any EventLoop,
        callbackQueue: CallbackQueue = .socketThread,
        thread: LoopThread? = nil,
        time: SocketTime = SocketTime(),
        logger: Logger? = nil
    ) {
        self.eventLoop = eventLoop
        // With one, a loop distinguishes its own clock from that of deadlines; without one, it need not.
        self.thread = thread ?? (time.isSystem ? nil : LoopThread(of: eventLoop))
        self.timers = Timers(time)
        self.pauses = time.isSystem ? self.timers : Timers(SocketTime(), numberedFrom: 1 << 63)
        self.endings = Timers(time, numberedFrom: 1 << 62)
        self.callbackQueue = callbackQueue
        self.handlers.initialize(to: HandlerBuffer())
        #if DEBUG
        self.jobWatch = logger.map { JobWatch($0) }
        #endif
        self.callsBackHere = if case .socketThread = callbackQueue { true } else { false }
    }

    deinit {
        self.handlers.deinitialize(count: 1)
        self.handlers.deallocate()
    }

    /// Sets the host that is called at the end of each turn, until ``close(whenIdle:)``. Must be called before the
    /// first submission.
    package func setHost(_ host: any TurnHost) {
        self.hot.host = host
    }

    // MARK: From any thread

    /// Whether the calling thread is the loop's.
    package var isCurrent: Bool {
        guard let thread = self.thread else { return self.eventLoop.inEventLoop }
        return thread.isCurrent()
    }

    private func wake(_ body: @escaping @Sendable () -> Void) {
        guard let thread = self.thread else { return self.eventLoop.execute(body) }
        thread.wake(body)
    }

    /// Runs `submission` on this thread, in a turn, after all earlier submissions.
    ///
    /// - Returns: False if the loop is closed and runs nothing more.
    @discardableResult
    package func submit(_ submission: Submission) -> Bool {
        defer { if let thread = self.thread { thread.submitted() } }
        if self.isCurrent, !self.isClosed {
            self.hot.own.append(submission)
            // A turn runs its own submissions when it ends.
            if self.hot.phase == .idle { self.scheduleDrain() }
            return true
        }
        switch self.submissions.append(submission) {
        case .waiting:
            return true
        case .mustWake:
            self.wake { self.drain() }
            self.submissions.woke()
            return true
        case .refused:
            return false
        }
    }

    @discardableResult
    package func submit(_ body: @escaping @Sendable (inout Turn) -> Void) -> Bool { self.submit(.closure(body)) }

    /// Returns once all earlier submissions have run, or the loop is closed.
    package func settle() async {
        let (end, continuation) = AsyncStream.makeStream(of: Never.self)
        // A closed loop drops the submission.
        self.submit { [release = Release { continuation.finish() }] _ in withExtendedLifetime(release) {} }
        for await _ in end {}
    }

    /// Calls a closure when it is released.
    private final class Release: Sendable {
        private let body: @Sendable () -> Void

        init(_ body: @escaping @Sendable () -> Void) { self.body = body }

        deinit { self.body() }
    }

    /// Runs a Swift job on this thread, in a turn, like a handler; once the loop is closed, on the system's threads.
    ///
    /// If handlers are running, it runs in the current turn.
    func enqueue(_ job: SocketJob) {
        if self.isCurrent, !self.isClosed || self.hot.isLast,
            self.hot.phase == .handlers || self.hot.phase == .running, self.hot.remainingJobs > 0
        {
            self.hot.remainingJobs -= 1
            if self.hot.remainingJobs % Self.jobsBetweenChecks == 0 { self.checkTimeOfJobs() }
            self.handlers.pointee.append(job)
        } else if !self.submit(.job(job)) {
            self.lateJobs.append(job)
        }
    }

    /// Ends the jobs of this turn if they take too long.
    private func checkTimeOfJobs() {
        let now = self.clock
        if self.hot.remainingJobs == Self.maximumJobsInTurn - Self.jobsBetweenChecks {
            self.hot.jobsBegan = now
        } else if now - self.hot.jobsBegan > Self.maximumTimeOfJobs {
            self.hot.remainingJobs = 0
        }
    }

    /// Stops accepting work, and removes its timers, except those of ``setEndTimer(_:_:)``. `whenIdle` is called, on
    /// any thread, once no other thread is about to wake this one. Waiting jobs run elsewhere when the current turn has
    /// ended.
    package func close(whenIdle: @escaping @Sendable () -> Void) {
        self.isClosed = true
        self.hot.host = nil
        // Their actions refer to the loop, which would otherwise retain itself through them.
        self.timers.removeAll()
        self.pauses.removeAll()
        // Submissions during a pause, whose end was one of these timers, still run.
        if self.hot.restEnd.take() != nil { self.scheduleDrain() }
        self.submissions.close(whenIdle: whenIdle)
        for job in self.submissions.removeJobs() + self.hot.own.removeJobs() { self.lateJobs.append(job) }
        if self.hot.phase == .idle { self.lateJobs.begin() } else { self.hot.isLast = true }
    }

    private func scheduleDrain() {
        guard !self.isDrainScheduled else { return }
        self.isDrainScheduled = true
        self.wake {
            self.isDrainScheduled = false
            self.drain()
        }
    }

    /// Begins a turn that runs all that was submitted.
    private func drain() {
        // Otherwise they run at the end of the pause.
        guard self.hot.restEnd == nil else { return }
        guard var turn = self.begin() else { return self.scheduleDrain() }
        let began = self.hot.taskTurns.measures ? self.began(turn) : nil
        self.runSubmissions(in: &turn)
        self.end(turn)
        self.taskTurnEnded(began)
    }

    /// Begins a pause if the event loop has not reached its channels for too long.
    ///
    /// - Parameter began: The beginning of the turn, if it is known.
    private func taskTurnEnded(_ began: NIODeadline?) {
        guard let began else { return self.hot.taskTurns.turnEnded() }
        let now = self.clock
        guard let rest = self.hot.taskTurns.turnEnded(began: began, now: now), !self.isClosed else { return }
        let end = now + rest
        self.hot.restEnd = end
        _ = self.pause(until: end) { _ in }
    }

    private func endRest(in turn: inout Turn) {
        guard let end = self.hot.restEnd, end <= self.began(turn) else { return }
        self.hot.restEnd = nil
        self.runSubmissions(in: &turn)
    }

    // MARK: Turns

    /// Begins a turn. Nil if one is in progress: see ``enter(_:)``.
    @inline(__always)
    func begin() -> Turn? {
        assert(self.isCurrent, "turns belong to the socket's thread")
        guard self.hot.phase == .idle || self.hot.phase == .paused else { return nil }
        self.hot.phase = .running
        self.hot.hasTime = false
        self.hot.remainingJobs = Self.maximumJobsInTurn
        return Turn(self)
    }

    /// The current turn's.
    @inlinable var time: NIODeadline { self.hot.hasTime ? self.hot.now : self.readClock() }

    /// The time of the loop's own clock, by which it measures its load.
    private var clock: NIODeadline { self.thread?.now() ?? .now() }

    @usableFromInline
    func readClock() -> NIODeadline {
        let now = self.thread.map { self.readClocks(of: $0) } ?? .now()
        self.hot.now = now
        self.hot.hasTime = true
        return now
    }

    /// Reads both clocks, and returns the time of deadlines.
    private func readClocks(of thread: LoopThread) -> NIODeadline {
        self.hot.ownTime = thread.now()
        return self.timers === self.pauses ? self.hot.ownTime : self.timers.time.now()
    }

    /// The time of the turn by the loop's own clock.
    private func began(_ turn: borrowing Turn) -> NIODeadline {
        let now = turn.now
        return self.thread == nil ? now : self.hot.ownTime
    }

    /// Continues the paused turn, or begins one.
    @inline(__always)
    func resume() -> Turn? {
        guard self.hot.phase == .paused else { return self.begin() }
        self.hot.phase = .running
        return Turn(self)
    }

    /// Runs the current handlers and leaves the turn for ``resume()``: a read has been delivered, and there may be
    /// more.
    @inline(__always)
    func pause(_ turn: consuming Turn) {
        self.runHandlers(in: &turn)
        self.hot.phase = .paused
        self.hot.busyTurns = 0
        self.hot.taskTurns.channelWasRead()
    }

    /// Runs `body` in a new turn, or within the current one once that is free; always after the bodies before it.
    package func enter(_ body: @escaping (inout Turn) -> Void) {
        guard var turn = self.begin() else { return self.hot.later.append(body) }
        // They wait where a read's own turn has closed its channel: that turn stays paused, since NIO reports no end of
        // the read.
        if self.hot.later.isEmpty { body(&turn) } else { self.hot.later.append(body) }
        self.end(turn)
    }

    /// Runs `body` in the turn whose handlers are running. May be called on any thread; returns false if `body` does,
    /// if this is another thread, if no handler is running, or if earlier submissions wait for the turn.
    package func ifHandlersRun(_ body: (inout Turn) -> Bool) -> Bool {
        guard var turn = self.takeTurnOfHandlers() else { return false }
        let result = body(&turn)
        turn.giveBack()
        return result
    }

    /// Takes the turn whose handlers are running; it must be given back. May be called on any thread; nil if
    /// ``ifHandlersRun(_:)`` would return false.
    package func takeTurnOfHandlers() -> Turn? {
        guard self.isRunningHandlers else { return nil }
        self.hot.phase = .running
        return Turn(self)
    }

    private var isRunningHandlers: Bool {
        self.isCurrent && self.hot.phase == .handlers && self.hot.own.isEmpty
    }

    func end(_ turn: consuming Turn) {
        self.runHandlers(in: &turn)
        if !self.hot.own.isEmpty || !self.hot.later.isEmpty { self.runOwnSubmissions(in: &turn) }
        self.hot.phase = .ending
        self.flush(for: self.hot.host, in: &turn)
        self.handOver()
        self.hot.phase = .idle
        if !self.hot.own.isEmpty || !self.hot.later.isEmpty { self.scheduleNextTurn() }
        if self.hot.isLast { self.lastTurnEnded() }
    }

    /// Schedules another turn for the rest of this one's work.
    private func scheduleNextTurn() {
        guard self.hot.remainingJobs == 0, !self.isClosed else { return self.scheduleDrain() }
        let now = self.clock
        let pause = TaskTurns.rest(after: now - self.hot.jobsBegan)
        _ = self.pause(until: now + .nanoseconds(pause.nanoseconds << Int64(self.hot.busyTurns))) { _ in }
        self.hot.busyTurns = min(self.hot.busyTurns + 1, Self.maximumDoublings)
    }

    private func lastTurnEnded() {
        self.hot.isLast = false
        self.lateJobs.begin()
    }

    // Not inlined: a parameter is known to be retained, so the calls need not retain it.
    @inline(never)
    private func flush(for host: (any TurnHost)?, in turn: inout Turn) {
        host?.turnEnds(in: &turn)
        self.flushTouched(in: &turn)
        while !self.hot.later.isEmpty {
            self.runLater(in: &turn)
            self.flushNow(in: &turn)
        }
        // Their sends and submissions wait for the next turn: handlers that call repeatedly must not stop the loop.
        while let handler = self.handlers.pointee.takeFirst() { handler.run() }
        host?.turnEnded()
    }

    /// Runs the waiting handlers; each may take the turn.
    @inline(__always)
    private func runHandlers(in turn: inout Turn) {
        if !self.handlers.pointee.isEmpty { self.runWaitingHandlers(in: &turn) }
    }

    private func runWaitingHandlers(in turn: inout Turn) {
        self.hot.phase = .handlers
        while let handler = self.handlers.pointee.takeFirst() {
            handler.run()
            if self.hot.wantsFlush { self.flushNow(in: &turn) }
        }
        self.hot.phase = .running
    }

    private func runLater(in turn: inout Turn) {
        var later: [(inout Turn) -> Void] = []
        swap(&later, &self.hot.later)
        for body in later { body(&turn) }
    }

    /// Runs the work that other threads have submitted so far.
    private func runSubmissions(in turn: inout Turn) {
        var batch: [Submission] = []
        swap(&batch, &self.hot.batch)
        self.submissions.take(into: &batch)
        self.run(&batch, in: &turn)
        swap(&batch, &self.hot.batch)
    }

    /// Runs the work that was submitted on this thread so far, after earlier submissions of other threads.
    private func runOwnSubmissions(in turn: inout Turn) {
        if !self.hot.later.isEmpty { self.runLater(in: &turn) }
        guard !self.hot.own.isEmpty else { return self.runHandlers(in: &turn) }
        var batch: [Submission] = []
        swap(&batch, &self.hot.own)
        self.runSubmissions(in: &turn)
        self.run(&batch, in: &turn)
        // The storage is reused, unless new submissions have arrived meanwhile.
        if self.hot.own.isEmpty { swap(&batch, &self.hot.own) }
        self.runHandlers(in: &turn)
    }

    private func run(_ batch: inout [Submission], in turn: inout Turn) {
        for submission in batch {
            switch submission {
            case .work(let work, let operation): work.performOnSocketThread(operation, in: &turn)
            case .closure(let closure): closure(&turn)
            case .job(let job): self.handlers.pointee.append(job)
            }
            if self.hot.wantsFlush { self.flushNow(in: &turn) }
        }
        batch.removeAll(keepingCapacity: true)
    }

    func touch(_ link: any TurnLink) {
        if self.hot.touched == nil { self.hot.touched = link } else { self.hot.alsoTouched.append(link) }
    }

    /// Flushes the links that something was sent on, those included that are touched meanwhile.
    @inline(__always)
    private func flushTouched(in turn: inout Turn) {
        self.hot.wantsFlush = false
        while let link = self.hot.touched.take() {
            link.flush(in: &turn)
            if !self.hot.alsoTouched.isEmpty, self.hot.touched == nil {
                self.hot.touched = self.hot.alsoTouched.removeLast()
            }
        }
    }

    /// ``flushTouched(in:)`` before the turn ends, which is rare.
    @inline(never)
    private func flushNow(in turn: inout Turn) { self.flushTouched(in: &turn) }

    // MARK: Callbacks

    @inline(__always)
    package func callBack(_ callback: consuming SocketCallback) {
        if self.callsBackHere {
            self.handlers.pointee.append(callback)
        } else {
            self.hot.callbacks.append(callback)
        }
    }

    @inline(__always)
    private func handOver() {
        if !self.hot.continuations.isEmpty {
            for continuation in self.hot.continuations { continuation.resume() }
            self.hot.continuations.removeAll(keepingCapacity: true)
        }
        if !self.hot.callbacks.isEmpty { self.handOverCallbacks() }
    }

    private func handOverCallbacks() {
        guard case .queue(let queue) = self.callbackQueue else { return }
        var callbacks: [SocketCallback] = []
        swap(&callbacks, &self.hot.callbacks)
        queue.async { [callbacks] in
            for callback in callbacks { callback.run() }
        }
    }

    // MARK: Timers

    package typealias TimerID = TimerTable<(inout Turn) -> Void>.ID

    /// Runs `action` in a turn at `deadline`. All timers of the loop share one alarm.
    package func setTimer(_ deadline: NIODeadline, _ action: @escaping (inout Turn) -> Void) -> TimerID {
        self.set(deadline, in: self.timers, action)
    }

    /// Runs `action` in a turn at `deadline`, even if the loop has been closed by then: it limits the time that the end
    /// of something takes, which may be in progress when the loop is closed. The timer must be removed at that end,
    /// since the loop retains itself through it.
    package func setEndTimer(_ deadline: NIODeadline, _ action: @escaping (inout Turn) -> Void) -> TimerID {
        self.set(deadline, in: self.endings, action)
    }

    /// Runs `action` in another turn, soon, after the event loop has polled its channels.
    @discardableResult
    package func afterOtherChannels(
        in turn: inout Turn,
        _ action: @escaping (inout Turn) -> Void
    ) -> TimerID {
        let now = self.clock
        return self.pause(until: now + TaskTurns.rest(after: now - self.began(turn)), action)
    }

    /// Runs `action` in another turn once this time has passed for the loop: to let it do other work meanwhile, not to
    /// limit a peer's time.
    package func pause(for time: TimeAmount, _ action: @escaping (inout Turn) -> Void) -> TimerID {
        self.pause(until: self.clock + time, action)
    }

    /// Runs `action` in another turn at this time of the loop's own clock.
    package func pause(until end: NIODeadline, _ action: @escaping (inout Turn) -> Void) -> TimerID {
        self.set(end, in: self.pauses, action)
    }

    private func set(
        _ deadline: NIODeadline,
        in timers: Timers,
        _ action: @escaping (inout Turn) -> Void
    ) -> TimerID {
        defer { self.setAlarm(of: timers) }
        return timers.table.set(deadline, action)
    }

    /// The time since the turn began, based on the latest reading of the clock.
    package func age(of turn: borrowing Turn) -> TimeAmount { self.clock - self.began(turn) }

    /// Counts a link whose units wait for another turn, or no longer do.
    func linkYields(_ isYielding: Bool) { self.yieldingCount += isYielding ? 1 : -1 }

    /// Returns whether a turn has lasted long enough. The more connections wait for another turn, the shorter it is, so
    /// that peers with few units do not wait long behind peers with many.
    package func turnIsOver(_ turn: borrowing Turn) -> Bool {
        let share = Self.turnBudget.nanoseconds / Int64(1 + self.yieldingCount / 8)
        return self.age(of: turn).nanoseconds >= max(share, Self.leastTurnBudget.nanoseconds)
    }

    /// Runs the handlers of the units that were delivered so far, before further ones are delivered.
    ///
    /// - Returns: Whether they have run; false where the turn ends already, which runs them when it has flushed.
    func runHandlersBetweenUnits(in turn: inout Turn) -> Bool {
        guard self.hot.phase == .running else { return self.handlers.pointee.isEmpty }
        self.runHandlers(in: &turn)
        return true
    }

    package func removeTimer(_ id: TimerID) {
        self.timers.remove(id)
        self.endings.remove(id)
        if self.pauses !== self.timers { self.pauses.remove(id) }
    }

    /// Schedules a wake-up of the loop for the next of these timers.
    private func setAlarm(of timers: Timers) {
        let rest = timers === self.pauses ? self.hot.restEnd : nil
        guard let deadline = timers.deadlineToSet(notBefore: rest ?? .distantPast) else { return }
        let alarm = timers.time.schedule(at: deadline, on: self.eventLoop) { self.alarmRings(of: timers) }
        timers.alarmIsSet(alarm, deadline)
    }

    /// Runs timers that are due, for a limited time.
    private func alarmRings(of timers: Timers) {
        timers.alarmRings()
        guard var turn = self.begin() else {
            timers.alarmRang()
            return self.hot.later.append { _ in self.setAlarm(of: timers) }
        }
        let began = self.began(turn)
        let now = timers === self.pauses ? began : turn.now
        self.endRest(in: &turn)
        while let action = timers.table.popDue(now: now) {
            action(&turn)
            if self.clock - began >= TaskTurns.budget { break }
        }
        self.end(turn)
        timers.alarmRang()
        self.taskTurnEnded(began)
        self.setAlarm(of: timers)
    }
}
