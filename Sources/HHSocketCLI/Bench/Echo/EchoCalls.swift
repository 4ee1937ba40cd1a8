import HHSocketRPC
import NIOCore

/// The calls of one connection: decides which is made when, and what counts. It makes none; the time is passed in.
///
/// Every place in flight has two requests of its own, which are used again and again.
struct EchoCalls: Sendable {
    /// A call to be made now.
    struct Start: Sendable {
        var place: Int
        var request: SocketRequest
    }

    /// Room for one call in flight.
    private struct Place: Sendable {
        /// The call that is in flight, or was last.
        var number: UInt32 = 0
        /// When it started, or was to start.
        var start: UInt64 = 0
        var requests: RequestPair
    }

    private enum Phase {
        case running
        /// The time is over: calls in flight are waited for.
        case draining
        /// Given up: what becomes of calls in flight is of no interest.
        case stopped
    }

    private let body: EchoBody
    private var places: [Place]
    /// Places without a call.
    private var idle: [Int]
    private var phase = Phase.running
    private var number: UInt32 = 0
    /// Nil for a closed loop.
    private var schedule: StartSchedule?
    private(set) var tally: EchoTally
    /// The first call that went wrong.
    private(set) var failure: EchoFailure?

    /// - Parameters:
    ///   - inFlight: How many calls may be in flight at once.
    ///   - takesTurns: Whether a request may still be somebody's when its call has been answered.
    init(body: EchoBody, inFlight: Int, tally: EchoTally, schedule: StartSchedule?, takesTurns: Bool = true) {
        self.body = body
        self.places = (0..<inFlight).map { _ in Place(requests: RequestPair(body, takesTurns: takesTurns)) }
        self.idle = Array((0..<inFlight).reversed())
        self.tally = tally
        self.schedule = schedule
    }

    /// Whether calls in flight should be cancelled.
    var isGivenUp: Bool { self.phase == .stopped }

    /// Whether nothing is in flight, and nothing will be.
    var isOver: Bool { self.phase != .running && self.idle.count == self.places.count }

    /// A call was answered.
    ///
    /// - Returns: The call to make in its place. Nil: look for ``nextStart(_:)``.
    @inline(__always)
    mutating func answered(_ place: Int, with answer: ByteBuffer, now: UInt64) -> Start? {
        self.goesOn(place, with: answer, now: now) ? self.start(place, at: now) : nil
    }

    /// The first of two steps that do this: whether the next is ``request(of:at:)``.
    @inline(__always)
    mutating func goesOn(_ place: Int, with answer: ByteBuffer, now: UInt64) -> Bool {
        guard self.phase != .stopped else { return self.free(place) }
        let number = self.places[place].number
        guard self.body.isEchoed(by: answer, number: number) else {
            self.fail(EchoFailure(self.body.complaint(about: answer, number: number)))
            return self.free(place)
        }
        self.tally.completed(start: self.places[place].start, now: now)
        guard self.schedule == nil, now < self.tally.window.end else { return self.free(place) }
        return true
    }

    /// A call failed, if only because it was cancelled.
    mutating func failed(_ place: Int, _ failure: EchoFailure) {
        if self.phase != .stopped { self.fail(failure) }
        _ = self.free(place)
    }

    /// A call whose time has come, and for which there is room. To be asked for until there is none.
    mutating func nextStart(_ now: UInt64) -> Start? {
        guard self.phase == .running else { return nil }
        let end = self.tally.window.end
        if let place = self.idle.last {
            // What was due a moment before the end is not kept back for want of that moment.
            let time = self.schedule == nil ? (now < end ? now : nil) : self.schedule?.takeDue(at: min(now, end - 1))
            if let time {
                self.idle.removeLast()
                return self.start(place, at: time)
            }
        }
        if now >= end { self.phase = .draining }
        return nil
    }

    /// When to look for ``nextStart(_:)`` although no call has completed. Nil if the next completion is soon enough.
    var nextLook: UInt64? {
        guard self.phase == .running, !self.idle.isEmpty, let schedule = self.schedule else { return nil }
        return min(schedule.next, self.tally.window.end)
    }

    /// Ends the measurement here.
    mutating func stop(at now: UInt64) {
        guard self.phase != .stopped else { return }
        self.phase = .stopped
        self.tally.cut(at: now)
    }

    /// What was measured, once all is over.
    func result() throws(EchoFailure) -> EchoTally {
        if let failure = self.failure { throw failure }
        guard let schedule = self.schedule else { return self.tally }
        var tally = self.tally
        tally.countNotStarted(schedule)
        return tally
    }

    // MARK: Pieces

    /// The request of the call that starts now in this place.
    @inline(__always)
    mutating func request(of place: Int, at time: UInt64) -> SocketRequest {
        self.number &+= 1
        self.places[place].number = self.number
        self.places[place].start = time
        return self.places[place].requests.next(self.number)
    }

    private mutating func start(_ place: Int, at time: UInt64) -> Start {
        Start(place: place, request: self.request(of: place, at: time))
    }

    /// - Returns: That the place does not go on.
    private mutating func free(_ place: Int) -> Bool {
        self.idle.append(place)
        return false
    }

    private mutating func fail(_ failure: EchoFailure) {
        self.failure = failure
        self.phase = .stopped
    }
}
