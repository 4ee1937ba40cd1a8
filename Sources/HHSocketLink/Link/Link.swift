// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// One established connection, on a client or on a server: bytes to units, units to bytes, beats, and its end. The last
/// handler of its channel's pipeline; lives on the socket's thread, and everything that happens on it happens in a
/// turn.
///
/// `Link+Reading` reads, `Link+Sending` writes, `Link+Beats` has the timers, and `Link+Closing` ends the link.
package final class Link<Language: LinkLanguage>: ChannelDuplexHandler, RemovableChannelHandler {
    package typealias InboundIn = ByteBuffer
    package typealias OutboundIn = ByteBuffer
    package typealias OutboundOut = ByteBuffer

    package enum Phase: Sendable {
        case open
        /// Queued units are sent, and incoming ones still received.
        case closing
        case ended
    }

    /// State that every unit touches.
    struct Hot {
        var language: Language
        var out: SendBuffer<Language>
        var phase = Phase.open
        /// Whether the channel accepts more, according to its last notification.
        var isWritable = true
        /// The number of bytes that were written to the channel since the last flush.
        var unflushedBytes = 0
        /// Whether the turn has recorded that there is something to flush.
        var isTouched = false
        var isFlushing = false
        /// Whether the link flushes when the system has accepted the channel's bytes.
        var awaitsWritten = false
        /// Whether the receiver is notified when everything that could be sent has been flushed.
        var reportsRoom = false
        /// The number of bytes sent by the time the receiver was last notified of room.
        var lastRoom = 0
        /// Whether the receiver is notified at the end of each read.
        var reportsReads = false
        /// Whether received bytes are discarded.
        var discards = false
        var charge = Charge()
        var context: ChannelHandlerContext?
        var host: (any LinkHost)?
        var receiver: (any LinkReceiver<Language>)?
        /// The number of receivers so far.
        var receiverCount = 0
        var reading = Reading()
        var beating = Beating()
        var stall = StallClock()
        /// The traffic since the beginning.
        var traffic = Traffic()
        /// The part of the traffic that has been reported.
        var takenTraffic = Traffic()
        /// The number of units whose first byte was written since the last write to the channel.
        var unitsBegun = 0
        /// See ``LinkSettings/outputLimit``.
        let outputLimit: Int
        /// See ``LinkSettings/readsOnlyWhileWritable``.
        let readsOnlyWhileWritable: Bool

        /// Whether so much was sent that it should be flushed before more is received: bytes that are ready or were
        /// written to the channel, and waiting units. Units that wait for the peer to read count only if the receiver
        /// waits for that.
        ///
        /// It has no side effects, like the properties below, and is `mutating` so that none of this is copied for
        /// reading.
        @inline(__always)
        var mustFlush: Bool {
            mutating get {
                if self.unflushedBytes + self.out.bytes.count >= self.outputLimit { return true }
                guard !self.out.isEmpty, self.isWritable || self.readsOnlyWhileWritable else { return false }
                return self.out.waitingBytes >= self.outputLimit
            }
        }

        /// Whether more may be received now.
        @inline(__always)
        var continues: Bool {
            mutating get { self.phase != .ended && !self.mustFlush && !self.discards && !self.reading.isYielding }
        }

        /// Whether there is an incomplete unit.
        var hasUnfinished: Bool { mutating get { self.language.unfinishedBytes > 0 } }

        /// Whether nothing waits.
        var isEmpty: Bool { mutating get { self.out.isEmpty } }

        /// The number of bytes that are ready to be written.
        @inline(__always)
        var readyBytes: Int { mutating get { self.out.bytes.count } }

        /// Whether ready bytes should be written before the turn ends.
        @inline(__always)
        var mustWrite: Bool {
            mutating get {
                self.out.bytes.hasBodies || self.unflushedBytes + self.out.bytes.count >= self.outputLimit
            }
        }

        /// The number of bytes that are ready to be written or wait.
        var unwrittenBytes: Int { mutating get { self.out.waitingBytes + self.out.bytes.count } }

        /// Whether a unit that is sent now is flushed with this turn.
        @inline(__always)
        var canSend: Bool { mutating get { self.isWritable && self.phase == .open && self.out.isEmpty } }

        mutating func append(_ unit: consuming Language.Unit, _ priority: FramePriority) -> SendBuffer<Language>.Taken {
            self.out.append(unit, priority, isOpen: self.isWritable, in: &self.language)
        }

        mutating func pull(limit: Int) -> SendBuffer<Language>.Pulled { self.out.pull(&self.language, limit: limit) }

        mutating func begin(_ unit: consuming Language.Unit, _ priority: FramePriority) {
            self.out.begin(unit, priority, in: &self.language)
        }

        /// Detaches the unit that is being sent piece by piece, which waits for the peer.
        mutating func detachCurrent() { self.out.detachCurrent() }

        mutating func close(_ reason: CloseReason) -> Closing { self.language.close(reason, into: &self.out.bytes) }
    }

    package let id: ConnectionID
    package let loop: SocketLoop
    let settings: LinkSettings<Language.Unit>
    // Unchecked: a call accesses it about ten times on each side, only on the link's thread, and every access ends
    // before other code is called.
    #if !DEBUG && !CHECKED_EXCLUSIVITY
    @exclusivity(unchecked)
    #endif
    var hot: Hot
    var parting = Parting()
    var timer: SocketLoop.TimerID?
    /// Ends the current yielding.
    var yieldTimer: SocketLoop.TimerID?
    // Not in `hot`: instants of the standard library have a size that is known only at run time, which would then apply
    // to the whole structure.
    let sleep = SleepMeter()

    package init(
        id: ConnectionID,
        loop: SocketLoop,
        language: Language,
        settings: LinkSettings<Language.Unit>,
        host: (any LinkHost)? = nil
    ) {
        self.id = id
        self.loop = loop
        self.settings = settings
        self.hot = Hot(
            language: language,
            out: SendBuffer(maximumBytes: settings.maximumQueuedBytes),
            outputLimit: settings.outputLimit,
            readsOnlyWhileWritable: settings.readsOnlyWhileWritable
        )
        self.hot.host = host
    }

    package var phase: Phase { self.hot.phase }

    /// The host, which is notified of the link's state until its channel is closed.
    package var host: (any LinkHost)? {
        get { self.hot.host }
        set { self.hot.host = newValue }
    }

    /// The receiver of what arrives; nil: it is discarded.
    package var receiver: (any LinkReceiver<Language>)? {
        get { self.hot.receiver }
        set {
            self.hot.receiver = newValue
            self.hot.receiverCount += 1
        }
    }

    /// The traffic of the link so far.
    package var traffic: Traffic {
        @_specialize(where Language == FrameLanguage)
        @_specialize(where Language == WebSocketLanguage)
        @_specialize(where Language == LineLanguage)
        get { self.hot.traffic }
    }

    package func takeTraffic() -> Traffic {
        let traffic = self.hot.traffic.since(self.hot.takenTraffic)
        self.hot.takenTraffic = self.hot.traffic
        return traffic
    }

    /// Whether ``LinkReceiver/hasRoom(in:)`` is called after each flush, and not only if the peer does not read or as
    /// often as ``LinkSettings/reportsRoomAfter`` determines; false at first.
    package var reportsRoom: Bool {
        get { self.hot.reportsRoom }
        set { self.hot.reportsRoom = newValue }
    }

    /// Whether ``LinkReceiver/finishedReading(in:)`` is called after each read, and not only if a unit is incomplete;
    /// false at first.
    package var reportsReads: Bool {
        get { self.hot.reportsReads }
        set { self.hot.reportsReads = newValue }
    }

    /// The channel's context, until it is closed.
    package var context: ChannelHandlerContext? { self.hot.context }

    package func handlerAdded(context: ChannelHandlerContext) {
        self.hot.context = context
    }

    package func channelActive(context: ChannelHandlerContext) {
        self.loop.enter { self.notifyHost(of: .active, in: &$0) }
        context.fireChannelActive()
    }

    package func handlerRemoved(context: ChannelHandlerContext) {
        self.hot.context = nil
        self.parting.promise?.succeed()
        // The link's end may wait for this turn, and is reported first.
        self.loop.enter { turn in
            self.hot.phase = .ended
            self.removeTimers()
            self.setYielding(false)
            for case let timer? in [self.parting.timer, self.yieldTimer] { self.loop.removeTimer(timer) }
            self.endCharge()
            self.receiver = nil
            self.hot.host.take()?.linkChanged(.gone, self.id, in: &turn)
        }
    }

    func notifyHost(of change: LinkChange, in turn: inout Turn) {
        self.host?.linkChanged(change, self.id, in: &turn)
    }
}

extension Link: DrivenLink {}
