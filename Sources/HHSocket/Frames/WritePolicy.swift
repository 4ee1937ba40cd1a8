// SPDX-License-Identifier: Apache-2.0
/// The amount that may wait to be sent by ``Socket/send(_:priority:)``, and the treatment of a frame that finds no room
/// or no connection.
///
/// Calls of a `SocketClient` are not affected: they wait in the queue within their timeout, and are bounded only by
/// ``SocketConfiguration/maximumQueuedBytes``.
public struct WritePolicy: Hashable, Sendable {
    /// The behaviour of a writer that finds no room.
    public enum Behavior: Hashable, Sendable {
        /// Waits. All waiting frames together hold ``SocketConfiguration/maximumQueuedBytes`` at most; more fail with
        /// ``SocketError/Code/queueFull``.
        case wait
        /// Fails at once.
        case fail
    }

    /// In bytes. The default is enough to keep a fast link busy for the time of a round trip.
    package var highWaterMark: Int
    /// In bytes.
    package var lowWaterMark: Int
    package var whenFull: Behavior
    package var whenNotReady: Behavior

    /// - Parameters:
    ///   - highWaterMark: A frame that would make more bytes than this wait to be sent finds no room; one frame of any
    ///     size finds room where none waits. 1 MiB by default; less than 1 counts as 1.
    ///   - lowWaterMark: The number of unsent bytes at which waiting writers are admitted, `highWaterMark` at most;
    ///     nil, the default, for a quarter of it.
    ///   - whenFull: The treatment of a frame that finds no room: by default its writer waits; else it fails with
    ///     ``SocketError/Code/queueFull``.
    ///   - whenNotReady: The treatment of a frame while the connection is not ready: by default it fails with
    ///     ``SocketError/Code/notConnected``. Where it waits, it is sent once the handshake gate has let it through, in
    ///     the order of priority and then of arrival. After ``Socket/disconnect()`` it fails in any case.
    public init(
        highWaterMark: Int = 1 << 20,
        lowWaterMark: Int? = nil,
        whenFull: Behavior = .wait,
        whenNotReady: Behavior = .fail
    ) {
        self.highWaterMark = max(1, highWaterMark)
        self.lowWaterMark = max(0, min(lowWaterMark ?? self.highWaterMark / 4, self.highWaterMark))
        self.whenFull = whenFull
        self.whenNotReady = whenNotReady
    }
}
