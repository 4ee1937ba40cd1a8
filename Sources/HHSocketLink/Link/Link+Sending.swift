// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Sent units.
extension Link: TurnLink {
    /// Sends a unit with this turn's flush, or queues it while the peer does not read.
    @_specialize(where Language == FrameLanguage)
    @_specialize(where Language == WebSocketLanguage)
    @_specialize(where Language == LineLanguage)
    @discardableResult
    package func send(
        _ unit: consuming Language.Unit,
        _ priority: FramePriority = .default,
        in turn: inout Turn
    ) -> SendBuffer<Language>.Taken {
        guard self.hot.phase == .open, self.context != nil else { return .refused }
        let taken = self.hot.append(unit, priority)
        switch taken {
        case .sent:
            if self.settings.gathersPieces { self.gatherPieces(in: &turn) }
            self.unitWasTaken(in: &turn)
        case .queued: self.touch(in: &turn)
        case .refused: break
        }
        return taken
    }

    /// Sends encoded bytes with this turn's flush. If ``canSend`` is false they overtake waiting units, at a boundary:
    /// the caller must check that.
    @_specialize(where Language == FrameLanguage)
    @_specialize(where Language == WebSocketLanguage)
    @_specialize(where Language == LineLanguage)
    package func send(encoded bytes: ByteBuffer, in turn: inout Turn) {
        self.hot.out.bytes.append(bytes)
        self.unitWasTaken(in: &turn)
    }

    /// Whether a unit that is sent now is flushed with this turn.
    package var canSend: Bool {
        @_specialize(where Language == FrameLanguage)
        @_specialize(where Language == WebSocketLanguage)
        @_specialize(where Language == LineLanguage)
        get { self.hot.canSend && self.context != nil }
    }

    /// Whether the channel accepts more, according to its last notification.
    package var isWritable: Bool { self.hot.isWritable }

    /// Records that the sending of a unit has begun.
    @inline(__always)
    func unitWasTaken(in turn: inout Turn) {
        self.hot.unitsBegun += 1
        self.touch(in: &turn)
        if self.hot.mustWrite { self.writeReady(in: &turn) }
    }

    private func gatherPieces(in turn: inout Turn) {
        while !self.hot.isEmpty, self.hot.readyBytes < self.hot.outputLimit,
            case .piece(let outgoing) = self.hot.pull(limit: self.settings.pieceLength)
        {
            self.receiver?.unitProgressed(outgoing, in: &turn)
        }
    }

    /// Schedules a flush of the link at the end of the turn.
    @inline(__always)
    func touch(in turn: inout Turn) {
        guard !self.hot.isTouched else { return }
        self.hot.isTouched = true
        turn.flushes(self)
    }

    /// Writes large bodies to the channel, and gathered small units once there are many. The units after a large body
    /// are written together with those before the next one.
    private func writeReady(in turn: inout Turn) {
        guard let context = self.context else { return }
        self.writeBodies(context)
        if self.hot.unflushedBytes + self.hot.readyBytes >= self.hot.outputLimit {
            self.write(context)
            turn.wantsFlush()
        }
    }

    /// Hands all sent bytes to the kernel, as far as the peer's window allows.
    @_specialize(where Language == FrameLanguage)
    @_specialize(where Language == WebSocketLanguage)
    @_specialize(where Language == LineLanguage)
    package func flush(in turn: inout Turn) {
        self.hot.isTouched = false
        // Writing and flushing change the channel's writability, which leads back here.
        guard let context = self.context, self.hot.phase != .ended, !self.hot.isFlushing else { return }
        self.hot.isFlushing = true
        repeat {
            self.drain(context, in: &turn)
        } while self.hot.phase == .open && self.mustReportRoom && self.receiver?.hasRoom(in: &turn) ?? false
        self.hot.isFlushing = false
        if self.hot.charge.isOn { self.settleAfterFlush() }
        self.noteBlocked(context, in: &turn)
        guard self.hot.phase == .closing else { return }
        if self.hot.reportsRoom { self.receiver?.hasLeft(in: &turn) }
        self.closeOutputIfDone(context, in: &turn)
    }

    private var mustReportRoom: Bool {
        let sent = self.hot.traffic.bytesSent
        guard
            self.hot.reportsRoom || !self.hot.isWritable || sent - self.hot.lastRoom >= self.settings.reportsRoomAfter
        else { return false }
        self.hot.lastRoom = sent
        return true
    }

    // Not inlined into the generic version of ``flush(in:)``, which would look up types before it calls the specialised
    // one.
    @_specialize(where Language == FrameLanguage)
    @_specialize(where Language == WebSocketLanguage)
    @_specialize(where Language == LineLanguage)
    func drain(_ context: ChannelHandlerContext, in turn: inout Turn) {
        repeat {
            if self.hot.isWritable, !self.hot.out.isEmpty { self.pump(context, in: &turn) }
            self.write(context)
            guard self.hot.unflushedBytes > 0 else { return }
            self.hot.unflushedBytes = 0
            self.hot.beating.beats?.bytesSent(now: turn.now)
            context.flush()
            self.hot.out.bytes.recycle()
        } while self.hot.isWritable && !self.hot.out.isEmpty && self.hot.phase != .ended
    }

    /// Moves waiting units into the channel while it accepts more.
    private func pump(_ context: ChannelHandlerContext, in turn: inout Turn) {
        while self.hot.isWritable, !self.hot.out.isEmpty {
            switch self.hot.pull(limit: self.settings.pieceLength) {
            case .nothing:
                return
            case .unit(let unit, let priority):
                guard self.receiver?.unitWillBeSent(unit, in: &turn) ?? true else { continue }
                self.hot.begin(unit, priority)
                self.hot.unitsBegun += 1
                if self.hot.out.bytes.count >= self.settings.pieceLength { self.write(context) }
            case .piece(let outgoing):
                self.write(context)
                self.receiver?.unitProgressed(outgoing, in: &turn)
            }
        }
    }

    /// Gives the channel all that is ready.
    private func write(_ context: ChannelHandlerContext) {
        self.writeBodies(context)
        if let gathered = self.hot.out.bytes.takeGathered() { self.write(gathered, context) }
    }

    /// Writes the large bodies that are ready to the channel, with the units before them.
    @inline(__always)
    private func writeBodies(_ context: ChannelHandlerContext) {
        self.hot.traffic.framesSent += self.hot.unitsBegun
        self.hot.unitsBegun = 0
        // Writing may lead back here, to ``channelWritabilityChanged(context:)``.
        while let bytes = self.hot.out.bytes.popFirst() {
            self.write(self.hot.bodyForChannel(bytes), context)
        }
    }

    @inline(__always)
    private func write(_ bytes: consuming ByteBuffer, _ context: ChannelHandlerContext) {
        self.hot.traffic.bytesSent += bytes.readableBytes
        self.hot.unflushedBytes += bytes.readableBytes
        context.write(self.wrapOutboundOut(bytes), promise: nil)
    }

    package func channelWritabilityChanged(context: ChannelHandlerContext) {
        self.hot.isWritable = context.channel.isWritable
        // A flush in progress continues by itself.
        if self.hot.isWritable, !self.hot.isFlushing { self.loop.enter { self.becameWritable(in: &$0) } }
        context.fireChannelWritabilityChanged()
    }

    private func becameWritable(in turn: inout Turn) {
        guard self.hot.isWritable else { return }
        self.hot.stall.stop()
        self.flush(in: &turn)
        self.resumeReading(in: &turn)
    }

    /// Causes ``LinkReceiver/hasRoom(in:)`` to be called once the system has accepted the channel's bytes, although the
    /// channel accepts more before that.
    package func flushOnceWritten() {
        guard !self.hot.awaitsWritten, let context = self.context else { return }
        self.hot.awaitsWritten = true
        let promise = context.eventLoop.makePromise(of: Void.self)
        promise.futureResult.assumeIsolated().whenComplete { _ in
            self.hot.awaitsWritten = false
            guard self.context != nil, self.hot.phase != .ended else { return }
            self.loop.enter { self.flush(in: &$0) }
        }
        context.writeAndFlush(self.wrapOutboundOut(ByteBuffer()), promise: promise)
    }

    // MARK: What waits

    /// The number of bytes that wait for the channel to accept them, without the channel's own buffer.
    package var waitingBytes: Int { self.hot.out.waitingBytes }

    /// The number of bytes that were written to the channel and that the kernel has not accepted.
    package var channelBytes: Int { (try? self.context?.channel.syncOptions?.getOption(.bufferedWritableBytes)) ?? 0 }

    /// The number of bytes that are ready to be written or wait, without the channel's own buffer.
    package var unwrittenBytes: Int {
        @_specialize(where Language == FrameLanguage)
        @_specialize(where Language == WebSocketLanguage)
        @_specialize(where Language == LineLanguage)
        get { self.hot.unwrittenBytes }
    }

    package var queuedBytes: Int {
        guard self.context != nil, !self.hot.isWritable || self.waitingBytes > 0 else { return 0 }
        return self.unwrittenBytes + self.channelBytes
    }
}
