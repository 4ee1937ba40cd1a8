// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The rules by which a side pings, and considers the other dead.
///
/// ```swift
/// // A ping every 10 s, noticing a dead link after 10 + 2 × 8 s.
/// configuration.heartbeat = HeartbeatPolicy(interval: .seconds(10))
/// // A text every 60 s, for a server that wants to read one.
/// configuration.heartbeat = HeartbeatPolicy(interval: .seconds(60), payload: ByteBuffer(string: "alive"))
/// // Every 180 s, where the network is known to forget idle connections after 5 minutes.
/// configuration.heartbeat = HeartbeatPolicy(interval: .seconds(180))
/// // Every 60 s while the app is active, every 540 s in the background; needs `backgroundPolicy = .keepConnected`.
/// configuration.heartbeat = HeartbeatPolicy(strategy: .fixed(.seconds(60), inBackground: .seconds(540)))
/// // In the background as seldom as the network of the moment allows; needs the same.
/// configuration.heartbeat = HeartbeatPolicy(strategy: .adaptive())
/// // Only the server pings, every 60 s.
/// configuration.heartbeat = HeartbeatPolicy(interval: .seconds(60), mode: .expectPings)
/// // No pings.
/// configuration.heartbeat = nil
/// ```
public struct HeartbeatPolicy: Sendable {
    /// The side that pings.
    public enum Mode: String, Hashable, Sendable {
        /// This side pings; the other's pings are answered too. The peer is dead after `misses + 1` reply timeouts
        /// without a byte.
        case ping
        /// This side never pings: the other side pings every interval, and is dead once no byte has arrived for
        /// `interval + (misses + 1) × replyTimeout`, the time after which ``ping`` would detect it.
        case expectPings
    }

    /// The strategy that determines the interval.
    package var interval: any HeartbeatStrategy
    /// The time one ping waits for a byte from the peer.
    package var replyTimeout: Duration
    /// The number of pings that may stay unanswered: the peer is dead after `misses + 1` reply timeouts.
    package var misses: Int
    /// The payload of our pings.
    package var payload: ByteBuffer
    /// Makes the payload of each ping, instead of a constant one; nil by default. Runs on the socket's thread, which it
    /// must not block. If it throws, or its payload cannot be sent, that ping is skipped, with a warning in the log,
    /// and the next is due after another interval.
    public var makePayload: (@Sendable () throws -> ByteBuffer)?
    /// The side that pings.
    package var mode: Mode

    /// Creates a policy with a strategy for the interval.
    ///
    /// - Parameters:
    ///   - strategy: The strategy that sets the interval: since the last byte sent or since the last byte received,
    ///     whichever is earlier, or at which the other side pings.
    ///   - replyTimeout: The time one ping waits for a byte from the peer; 8 s by default, as Tencent Mars waits for
    ///     its no-op.
    ///   - misses: The number of pings that may stay unanswered; 1 by default.
    ///   - payload: The payload of our pings, empty by default. It must be empty in formats that allow none.
    ///   - mode: The side that pings; ``Mode/ping`` by default. A client behaves as with ``Mode/expectPings`` in a
    ///     format in which only servers ping.
    public init(
        strategy: any HeartbeatStrategy,
        replyTimeout: Duration = .seconds(8),
        misses: Int = 1,
        payload: ByteBuffer = ByteBuffer(),
        mode: Mode = .ping
    ) {
        self.interval = strategy
        self.replyTimeout = replyTimeout
        self.misses = misses
        self.payload = payload
        self.mode = mode
    }

    /// Creates a policy with a fixed interval.
    ///
    /// - Parameters:
    ///   - interval: 60 s by default. Less than 1 ms counts as 1 ms.
    ///   - replyTimeout: The time one ping waits for a byte from the peer; 8 s by default, as Tencent Mars waits for
    ///     its no-op.
    ///   - misses: The number of pings that may stay unanswered; 1 by default.
    ///   - payload: The payload of our pings, empty by default. It must be empty in formats that allow none.
    ///   - mode: The side that pings; ``Mode/ping`` by default. A client behaves as with ``Mode/expectPings`` in a
    ///     format in which only servers ping.
    public init(
        interval: Duration = .seconds(60),
        replyTimeout: Duration = .seconds(8),
        misses: Int = 1,
        payload: ByteBuffer = ByteBuffer(),
        mode: Mode = .ping
    ) {
        self.init(
            strategy: .fixed(interval),
            replyTimeout: replyTimeout,
            misses: misses,
            payload: payload,
            mode: mode
        )
    }
}

extension HeartbeatPolicy {
    /// Returns the payload of the next ping.
    ///
    /// - Throws: The error of ``makePayload``; ``SocketError`` with the code `frameTooLarge` if its payload is too
    ///   large.
    package func beat(limit maximumPayloadLength: Int) throws -> ByteBuffer {
        guard let makePayload = self.makePayload else { return self.payload }
        let payload = try makePayload()
        guard payload.readableBytes <= maximumPayloadLength else {
            throw SocketError(
                .frameTooLarge,
                message: "a heartbeat of \(payload.readableBytes) bytes is over the limit of \(maximumPayloadLength)"
            )
        }
        return payload
    }
}
