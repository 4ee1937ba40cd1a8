import HHSocketMessage
import NIOCore

extension WireGoAway {
    /// - Parameters:
    ///   - reason: Why, for people to read.
    ///   - retryAfter: How long the client should stay away, rounded down to whole milliseconds.
    ///   - endpoints: Where it may go instead, best first.
    package init(reason: String, retryAfter: Duration, endpoints: [Endpoint]) {
        self.init()
        self.reason = reason
        self.retryAfter = UInt32(clamping: TimeAmount(retryAfter).nanoseconds / 1_000_000)
        self.endpoints = endpoints.map { "\($0)" }
    }

    /// The frame that says so.
    package var frame: Frame {
        Frame(
            type: FrameType.goAway,
            serial: FrameSerial.goAway,
            // Text and numbers can always be written.
            payload: (try? ByteBuffer(message: self)) ?? ByteBuffer()
        )
    }
}
