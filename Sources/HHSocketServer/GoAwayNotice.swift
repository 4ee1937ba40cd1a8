import HHSocket
import HHSocketHello
import HHSocketMessage
import NIOCore

/// What a client is told before its connection ends.
struct GoAwayNotice: Sendable {

    var reason: String
    /// So long the client should leave this server alone.
    var retryAfter = Duration.zero
    /// Where it may go instead.
    var endpoints: [Endpoint] = []

    var frame: Frame {
        var message = WireGoAway()
        message.reason = self.reason
        message.retryAfter = UInt32(clamping: TimeAmount(self.retryAfter).nanoseconds / 1_000_000)
        message.endpoints = self.endpoints.map { "\($0)" }
        return Frame(
            type: FrameType.goAway,
            serial: FrameSerial.goAway,
            payload: (try? ByteBuffer(message: message)) ?? ByteBuffer()
        )
    }
}
