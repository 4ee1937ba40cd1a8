// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import NIOCore

/// The state of one connection's calls: decides when each is made, and what counts. It makes no calls; the time is
/// passed in.
///
/// Every place in flight has its own two requests, which are reused.
struct EchoCalls: Sendable {
    /// A call to make now.
    struct Start: Sendable {
        var slot: Int
        var request: SocketRequest
    }

    /// Room for one call in flight.
    private struct Slot: Sendable {
        /// The call in flight, or the last one.
        var number: UInt32 = 0
        /// The time at which it started, or was due.
        var start: UInt64 = 0
        var requests: RequestPair

        /// Starts a call, and returns its request.
        @inline(__always)
        mutating func begin(_ number: UInt32, at time: UInt64) -> SocketRequest {
            self.number = number
            self.start = time
            return self.requests.next(number)
        }
    }

    private enum Phase {
        case running
        /// The time is over; calls in flight are awaited.
        case draining
        /// Given up; the outcome of calls in flight is ignored.
        case stopped
    }

    private let body: EchoBody
    private var slots: [Slot]
    /// The places without a call.
    private var idle: [Int]
    private var phase = Phase.running
    private var number: UInt32 = 0
    /// Nil for a closed loop.
    private var schedule: StartSchedule?
    private(set) var tally: EchoTally
    /// The failure of the first call that failed.
    private(set) var failure: EchoFailure?

    /// - Parameters:
    ///   - inFlight: The number of calls that may be in flight at once.
    ///   - alternates: Whether a request may still be referenced when its call has been answered.
    init(body: EchoBody, inFlight: Int, tally: EchoTally, schedule: StartSchedule?, alternates: Bool = true) {
        self.body = body
        self.slots = (0..<inFlight).map { _ in Slot(requests: RequestPair(body, alternates: alternates)) }
        self.idle = Array((0..<inFlight).reversed())
        self.tally = tally
        self.schedule = schedule
    }

    /// Whether calls in flight should be cancelled.
    var isGivenUp: Bool { self.phase == .stopped }

    /// Whether nothing is in flight, and nothing will be.
    var isOver: Bool { self.phase != .running && self.idle.count == self.slots.count }

    /// Records that a call was answered.
    ///
    /// - Returns: The call to make in its place; if it is nil, call ``nextStart(_:)``.
    @inline(__always)
    mutating func answered(_ slot: Int, with answer: ByteBuffer, now: UInt64) -> Start? {
        self.continues(slot, with: answer, now: now) ? self.start(slot, at: now) : nil
    }

    /// The first of the two steps of ``answered(_:with:now:)``. If it returns true the second is ``request(of:at:)``.
    @inline(__always)
    mutating func continues(_ slot: Int, with answer: ByteBuffer, now: UInt64) -> Bool {
        guard self.phase != .stopped else { return self.free(slot) }
        let number = self.slots[slot].number
        guard self.body.isEchoed(by: answer, number: number) else {
            self.fail(EchoFailure(self.body.reason(about: answer, number: number)))
            return self.free(slot)
        }
        self.tally.completed(start: self.slots[slot].start, now: now)
        guard self.schedule == nil, now < self.tally.window.end else { return self.free(slot) }
        return true
    }

    /// Records that a call failed, if only because it was cancelled.
    mutating func failed(_ slot: Int, _ failure: EchoFailure) {
        if self.phase != .stopped { self.fail(failure) }
        _ = self.free(slot)
    }

    /// Returns a call that is due, and for which there is room. Call it until it returns nil.
    mutating func nextStart(_ now: UInt64) -> Start? {
        guard self.phase == .running else { return nil }
        let end = self.tally.window.end
        if let slot = self.idle.last {
            // A call that was due just before the end is still made.
            let time = self.schedule == nil ? (now < end ? now : nil) : self.schedule?.takeDue(at: min(now, end - 1))
            if let time {
                self.idle.removeLast()
                return self.start(slot, at: time)
            }
        }
        if now >= end { self.phase = .draining }
        return nil
    }

    /// The time of the next call of ``nextStart(_:)``, even if no call completes before; nil if the next completion is
    /// soon enough.
    var nextCheck: UInt64? {
        guard self.phase == .running, !self.idle.isEmpty, let schedule = self.schedule else { return nil }
        return min(schedule.next, self.tally.window.end)
    }

    /// Ends the measurement now.
    mutating func stop(at now: UInt64) {
        guard self.phase != .stopped else { return }
        self.phase = .stopped
        self.tally.cut(at: now)
    }

    /// Returns the measurement, once ``isOver``.
    func result() throws(EchoFailure) -> EchoTally {
        if let failure = self.failure { throw failure }
        guard let schedule = self.schedule else { return self.tally }
        var tally = self.tally
        tally.countNotStarted(schedule)
        return tally
    }

    // MARK: Pieces

    /// Starts a call in this place, and returns its request.
    @inline(__always)
    mutating func request(of slot: Int, at time: UInt64) -> SocketRequest {
        self.number &+= 1
        // One access, since each asks whether the array is shared.
        return self.slots[slot].begin(self.number, at: time)
    }

    private mutating func start(_ slot: Int, at time: UInt64) -> Start {
        Start(slot: slot, request: self.request(of: slot, at: time))
    }

    /// Frees the place.
    ///
    /// - Returns: False: the place does not continue.
    private mutating func free(_ slot: Int) -> Bool {
        self.idle.append(slot)
        return false
    }

    private mutating func fail(_ failure: EchoFailure) {
        self.failure = failure
        self.phase = .stopped
    }
}
