import NIOCore

/// How a link behaves, whatever is spoken on it.
package struct LinkSettings<Unit>: Sendable {
    /// The most bytes that may wait for the peer to read; into an empty queue a unit of any size goes.
    package var maximumQueuedBytes: Int
    /// The link is lost when bytes wait and too few get anywhere for so long; nil: somebody else sees to that.
    package var writeStallTimeout: TimeAmount?
    /// While the peer does not read what we send, nothing more is read from it.
    package var readsOnlyWhileWritable = false
    /// After so many bytes of output, 128 KiB, what has been made is flushed before more is received: two bodies of 64 KiB share a
    /// system call.
    package var outputLimit = 128 << 10
    /// Whether a large unit leaves at once as far as ``outputLimit`` goes, where nothing waits before it; else piece by piece when the
    /// link is flushed.
    package var gathersPieces = false
    /// After so many bytes the receiver is told that there is room, whether or not it waits for that; never, as a rule.
    package var tellsOfRoomAfter = Int.max
    /// A large unit leaves in pieces of so many bytes, 64 KiB.
    package var pieceLength = Frame.unslicedLength
    /// How long a closing link may take to send what is queued; nil: as long as it takes.
    package var partingTime: TimeAmount? = .seconds(1)
    /// How long the peer may take for its end once ours has left; nil: no longer than ``partingTime``.
    package var lingerTime: TimeAmount?
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
