import HHSocket
import HHSocketRPC
import NIOConcurrencyHelpers
import NIOCore

/// The calls of one connection, as tasks with completion handlers.
///
/// Every place in flight has a handler and two requests of its own, which are used again and again. A handler checks its
/// answer, records the latency, and starts the next call of its place. All of it runs where callbacks run, without a lock.
final class TaskLoop: EchoLoop, @unchecked Sendable {
    // Proof of Sendable: constants are Sendable themselves, or locked; variables are touched where callbacks run alone,
    // which is one thread, or a serial queue. What other threads want is handed over by `perform`.
    private typealias Handler = @Sendable (Result<SocketResponse, SocketError>) -> Void

    /// Room for one call in flight.
    private struct Place {
        var requests: RequestPair
        var handler: Handler
        /// The call that is in flight.
        var number: UInt32 = 0
        /// When it started, or was to start.
        var start: UInt64 = 0
    }

    private enum Phase {
        case running
        /// The time is over: calls in flight are waited for.
        case draining
        /// Given up: what becomes of calls in flight is of no interest.
        case stopped
    }

    /// In nanoseconds; how often other threads are told how many calls there were.
    private static let publishingInterval: UInt64 = 200_000_000

    private let client: SocketClient
    private let eventLoop: any EventLoop
    private let callbacks: CallbackQueue
    private let body: EchoBody
    private let inFlightLimit: Int
    private let published = NIOLockedValueBox(0)

    private var places: [Place] = []
    /// Places without a call, which wait for the schedule.
    private var idle: [Int] = []
    private var tally: EchoTally
    /// Nil for a closed loop.
    private var schedule: StartSchedule?
    private var number: UInt32 = 0
    private var inFlight = 0
    private var phase = Phase.running
    /// Before this moment a completion has nothing to look after but itself.
    private var checkpoint: UInt64 = 0
    private var isTimerSet = false
    private var failure: EchoFailure?
    private var whenEnded: CheckedContinuation<EchoTally, any Error>?

    /// - Parameters:
    ///   - client: Connected, on `eventLoop`, with `callbacks` as its queue.
    ///   - inFlight: Calls in flight at once.
    init(
        client: SocketClient,
        eventLoop: any EventLoop,
        callbacks: CallbackQueue,
        body: EchoBody,
        inFlight: Int,
        tally: EchoTally,
        schedule: StartSchedule?
    ) {
        self.client = client
        self.eventLoop = eventLoop
        self.callbacks = callbacks
        self.body = body
        self.inFlightLimit = inFlight
        self.tally = tally
        self.schedule = schedule
    }

    var callsSoFar: Int { self.published.withLockedValue { $0 } }

    func run() async throws -> EchoTally {
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                self.perform { self.begin(continuation) }
            }
        } onCancel: {
            self.perform { self.stop() }
        }
    }

    /// Runs `body` where callbacks run.
    private func perform(_ body: @escaping @Sendable () -> Void) {
        self.eventLoop.execute { self.callbacks.run(body) }
    }

    // MARK: Where callbacks run

    private func begin(_ continuation: CheckedContinuation<EchoTally, any Error>) {
        self.whenEnded = continuation
        // Cancelled before it began.
        guard self.phase == .running else { return self.end() }
        self.places = (0..<self.inFlightLimit).map { index in
            Place(requests: RequestPair(self.body)) { self.completed(index, $0) }
        }
        let now = Uptime.now
        if self.schedule == nil {
            for index in self.places.indices { self.start(index, at: now) }
        } else {
            self.idle = Array(self.places.indices.reversed())
            self.startDue(now)
        }
    }

    @inline(__always)
    private func start(_ index: Int, at time: UInt64) {
        self.number &+= 1
        self.inFlight += 1
        self.places[index].number = self.number
        self.places[index].start = time
        let request = self.places[index].requests.next(self.number)
        self.client.dataTask(with: request, completionHandler: self.places[index].handler).resume()
    }

    private func completed(_ index: Int, _ result: Result<SocketResponse, SocketError>) {
        let now = Uptime.now
        self.inFlight -= 1
        guard self.phase != .stopped else { return self.endIfIdle() }
        let number = self.places[index].number
        switch result {
        case .success(let response):
            guard self.body.isEchoed(by: response.body, number: number) else {
                return self.fail(EchoFailure(self.body.complaint(about: response.body, number: number)))
            }
        case .failure(let error):
            return self.fail(EchoFailure(error))
        }
        self.tally.completed(start: self.places[index].start, now: now)
        if now >= self.checkpoint { self.pass(now) }
        guard self.phase == .running else { return self.endIfIdle() }
        if self.schedule == nil {
            self.start(index, at: now)
        } else {
            self.idle.append(index)
            self.startDue(now)
        }
    }

    /// Looks at the time: it may be over.
    private func pass(_ now: UInt64) {
        self.published.withLockedValue { $0 = self.tally.calls }
        if self.phase == .running, now >= self.tally.window.end {
            // What was due a moment before is not kept back for want of that moment.
            self.startDue(now)
            self.phase = .draining
        }
        self.checkpoint =
            self.phase == .running ? min(now + Self.publishingInterval, self.tally.window.end) : .max
    }

    /// Starts the calls whose time has come, as far as there is room, and comes back for the next one. Where there is no
    /// room the next completion comes back.
    private func startDue(_ now: UInt64) {
        let last = min(now, self.tally.window.end - 1)
        while let index = self.idle.last, let start = self.schedule?.takeDue(at: last) {
            self.idle.removeLast()
            self.start(index, at: start)
        }
        guard !self.isTimerSet, !self.idle.isEmpty, let next = self.schedule?.next else { return }
        self.isTimerSet = true
        self.eventLoop.scheduleTask(deadline: .uptimeNanoseconds(min(next, self.tally.window.end))) {
            self.callbacks.run { self.timerFired() }
        }
    }

    private func timerFired() {
        self.isTimerSet = false
        guard self.phase == .running else { return }
        let now = Uptime.now
        if now >= self.checkpoint { self.pass(now) }
        if self.phase == .running { self.startDue(now) } else { self.endIfIdle() }
    }

    private func fail(_ failure: EchoFailure) {
        self.failure = failure
        self.giveUp()
    }

    private func stop() {
        guard self.phase != .stopped else { return }
        self.tally.cut(at: Uptime.now)
        self.giveUp()
    }

    private func giveUp() {
        self.phase = .stopped
        self.client.cancelAllTasks()
        self.endIfIdle()
    }

    private func endIfIdle() {
        if self.inFlight == 0 { self.end() }
    }

    private func end() {
        guard let whenEnded = self.whenEnded else { return }
        self.whenEnded = nil
        // Each holds this object.
        self.places = []
        if let failure = self.failure { return whenEnded.resume(throwing: failure) }
        if let schedule = self.schedule { self.tally.countNotStarted(schedule) }
        whenEnded.resume(returning: self.tally)
    }
}
