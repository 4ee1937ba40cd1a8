// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The settings of a link, whatever its language.
package struct LinkSettings<Unit>: Sendable {
    /// The largest number of bytes that may wait for the peer to read; an empty queue accepts a unit of any size.
    package var maximumQueuedBytes: Int
    /// The time after which the link is lost while bytes wait and too few reach the peer; nil: not checked here.
    package var writeStallTimeout: TimeAmount?
    /// Whether reading stops while the peer does not read what we send.
    package var readsOnlyWhileWritable = false
    /// The size of the output that is flushed before more is received, 128 KiB: two bodies of 64 KiB share a
    /// system call.
    package var outputLimit = 128 << 10
    /// Whether received units wait for another turn once this one has lasted long enough for the loop's other
    /// connections: where a peer is not trusted to leave them their turns.
    package var sharesTurns = false
    /// Whether reads bring buffers of ``SocketLoop/receiveBuffers``, which are used again when they are free.
    package var sharesReceiveBuffers = false
    /// Whether a large unit is sent at once up to ``outputLimit``, if nothing waits before it; otherwise it is sent
    /// piece by piece when the link is flushed.
    package var gathersPieces = false
    /// The number of bytes sent after which the receiver is notified of room, whether or not it waits for it; unlimited
    /// by default.
    package var reportsRoomAfter = Int.max
    /// The size of the pieces of a large unit, 64 KiB.
    package var pieceLength = Frame.unslicedLength
    /// The time within which a closing link must send queued units; nil for no limit.
    package var partingTime: TimeAmount? = .seconds(1)
    /// The time within which the peer must close after our direction was closed; nil for the rest of ``partingTime``.
    package var lingerTime: TimeAmount?
    /// Whether the first beat is sent as soon as beats begin; else after silence, as the others are.
    package var beatsAtOnce = false
    /// The beats of a ready link, by their interval; nil: none.
    package var beats: @Sendable (_ interval: Duration?, _ now: NIODeadline) -> Beats?
    /// Makes a beat; nil if there is none to send. Called on the socket's thread, which it must not block.
    package var makeBeat: @Sendable () throws -> Unit?

    package init(
        maximumQueuedBytes: Int,
        writeStallTimeout: TimeAmount? = nil,
        beats: @escaping @Sendable (_ interval: Duration?, _ now: NIODeadline) -> Beats? = { _, _ in nil },
        makeBeat: @escaping @Sendable () throws -> Unit? = { nil }
    ) {
        self.maximumQueuedBytes = maximumQueuedBytes
        self.writeStallTimeout = writeStallTimeout
        self.beats = beats
        self.makeBeat = makeBeat
    }
}
