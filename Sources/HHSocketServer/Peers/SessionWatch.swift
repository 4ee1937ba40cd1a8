// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

/// The time limits of one client, whatever its connection carries: decides that it is idle, or that it stalls. The time
/// is passed in.
///
/// A frame is here what the client sends as a unit: a frame, or a message of a WebSocket.
struct SessionWatch: Sendable {
    enum Verdict: Hashable, Sendable {
        /// No byte arrived for too long, and nothing was in progress.
        case idle
        /// The first frame did not arrive in time.
        case noFirstFrame
        /// The incomplete frame makes no progress.
        case stalledReading
        /// The client does not read the bytes that wait for it.
        case stalledWriting
        /// The client has been a stranger for too long.
        case unknown
    }

    /// The state of a connection at a moment.
    struct Observation: Sendable {
        /// The number of bytes of an incomplete frame.
        var partialBytes = 0
        /// The number of bytes written to the channel that it still holds.
        var waitingBytes = 0
        /// The number of sent bytes that have reached the client, as far as the system reports.
        var bytesTaken = 0
        /// Whether the client may be silent, because requests are in flight.
        var isBusy = false
        /// Whether reading is suspended here, so that the client is not to blame for missing bytes.
        var isReadingHeld = false
    }

    struct Times: Sendable {
        var idle: TimeAmount?
        var firstFrame: TimeAmount?
        var readStall: TimeAmount?
        var writeStall: TimeAmount?
        var minimumReadRate = 0
        /// The time within which a stranger must identify itself.
        var acquaintance: TimeAmount?
    }

    /// The time that a stranger has taken to identify itself. It does not advance while the server authenticates it.
    private struct Acquaintance: Sendable {
        var spent = TimeAmount.nanoseconds(0)
        /// The start of the time that is not in `spent` yet; nil while the time does not advance.
        var since: NIODeadline?

        func time(now: NIODeadline) -> TimeAmount { self.spent + (self.since.map { now - $0 } ?? .nanoseconds(0)) }
    }

    private var begun: NIODeadline
    private var lastRead: NIODeadline
    /// The start of the measurement of the rate at which a frame arrives, and the number of its bytes at that time.
    private var partial: (since: NIODeadline, bytes: Int)?
    private var writing = StallWatch()
    private var hasFirstFrame = false
    /// Nil for a known client.
    private var acquaintance: Acquaintance?
    /// Whether the client is being authenticated.
    private var isAuthenticating = false

    /// - Parameter isStranger: Whether the client must identify itself.
    init(now: NIODeadline, isStranger: Bool = false) {
        self.begun = now
        self.lastRead = now
        if isStranger { self.acquaintance = Acquaintance(since: now) }
    }

    /// The time since which no bytes have arrived.
    func silence(now: NIODeadline) -> TimeAmount { now - self.lastRead }

    /// Records that bytes have arrived.
    ///
    /// - Parameters:
    ///   - count: The number of bytes.
    ///   - partialBytes: The number of bytes held of a frame that is incomplete.
    ///   - frames: Whether a complete frame was among them.
    mutating func received(_ count: Int, partialBytes: Int, frames: Bool, now: NIODeadline) {
        self.lastRead = now
        if partialBytes == 0 {
            self.partial = nil
        } else if frames || self.partial == nil {
            self.partial = (now, partialBytes)
        }
    }

    /// Records that the frame without progress is not awaited any longer.
    mutating func frameWasGivenUp() {
        self.partial = nil
    }

    /// Notes that the first frame, or a required hello, has arrived.
    mutating func firstFrameCame() {
        self.hasFirstFrame = true
    }

    /// Notes that the first frame was of no use. Another is awaited, for the same time again.
    mutating func awaitFirstFrame(now: NIODeadline) {
        self.begun = now
        self.hasFirstFrame = false
    }

    /// Records that the client has become known, or is a stranger again.
    mutating func standingChanged(isStranger: Bool, now: NIODeadline) {
        guard isStranger != (self.acquaintance != nil) else { return }
        self.acquaintance = isStranger ? Acquaintance(since: self.isAuthenticating ? nil : now) : nil
    }

    /// Records whether the client waits for its authentication.
    mutating func authenticationChanged(isUnderWay: Bool, now: NIODeadline) {
        guard isUnderWay != self.isAuthenticating else { return }
        self.isAuthenticating = isUnderWay
        guard var acquaintance = self.acquaintance else { return }
        acquaintance.spent = acquaintance.time(now: now)
        acquaintance.since = isUnderWay ? nil : now
        self.acquaintance = acquaintance
    }

    /// Returns the limit that the client has exceeded, if any. Called periodically.
    mutating func verdict(_ observation: Observation, _ times: Times, now: NIODeadline) -> Verdict? {
        if let window = times.writeStall,
            self.writing.isStalled(
                isWaiting: observation.waitingBytes > 0,
                passed: observation.bytesTaken,
                within: window,
                now: now
            )
        {
            return .stalledWriting
        }
        if let limit = times.acquaintance, let acquaintance = self.acquaintance, acquaintance.time(now: now) >= limit {
            return .unknown
        }
        if observation.isReadingHeld {
            // The limits on the client's sending are suspended.
            self.lastRead = now
            if self.partial != nil { self.partial = (now, observation.partialBytes) }
            return nil
        }
        if let limit = times.firstFrame, !self.hasFirstFrame, now - self.begun >= limit { return .noFirstFrame }
        if let partial = self.partial, let limit = times.readStall {
            if now - self.lastRead >= limit { return .stalledReading }
            let time = now - partial.since
            if time >= limit {
                let rate = Double(observation.partialBytes - partial.bytes) / (Double(time.nanoseconds) / 1e9)
                if rate < Double(times.minimumReadRate) { return .stalledReading }
                // A burst at the beginning does not compensate for a slow rate later.
                self.partial = (now, observation.partialBytes)
            }
        }
        if let limit = times.idle, now - self.lastRead >= limit, !observation.isBusy, observation.waitingBytes == 0 {
            return .idle
        }
        return nil
    }
}

extension SessionWatch.Times {
    /// The times that apply to every connection. No first frame is awaited, and the client need not identify itself.
    init(_ limits: ServerLimits) {
        self.init()
        self.idle = limits.idleTimeout.map { TimeAmount(clamping: $0) }
        self.readStall = limits.readStallTimeout.map { TimeAmount(clamping: $0) }
        self.writeStall = limits.writeStallTimeout.map { TimeAmount(clamping: $0) }
        self.minimumReadRate = limits.minimumReadRate
    }
}
