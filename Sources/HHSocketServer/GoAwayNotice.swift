import HHSocket
import HHSocketHello
import HHSocketMessage
import NIOCore

/// What a client is told before its connection ends.
struct GoAwayNotice: Sendable {
    /// Frames of this type and serial say so.
    static let type: UInt32 = 4
    static let serial: UInt32 = 4

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
            type: Self.type,
            serial: Self.serial,
            payload: (try? ByteBuffer(message: message)) ?? ByteBuffer()
        )
    }
}
