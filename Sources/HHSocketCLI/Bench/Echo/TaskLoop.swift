// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import NIOConcurrencyHelpers
import NIOCore

/// The calls of one connection, with completion handlers, and with tasks if requested. Performs the decisions of
/// ``EchoCalls``.
///
/// It must be cheap, since its cost is measured too. A place in flight has one handler for all its calls. A handler
/// checks its answer and makes the next call, on the callback queue, without taking a lock or allocating memory.
final class TaskLoop: EchoLoop, @unchecked Sendable {
    // Proof of Sendable: constants are Sendable or locked; variables are used only where callbacks run, which is one
    // thread or a serial queue. Other threads get there through `perform`.

    /// A box for the function, which would otherwise be wrapped again each time it is taken out of an array.
    private struct Handler {
        let run: @Sendable (Result<SocketResponse, SocketError>) -> Void
    }

    /// The interval at which the number of calls is published to other threads.
    private static let publishingInterval = TimeAmount.milliseconds(200)

    private let client: SocketClient
    private let makesTasks: Bool
    private let eventLoop: any EventLoop
    private let callbacks: CallbackQueue
    private let inFlight: Int
    private let published = NIOLockedValueBox(0)

    // The next three are unchecked, because each call accesses them, only where callbacks run, and the cost of the
    // bench itself is measured with each call.
    #if !DEBUG && !CHECKED_EXCLUSIVITY
    @exclusivity(unchecked)
    #endif
    private var calls: EchoCalls
    /// The handlers, one for each place; empty before the start and after the end, because each holds this object.
    #if !DEBUG && !CHECKED_EXCLUSIVITY
    @exclusivity(unchecked)
    #endif
    private var handlers: [Handler] = []
    private let sharesReadings: Bool
    /// The clock's reading in this turn of the event loop; zero before there is one.
    #if !DEBUG && !CHECKED_EXCLUSIVITY
    @exclusivity(unchecked)
    #endif
    private var reading: UInt64 = 0
    private var publishing: RepeatedTask?
    private var isCheckScheduled = false
    private var hasCancelled = false
    private var whenOver: CheckedContinuation<EchoTally, any Error>?

    /// - Parameters:
    ///   - client: A connected client, on `eventLoop`, with `callbacks` as its queue.
    ///   - makesTasks: Whether each call has a task.
    ///   - inFlight: The number of calls that may be in flight at once.
    ///   - schedule: The schedule of calls; nil for a closed loop.
    init(
        client: SocketClient,
        makesTasks: Bool,
        eventLoop: any EventLoop,
        callbacks: CallbackQueue,
        body: EchoBody,
        inFlight: Int,
        tally: EchoTally,
        schedule: StartSchedule?
    ) {
        self.client = client
        self.makesTasks = makesTasks
        self.eventLoop = eventLoop
        self.callbacks = callbacks
        self.inFlight = inFlight
        let isInline = if case .socketThread = callbacks { true } else { false }
        self.sharesReadings = isInline && inFlight >= 16
        self.calls = EchoCalls(
            body: body,
            inFlight: inFlight,
            tally: tally,
            schedule: schedule,
            alternates: !isInline
        )
    }

    var callsSoFar: Int { self.published.withLockedValue { $0 } }

    func run() async throws -> EchoTally {
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                self.perform { self.begin(continuation) }
            }
        } onCancel: {
            self.perform {
                self.calls.stop(at: Uptime.now)
                self.poll(Uptime.now)
            }
        }
    }

    /// Runs `body` where callbacks run.
    private func perform(_ body: @escaping @Sendable () -> Void) {
        self.eventLoop.execute { self.callbacks.run(body) }
    }

    // MARK: Where callbacks run

    private func begin(_ continuation: CheckedContinuation<EchoTally, any Error>) {
        self.whenOver = continuation
        self.handlers = (0..<self.inFlight).map { slot in Handler { self.completed(slot, $0) } }
        self.publishing = self.eventLoop.scheduleRepeatedTask(
            initialDelay: Self.publishingInterval,
            delay: Self.publishingInterval
        ) { _ in
            self.callbacks.run { self.published.withLockedValue { $0 = self.calls.tally.calls } }
        }
        self.poll(Uptime.now)
    }

    private func completed(_ slot: Int, _ result: Result<SocketResponse, SocketError>) {
        let now = self.readClock()
        switch result {
        case .success(let response):
            if self.calls.continues(slot, with: response.body, now: now) {
                return self.perform(self.calls.request(of: slot, at: now), slot)
            }
        case .failure(let error):
            self.calls.failed(slot, EchoFailure(error))
        }
        self.poll(now)
    }

    /// Returns the time. If handlers run on the socket's thread and many calls are in flight, one reading serves all
    /// answers of a turn: for the end of their calls, and the start of those that replace them.
    @inline(__always)
    private func readClock() -> UInt64 {
        guard self.sharesReadings else { return Uptime.now }
        if self.reading != 0 { return self.reading }
        self.reading = Uptime.now
        self.eventLoop.execute { self.reading = 0 }
        return self.reading
    }

    @inline(__always)
    private func perform(_ request: consuming SocketRequest, _ slot: Int) {
        guard self.makesTasks else {
            self.client.dispatch(request, completionHandler: self.handlers[slot].run)
            return
        }
        self.client.dataTask(with: request, completionHandler: self.handlers[slot].run).resume()
    }

    /// Starts due calls, cancels the others once given up, and ends the loop or schedules the next check.
    private func poll(_ now: UInt64) {
        // The loop was stopped before it began.
        guard self.whenOver != nil else { return }
        while let start = self.calls.nextStart(now) { self.perform(start.request, start.slot) }
        if self.calls.isGivenUp, !self.hasCancelled {
            self.hasCancelled = true
            self.client.cancelAllTasks()
        }
        if self.calls.isOver {
            self.end()
        } else {
            self.scheduleCheck()
        }
    }

    private func scheduleCheck() {
        guard !self.isCheckScheduled, let time = self.calls.nextCheck else { return }
        self.isCheckScheduled = true
        self.eventLoop.scheduleTask(deadline: .uptimeNanoseconds(time)) {
            self.callbacks.run {
                self.isCheckScheduled = false
                self.poll(Uptime.now)
            }
        }
    }

    private func end() {
        let whenOver = self.whenOver
        self.whenOver = nil
        self.handlers = []
        self.publishing?.cancel()
        whenOver?.resume(with: Result { try self.calls.result() })
    }
}
