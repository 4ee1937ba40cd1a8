// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// How a link behaves, whatever is spoken on it.
package struct LinkSettings<Unit>: Sendable {
    /// The most bytes that may wait for the peer to read; into an empty queue a unit of any size goes.
    package var maximumQueuedBytes: Int
    /// The time after which the link is lost while bytes wait and too few reach the peer; nil: not checked here.
    package var writeStallTimeout: TimeAmount?
    /// While the peer does not read what we send, nothing more is read from it.
    package var readsOnlyWhileWritable = false
    /// The size of the output that is flushed before more is received, 128 KiB: two bodies of 64 KiB share a
    /// system call.
    package var outputLimit = 128 << 10
    /// Whether reads bring buffers of ``SocketLoop/receiveBuffers``, which are used again when they are free.
    package var sharesReceiveBuffers = false
    /// Whether a large unit leaves at once as far as ``outputLimit`` goes, where nothing waits before it; else piece by
    /// piece when the link is flushed.
    package var gathersPieces = false
    /// The number of bytes sent after which the receiver is notified of room, whether or not it waits for it; unlimited
    /// by default.
    package var tellsOfRoomAfter = Int.max
    /// The size of the pieces in which a large unit leaves, 64 KiB.
    package var pieceLength = Frame.unslicedLength
    /// The time that a closing link may take to send queued units; nil: no limit.
    package var partingTime: TimeAmount? = .seconds(1)
    /// The time that the peer may take to close after our direction has closed; nil: no longer than ``partingTime``.
    package var lingerTime: TimeAmount?
    /// Whether the first beat is sent as soon as beats begin; else after silence, as the others are.
    package var beatsAtOnce = false
    /// The beats of a ready link, by their interval; nil: none.
    package var beats: @Sendable (_ interval: Duration?, _ now: NIODeadline) -> Beats?
    /// Makes a beat; nil: there is none to send. On the socket's thread: it must not block.
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
