// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Received bytes.
extension Link {
    /// The reasons for which nothing is read from the network.
    struct Reading {
        /// Whether the consumer has suspended reading.
        var isSuspended = false
        /// Whether units wait in the language until sent units have been flushed.
        var isPaused = false
        /// Whether units wait in the language for the next turn, because this one has lasted long enough.
        var isYielding = false
        /// Whether the receiver has deferred units, which stay in the language.
        var hasLeft = false
        /// Whether the connection has ended, so that units that the receiver does not take are lost.
        var isLast = false
        /// Whether the channel has requested a read that was not answered.
        var isHeld = false
        var hasReceived = false
        /// Whether bytes were read since ``Link/channelReadComplete(context:)``.
        var isUnfinished = false
        var inputIsClosed = false
        /// Whether the end of the input is reported once the units before it have been taken.
        var endWaits = false
    }

    @_specialize(where Language == FrameLanguage)
    @_specialize(where Language == WebSocketLanguage)
    @_specialize(where Language == LineLanguage)
    package func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let bytes = self.unwrapInboundIn(data)
        self.hot.reading.isUnfinished = true
        guard var turn = self.loop.resume() else { return self.readLater(bytes) }
        self.read(bytes, in: &turn)
        if self.hot.phase == .ended { self.loop.end(turn) } else { self.loop.pause(turn) }
    }

    @_specialize(where Language == FrameLanguage)
    @_specialize(where Language == WebSocketLanguage)
    @_specialize(where Language == LineLanguage)
    package func channelReadComplete(context: ChannelHandlerContext) {
        // If nothing was read, the input may be about to end, and no turn is begun: a write of that turn might find the
        // connection reset and close the channel, whose input NIO then closes (in 2.101.2 an assertion).
        guard self.hot.reading.isUnfinished else { return }
        self.hot.reading.isUnfinished = false
        if var turn = self.loop.resume() {
            self.finishReading(in: &turn)
            self.loop.end(turn)
        } else {
            self.loop.enter { self.finishReading(in: &$0) }
        }
        // Not passed on: this is the last handler.
    }

    /// Not inlined: a closure that might be made would count references to the bytes of each read.
    @inline(never)
    private func readLater(_ bytes: ByteBuffer) {
        self.loop.enter { self.read(bytes, in: &$0) }
    }

    @inline(__always)
    private func read(_ bytes: consuming ByteBuffer, in turn: inout Turn) {
        guard self.hot.phase != .ended else { return }
        if self.hot.beating.beats != nil { self.noteBytesReceived(in: &turn) }
        self.hot.reading.hasReceived = true
        if self.hot.beating.isDoubted {
            self.hot.beating.isDoubted = false
            self.notifyHost(of: .alive, in: &turn)
        }
        self.hot.traffic.bytesReceived += bytes.readableBytes
        guard !self.hot.discards, self.receiver != nil else { return }
        // NIO empties the socket of a peer that has closed, also while nothing is read.
        if self.hot.reading.isHeld, self.hot.charge.account?.keeps(last: bytes.readableBytes) == false {
            return self.discardIncoming(in: &turn)
        }
        if bytes.capacity >= ReceiveBuffers.smallSize, self.settings.sharesReceiveBuffers {
            self.loop.receiveBuffers.put(bytes)
        }
        self.hot.language.append(bytes)
        if !self.hot.reading.isPaused { self.deliver(in: &turn) }
    }

    /// Lets the receiver pull the received units, and flushes in between if that produces much output. If a receiver is
    /// replaced, its successor gets the rest.
    @_specialize(where Language == FrameLanguage)
    @_specialize(where Language == WebSocketLanguage)
    @_specialize(where Language == LineLanguage)
    private func deliver(in turn: inout Turn) {
        while !self.hot.reading.isYielding, let receiver = self.receiver {
            if self.hot.mustFlush {
                self.flush(in: &turn)
                if self.hot.phase == .ended { return }
                if self.settings.readsOnlyWhileWritable, !self.hot.isWritable {
                    self.hot.reading.isPaused = true
                    return
                }
            }
            let receiverCount = self.hot.receiverCount
            var batch = Batch(self)
            do throws(LinkError) {
                try receiver.received(&batch, in: &turn)
            } catch {
                self.hot.traffic.framesReceived += batch.count
                return self.end(.protocolViolation(error), in: &turn)
            }
            self.hot.traffic.framesReceived += batch.count
            if self.hot.phase == .ended || self.hot.discards { return }
            if batch.isUsedUp, self.continueReading(in: &turn) { continue }
            // Deferred units are offered again once the receiver's output has been flushed.
            if self.hot.receiverCount == receiverCount, !self.hot.mustFlush || self.hot.isFlushing { return }
        }
    }

    @inline(__always)
    private func finishReading(in turn: inout Turn) {
        guard self.hot.phase != .ended else { return }
        if self.hot.reportsReads || self.hot.hasUnfinished { self.receiver?.finishedReading(in: &turn) }
        if self.hot.language.unfinishedBytes >= LinkChannel.longUnitBytes { self.readSlowly(in: &turn) }
        // The memory is charged once everything possible has been sent.
        self.touch(in: &turn)
    }

    // MARK: Yielding

    /// Ends the receiver's part of this turn: received units, and more bytes, wait for another turn, so that the loop
    /// serves its other connections in between. Has no effect if the connection has ended.
    ///
    /// - Returns: False if there is no later turn: units that are deferred now are lost.
    @discardableResult
    package func yield(in turn: inout Turn) -> Bool {
        guard self.beginYielding() else { return self.hot.reading.isYielding }
        self.yieldTimer = self.loop.afterOtherChannels(in: &turn) { self.resumeAfterYielding(in: &$0) }
        return true
    }

    /// Leaves the remaining units for another turn if this one has lasted long enough for the loop's other connections.
    /// Call it after a number of units, since it reads the clock.
    package func endTurnInTime(_ turn: inout Turn) {
        if self.settings.sharesTurns, self.loop.turnIsOver(turn) { self.yieldOrDiscard(in: &turn) }
    }

    /// Leaves the remaining units for another turn; if there is none because the connection was lost, discards them
    /// after some time: the peer gets no answers, and may have sent megabytes.
    private func yieldOrDiscard(in turn: inout Turn) {
        guard !self.yield(in: &turn), self.loop.age(of: turn) >= LinkChannel.lastUnitsTime else { return }
        self.discardIncoming(in: &turn)
    }

    /// Runs the handlers of a batch that is used up, which belong to its duration, and leaves the rest for another turn
    /// if they have taken long enough.
    ///
    /// - Returns: Whether there may be more units.
    private func continueReading(in turn: inout Turn) -> Bool {
        guard !self.hot.reading.hasLeft else { return false }
        // Within a flush they run when it is over.
        if !self.hot.isFlushing, self.loop.runHandlersBetweenUnits(in: &turn) {
            self.endTurnInTime(&turn)
        } else {
            self.yieldOrDiscard(in: &turn)
        }
        return self.hot.phase != .ended && !self.hot.discards
    }

    /// Yields unless the connection ends, and there is no later turn.
    ///
    /// - Returns: Whether there is one.
    package func deferWork(in turn: inout Turn) -> Bool { self.mayDeferUnits && self.yield(in: &turn) }

    /// Reads nothing from the network while memory is short, but once after ``LinkChannel/pausesInLongUnits`` pauses.
    private func readSlowly(after pauses: Int = 0, in turn: inout Turn) {
        self.settle()  // The account decides by what it knows, and the turn's end is too late.
        guard self.phase == .open, !self.hasDeferredUnits, pauses < LinkChannel.pausesInLongUnits,
            let time = self.hot.charge.account?.pauseInLongUnits, pauses > 0 || self.beginYielding()
        else { return pauses > 0 ? self.resumeAfterYielding(in: &turn) : () }
        self.yieldTimer = self.loop.pause(for: time) { self.readSlowly(after: pauses + 1, in: &$0) }
    }

    private func beginYielding() -> Bool {
        guard !self.hot.reading.isYielding, !self.hot.reading.isLast else { return false }
        self.setYielding(true)
        return true
    }

    func setYielding(_ isYielding: Bool) {
        guard isYielding != self.hot.reading.isYielding else { return }
        self.hot.reading.isYielding = isYielding
        self.loop.linkYields(isYielding)
    }

    private func resumeAfterYielding(in turn: inout Turn) {
        guard self.hot.reading.isYielding else { return }
        self.setYielding(false)
        guard self.hot.phase != .ended else { return }
        self.offerWhatIsHere(in: &turn)
        self.releaseRead()
        if self.hot.reading.endWaits { self.reportInputClosed(in: &turn) }
    }

    /// Reports that the peer has closed its direction, after everything that it has sent. A server takes that in
    /// several turns, as before, since the peer may still read.
    func reportInputClosed(in turn: inout Turn) {
        self.hot.reading.endWaits = self.settings.sharesTurns && self.hot.reading.isYielding
        guard !self.hot.reading.endWaits else { return }
        self.takeLastUnits(in: &turn)
        self.notifyHost(of: .inputClosed, in: &turn)
        if self.hot.phase == .closing { self.touch(in: &turn) }
    }

    /// The number of received bytes of the incomplete unit, including the bytes that the language holds while it is
    /// paused.
    package var unfinishedBytes: Int { self.hot.language.unfinishedBytes }

    /// Whether received units wait until sent units have been flushed.
    package var isPaused: Bool {
        @_specialize(where Language == FrameLanguage)
        @_specialize(where Language == WebSocketLanguage)
        @_specialize(where Language == LineLanguage)
        get { self.hot.reading.isPaused || self.hot.reading.isYielding }
    }

    /// Whether nothing is read from the network for now.
    package var isReadingHeld: Bool { self.hot.reading.isHeld || self.isPaused }

    /// Discards received bytes from now on, and in this turn those that are here.
    package func discardIncoming(in turn: inout Turn) {
        self.hot.discards = true
        // The receiver may have examined a unit that it has yet to take.
        turn.after { _ in
            self.hot.language.dropInput()
            self.settle()
        }
        self.hot.reading.isPaused = false
        self.setYielding(false)
        self.releaseRead()
    }

    // MARK: Left units

    /// Whether the receiver may defer units: the connection exists, and continues.
    package var mayDeferUnits: Bool {
        self.hot.phase == .open && !self.hot.reading.inputIsClosed && !self.hot.reading.isLast
    }

    /// Whether the receiver has deferred units.
    package var hasDeferredUnits: Bool { self.hot.reading.hasLeft }

    /// Defers units, which stay in the language, since a few compressed bytes may expand to many. Until the receiver
    /// takes them, by ``takeDeferredUnits(in:)``, nothing more is read.
    package func deferUnits() {
        guard !self.hot.reading.hasLeft else { return }
        self.hot.reading.hasLeft = true
        self.setAutoRead(false)
    }

    /// Offers the receiver the units that it has deferred.
    package func takeDeferredUnits(in turn: inout Turn) {
        guard self.hot.reading.hasLeft, self.hot.phase != .ended else { return }
        self.hot.reading.hasLeft = false
        self.offerWhatIsHere(in: &turn)
        guard !self.hot.reading.hasLeft, self.hot.phase != .ended else { return }
        if !self.hot.reading.isSuspended || self.hot.phase == .closing { self.setAutoRead(true) }
    }

    /// Offers the receiver units that the language has found in earlier bytes.
    func offerWhatIsHere(in turn: inout Turn) {
        guard !self.hot.reading.isPaused, !self.hot.discards, self.receiver != nil else { return }
        self.deliver(in: &turn)
        self.finishReading(in: &turn)
    }

    /// Offers the receiver the units that it has deferred, for the last time.
    func takeLastUnits(in turn: inout Turn) {
        guard self.hot.reading.hasLeft || self.hot.reading.isYielding else { return }
        self.hot.reading.isLast = true
        self.resumeAfterYielding(in: &turn)
        self.takeDeferredUnits(in: &turn)
    }

    // MARK: Holding

    package func setReading(isSuspended: Bool, in turn: inout Turn) {
        guard self.hot.phase == .open, isSuspended != self.hot.reading.isSuspended else { return }
        self.hot.reading.isSuspended = isSuspended
        let action = self.hot.beating.beats?.setReading(isSuspended: isSuspended, now: turn.now)
        self.setAutoRead(!isSuspended && !self.hot.reading.hasLeft)
        if self.perform(action, in: &turn) { self.armTimer(in: &turn) }
    }

    /// Switches automatic reads. Switching them off cancels a requested read, which ``read(context:)`` cannot do;
    /// switching them on begins to read, in another turn of the loop.
    func setAutoRead(_ isOn: Bool) {
        // Fails only where the channel is closed already.
        _ = self.context?.channel.setOption(.autoRead, value: isOn)
    }

    @inline(__always)
    private var mayRead: Bool {
        guard !self.hot.discards else { return true }
        guard !self.hot.reading.isYielding else { return false }
        guard self.hot.phase == .open else { return true }
        return !self.settings.readsOnlyWhileWritable || (self.hot.isWritable && !self.hot.reading.isPaused)
    }

    @_specialize(where Language == FrameLanguage)
    @_specialize(where Language == WebSocketLanguage)
    @_specialize(where Language == LineLanguage)
    package func read(context: ChannelHandlerContext) {
        if self.mayRead { context.read() } else { self.hot.reading.isHeld = true }
    }

    func releaseRead() {
        guard self.hot.reading.isHeld, self.mayRead, let context = self.context else { return }
        self.hot.reading.isHeld = false
        context.read()
    }

    /// Continues with bytes that were received before, since output has been sent.
    func resumeReading(in turn: inout Turn) {
        if self.hot.reading.isPaused, self.hot.isWritable, self.hot.phase != .ended {
            self.hot.reading.isPaused = false
            self.deliver(in: &turn)
            self.finishReading(in: &turn)
        }
        self.releaseRead()
    }
}
