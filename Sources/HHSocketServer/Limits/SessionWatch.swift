import HHSocket
import NIOCore

/// The time limits of one client: decides that it is idle, or that it stalls. The time is passed in.
struct SessionWatch: Sendable {
    enum Verdict: Hashable, Sendable {
        /// No byte came for too long, and nothing was under way.
        case idle
        /// Its first frame did not come.
        case noFirstFrame
        /// The frame that is arriving does not get on.
        case stalledReading
        /// The client does not take the bytes that wait for it.
        case stalledWriting
    }

    /// The state of a connection at a moment.
    struct Observation: Sendable {
        /// Of a frame that has begun to arrive and is not whole.
        var partialBytes = 0
        /// The number of bytes given to the channel that it still holds.
        var waitingBytes = 0
        /// The number of bytes sent that have reached the client, as far as the system tells.
        var bytesTaken = 0
        /// Whether requests are in flight.
        var isBusy = false
        /// Whether we do not read, so that it is not to blame for what does not come.
        var isReadingHeld = false
    }

    struct Times: Sendable {
        var idle: TimeAmount?
        var firstFrame: TimeAmount?
        var readStall: TimeAmount?
        var writeStall: TimeAmount?
        var minimumReadRate = 0
    }

    private var begun: NIODeadline
    private var lastRead: NIODeadline
    /// Since when the rate is measured at which a frame is arriving, and what of it had come then.
    private var partial: (since: NIODeadline, bytes: Int)?
    private var writing = StallWatch()
    private var hasFirstFrame = false

    init(now: NIODeadline) {
        self.begun = now
        self.lastRead = now
    }

    /// Whether a frame has begun to arrive and is not whole.
    var hasPartialFrame: Bool { self.partial != nil }

    /// Bytes came.
    ///
    /// - Parameters:
    ///   - count: How many.
    ///   - partialBytes: The number of bytes held of a frame that is incomplete.
    ///   - frames: Whether a whole frame was among them.
    mutating func received(_ count: Int, partialBytes: Int, frames: Bool, now: NIODeadline) {
        self.lastRead = now
        if partialBytes == 0 {
            self.partial = nil
        } else if frames || self.partial == nil {
            self.partial = (now, partialBytes)
        }
    }

    /// Notes that the first frame, or a required hello, has arrived.
    mutating func firstFrameCame() {
        self.hasFirstFrame = true
    }

    /// Notes that the first frame was of no use: another is awaited, for as long again.
    mutating func awaitFirstFrame(now: NIODeadline) {
        self.begun = now
        self.hasFirstFrame = false
    }

    /// Called from time to time.
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
        if observation.isReadingHeld {
            // The clocks of what it sends stand still.
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
                // What came at once at the beginning does not make up for a trickle later.
                self.partial = (now, observation.partialBytes)
            }
        }
        if let limit = times.idle, now - self.lastRead >= limit, !observation.isBusy, observation.waitingBytes == 0 {
            return .idle
        }
        return nil
    }
}
