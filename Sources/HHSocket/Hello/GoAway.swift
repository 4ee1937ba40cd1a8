import HHSocket
import HHSocketMessage
import NIOCore

extension WireGoAway {
    /// - Parameters:
    ///   - reason: Why, for people to read.
    ///   - retryAfter: So long the client should leave the server alone; what is not a whole millisecond is left out.
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
