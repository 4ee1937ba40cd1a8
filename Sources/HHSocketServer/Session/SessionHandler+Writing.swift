import HHSocket
import NIOCore

/// What leaves.
extension SessionHandler {
    /// Sends an answer, when it is its turn.
    ///
    /// - Parameter run: The request's number; nil: the frame answers none.
    func answer(_ frame: Frame, _ run: UInt64?) {
        guard let run, self.order != nil else { return self.emit(frame) }
        self.heldPayloadBytes += frame.payload.readableBytes
        self.emit(self.order?.answer(run, frame) ?? [])
        self.checkOrder()
    }

    /// What stands in line takes, in bytes. Places without a payload count too, those of cancelled requests among them, or they
    /// would have no bound.
    var heldAnswerBytes: Int { self.heldPayloadBytes + (self.order?.count ?? 0) * Self.placeCost }

    func checkOrder() {
        if self.heldAnswerBytes > self.core.limits.maximumBufferedBytesPerConnection { self.evict(.memory) }
    }

    func emit(_ held: [Frame]) {
        for frame in held {
            self.heldPayloadBytes -= frame.payload.readableBytes
            self.emit(frame)
        }
    }

    func emit(_ frame: Frame) {
        guard frame.status == .ok || self.canAnswerErrors else {
            // Sent without its status it would pass for success. The client's timeout tells it that something is wrong.
            self.machine.statistics.errorsNotSent += 1
            return
        }
        self.send(frame)
    }

    func send(_ frame: Frame) {
        let length = frame.payload.readableBytes
        self.bytesThisTurn += self.encoder.encodedLength(payloadLength: length)
        if length <= Self.largestCopiedBody {
            self.encoder.encode(frame, into: &self.outgoing)
        } else if let context = self.context {
            self.encoder.encodeHeader(of: frame, into: &self.outgoing)
            self.writeOutgoing(context)
            self.bytesWritten += length
            context.write(self.wrapOutboundOut(frame.payload), promise: nil)
            self.outgoing = context.channel.allocator.buffer(capacity: 256)
            self.encoder.encodeTrailer(of: frame, into: &self.outgoing)
        }
    }

    // MARK: Pushes

    func push(type: UInt32, body: ByteBuffer) -> Bool {
        guard let frame = self.listener.push(type: type, body: body) else { return false }
        return self.push(frame)
    }

    /// Sends a frame that is shared with other connections, or has it wait for a client that is behind.
    ///
    /// - Returns: Whether it was taken.
    func push(_ frame: ByteBuffer) -> Bool {
        guard self.phase == .open, let context = self.context else { return false }
        if self.isWritable, self.pushes.isEmpty {
            self.write(frame, context)
        } else if self.core.load.isFull || !self.pushes.append(frame) {
            self.machine.statistics.pushesDropped += 1
            self.publishStatistics()
            if self.core.limits.slowClients == .disconnect { self.evict(.slowClient) }
            return false
        }
        self.machine.statistics.pushesSent += 1
        self.publishStatistics()
        if !self.isReading { self.scheduleFlush() }
        return true
    }

    private func write(_ frame: ByteBuffer, _ context: ChannelHandlerContext) {
        self.writeOutgoing(context)
        self.bytesWritten += frame.readableBytes
        context.write(self.wrapOutboundOut(frame), promise: nil)
        self.hasUnflushedWrites = true
    }

    /// Gives the channel the pushes that wait, as long as it takes them.
    private func writeWaitingPushes(_ context: ChannelHandlerContext) {
        while self.isWritable, self.phase == .open, let frame = self.pushes.popFirst() {
            self.write(frame, context)
            self.isWritable = context.channel.isWritable
        }
    }

    // MARK: Flushing

    /// What the client has not taken yet, in bytes.
    func waitingBytes(_ context: ChannelHandlerContext) -> Int {
        self.outgoing.readableBytes + self.pushes.bytes + self.heldAnswerBytes + self.channelBytes(context)
    }

    /// Of these, what the channel holds.
    func channelBytes(_ context: ChannelHandlerContext) -> Int {
        (try? context.channel.syncOptions?.getOption(.bufferedWritableBytes)) ?? 0
    }

    /// Tells the server's load what this connection holds.
    ///
    /// - Parameter waiting: What the client has not taken yet, as far as is known.
    func account(waiting: Int) {
        let held = self.decoder.bufferedBytes + self.machine.bodyBytes + waiting
        guard held != self.accountedBytes else { return }
        self.load.held(held - self.accountedBytes)
        self.accountedBytes = held
    }

    func writeOutgoing(_ context: ChannelHandlerContext, promise: EventLoopPromise<Void>? = nil) {
        guard self.outgoing.readableBytes > 0 || promise != nil else { return }
        self.bytesWritten += self.outgoing.readableBytes
        context.write(self.wrapOutboundOut(self.outgoing), promise: promise)
        self.outgoing = ByteBuffer()
        self.hasUnflushedWrites = true
    }

    /// Sends everything there is in one system call.
    func flush() {
        guard self.phase != .closed, let context = self.context else { return }
        let wasLarge = self.bytesThisTurn >= Self.largestPartialWhenFull || !self.isWritable
        self.bytesThisTurn = 0
        guard self.outgoing.readableBytes > 0 || self.hasUnflushedWrites else { return }
        var written = self.outgoing
        self.writeOutgoing(context)
        self.hasUnflushedWrites = false
        self.heartbeat?.bytesSent(now: .now())
        context.flush()
        // Use the memory again, unless it was large for what it held.
        if self.outgoing.capacity == 0, written.capacity <= Self.largestKeptBuffer,
            written.capacity <= 4096 || written.readableBytes >= written.capacity / 8
        {
            written.clear()
            self.outgoing = written
        }
        if wasLarge, self.phase == .open { self.checkHeldBytes(context) }
    }

    /// Finds out what the client has not taken; one that leaves too much is closed.
    func checkHeldBytes(_ context: ChannelHandlerContext) {
        let waiting = self.waitingBytes(context)
        self.account(waiting: waiting)
        if waiting > self.core.limits.maximumBufferedBytesPerConnection { self.evict(.memory) }
    }

    /// Flushes after what else is ready in this turn of the event loop.
    func scheduleFlush() {
        guard !self.flushIsScheduled, let context = self.context else { return }
        self.flushIsScheduled = true
        context.eventLoop.assumeIsolated().execute {
            self.flushIsScheduled = false
            self.publishStatistics()
            self.flush()
            self.finishIfDone()
        }
    }

    // MARK: Backpressure

    func read(context: ChannelHandlerContext) {
        // What is discarded may always be read, or the client's end would never be seen.
        if self.phase != .open || (self.isWritable && !self.isPaused) {
            context.read()
        } else {
            self.readIsHeld = true
        }
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        self.isWritable = context.channel.isWritable
        if self.isWritable {
            if !self.pushes.isEmpty, self.phase == .open {
                self.writeWaitingPushes(context)
                self.scheduleFlush()
            }
            if self.isWritable, self.isPaused, self.phase == .open {
                self.isPaused = false
                self.decodeFrames(context)
                self.scheduleFlush()
            }
            self.releaseRead(context)
        }
        context.fireChannelWritabilityChanged()
    }

    func releaseRead(_ context: ChannelHandlerContext) {
        guard self.readIsHeld, !self.isPaused || self.phase != .open else { return }
        self.readIsHeld = false
        context.read()
    }
}
