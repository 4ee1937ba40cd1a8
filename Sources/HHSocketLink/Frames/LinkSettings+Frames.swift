// SPDX-License-Identifier: Apache-2.0
package import NIOCore

extension LinkSettings where Unit == Frame {
    /// The settings of a link for frames, on either side.
    ///
    /// - Parameters:
    ///   - heartbeat: Nil for none.
    ///   - ping: This side's ping; nil if it has none in this format, and waits for the peer's.
    ///   - maximumPayloadLength: The largest payload of a ping, in bytes.
    package init(
        maximumQueuedBytes: Int,
        writeStallTimeout: TimeAmount? = nil,
        heartbeat: HeartbeatPolicy?,
        ping: Frame?,
        maximumPayloadLength: Int
    ) {
        self.init(maximumQueuedBytes: maximumQueuedBytes, writeStallTimeout: writeStallTimeout) { interval, now in
            guard let heartbeat, let interval else { return nil }
            let canPing = ping != nil
            return Beats(
                monitor: HeartbeatMonitor(heartbeat, interval: interval, canPing: canPing, now: now),
                now: now
            )
        } makeBeat: {
            guard let heartbeat, var ping else { return nil }
            ping.payload = try heartbeat.beat(limit: maximumPayloadLength)
            return ping
        }
    }
}
