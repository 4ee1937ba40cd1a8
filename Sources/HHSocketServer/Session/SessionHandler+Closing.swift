import HHSocket
import NIOCore

/// How a connection ends, and what makes it.
extension SessionHandler {
    /// Why a client is closed that does nothing wrong but is too slow, or too many.
    enum Eviction {
        case watch(SessionWatch.Verdict)
        case memory
        case slowClient
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .inputClosed? = event as? ChannelEvent {
            self.machine.closedInput()
            // Reads of the same turn may still have answers in the buffer.
            if self.phase == .open { self.scheduleFlush() }
        }
        context.fireUserInboundEventTriggered(event)
    }

    // MARK: By choice

    /// Refuses new requests, finishes those in flight, and tells the client, which closes the connection; or closes it, where
    /// the client cannot be told.
    func drain(_ policy: ShutdownPolicy) {
        guard self.phase == .open, !self.machine.isDraining else { return }
        let isTold = self.sendGoAway(policy.notice(share: .random(in: 0...1)))
        self.machine.drain(isToldToClient: isTold)
        if isTold, !self.isReading { self.scheduleFlush() }
        self.publishStatistics()
        self.finishIfDone()
    }

    /// Tells the client to go away, where it can be told, and ends the connection.
    func dismiss(_ notice: GoAwayNotice) {
        guard self.phase == .open, self.context != nil else { return }
        self.stopHandlers()
        self.sendGoAway(notice)
        self.publishStatistics()
        // It need not read it.
        self.scheduleClose(in: Self.protocolErrorTime)
        self.finish()
    }

    /// Whether the client can be told, and was.
    @discardableResult
    private func sendGoAway(_ notice: GoAwayNotice) -> Bool {
        guard self.listener.isStandard || self.agreement != nil else { return false }
        self.machine.statistics.goAwaysSent += 1
        self.send(notice.frame)
        return true
    }

    /// Closes at once.
    func kill() {
        self.context?.close(promise: nil)
    }

    // MARK: For a limit

    /// Called from time to time.
    func look(now: NIODeadline) {
        guard self.phase != .closed, let context = self.context else { return }
        if self.hasReadSinceLook {
            self.hasReadSinceLook = false
            self.watch.received(0, partialBytes: 0, frames: true, now: now)
        }
        self.checkHeldBytes(context)
        guard self.phase != .closed else { return }
        let inChannel = self.channelBytes(context)
        let observation = SessionWatch.Observation(
            partialBytes: self.decoder.bufferedBytes,
            waitingBytes: inChannel,
            bytesTaken: inChannel == 0
                ? 0 : AcknowledgedBytes.count(of: context.channel) ?? self.bytesWritten - inChannel,
            isBusy: self.machine.inFlight > 0,
            isReadingHeld: self.isPaused || self.readIsHeld
        )
        guard let verdict = self.watch.verdict(observation, self.listener.times, now: now) else { return }
        if self.phase == .open {
            self.evict(.watch(verdict))
        } else if verdict == .stalledWriting {
            // The last word is not read.
            self.machine.statistics.writeStalls += 1
            self.publishStatistics()
            self.kill()
        }
    }

    func evict(_ eviction: Eviction) {
        guard self.phase == .open else { return }
        let limits = self.core.limits
        let reason: String
        switch eviction {
        case .watch(.idle):
            reason = "nothing has happened for \(limits.idleTimeout ?? .zero)"
            self.machine.statistics.idleEvictions += 1
        case .watch(.noFirstFrame):
            reason = "no frame came within \(limits.firstFrameTimeout ?? .zero)"
            self.machine.statistics.firstFrameTimeouts += 1
        case .watch(.stalledReading):
            reason = "a frame has not got on for \(limits.readStallTimeout ?? .zero), or too slowly"
            self.machine.statistics.readStalls += 1
        case .watch(.stalledWriting):
            let time = limits.writeStallTimeout ?? .zero
            reason = "less than \(StallWatch.minimumRate) bytes a second were read for \(time)"
            self.machine.statistics.writeStalls += 1
        case .memory:
            reason = "too many bytes are held"
            self.machine.statistics.memoryEvictions += 1
        case .slowClient:
            reason = "pushes are not read"
            self.machine.statistics.slowClientsClosed += 1
        }
        self.log("a client is closed", reason)
        switch eviction {
        case .watch(.idle), .watch(.noFirstFrame), .watch(.stalledReading):
            self.dismiss(GoAwayNotice(reason: reason))
        case .memory where self.isWritable:
            self.dismiss(GoAwayNotice(reason: reason))
        case .watch(.stalledWriting), .slowClient, .memory:
            // What does not read cannot be told.
            self.publishStatistics()
            self.kill()
        }
    }

    func log(_ what: String, _ reason: String) {
        self.core.peerLog.write(
            .info,
            "\(what)",
            [
                "connection": "\(self.serverContext?.session.id ?? 0)", "remote": "\(self.remoteName)",
                "reason": "\(reason)",
            ],
            by: self.core.logger
        )
    }

    // MARK: The last word

    func finishIfDone() {
        guard self.phase == .open, !self.isPaused, self.greeting == nil, self.machine.isFinished else { return }
        self.finish()
    }

    func finishAfterProtocolError() {
        guard self.phase == .open, self.context != nil else { return }
        self.stopHandlers()
        self.publishStatistics()
        self.scheduleClose(in: Self.protocolErrorTime)
        self.finish()
    }

    /// Lets the last answers leave, then closes: our direction first, so that nothing is lost on its way.
    private func finish() {
        guard self.phase == .open, let context = self.context else { return }
        self.phase = .finishing
        let flushed = context.eventLoop.makePromise(of: Void.self)
        let session = NIOLoopBound(self, eventLoop: context.eventLoop)
        if self.machine.inputIsClosed {
            self.writeOutgoing(context, promise: flushed)
            context.flush()
        } else {
            self.flush()
            context.close(mode: .output, promise: flushed)
        }
        flushed.futureResult.whenComplete { _ in session.value.lastWordLeft() }
        self.releaseRead(context)
    }

    private func lastWordLeft() {
        guard self.phase != .closed, let context = self.context else { return }
        if self.machine.inputIsClosed {
            context.close(promise: nil)
        } else {
            self.scheduleClose(in: Self.lingerTime)
        }
    }

    private func scheduleClose(in time: TimeAmount) {
        self.replace(&self.closeTimer, with: self.loop.setTimer(.now() + time) { self.kill() })
    }

    // MARK: Heartbeat

    func noteBytesReceived() {
        let awaitedReply = self.heartbeat?.awaitsReply == true
        self.heartbeat?.bytesReceived(now: .now())
        // The timer waits for the reply's timeout; the next ping may be due before.
        if awaitedReply { self.scheduleHeartbeat() }
    }

    func scheduleHeartbeat() {
        guard let deadline = self.heartbeat?.nextDeadline else { return }
        self.replace(&self.heartbeatTimer, with: self.loop.setTimer(deadline) { self.heartbeatIsDue() })
    }

    private func heartbeatIsDue() {
        guard self.phase == .open, let context = self.context else { return }
        let now = NIODeadline.now()
        if self.isPaused || self.readIsHeld || self.waitingBytes(context) > 0 {
            self.heartbeat?.writeIsBlocked(now: now)
        }
        switch self.heartbeat?.tick(now: now) {
        case .ping?:
            if var ping = self.format.serverPing {
                if let payload = self.core.heartbeat?.payload { ping.payload = payload }
                self.machine.pinged()
                self.send(ping)
            }
            self.publishStatistics()
            self.flush()
        case .peerIsDead?:
            self.machine.statistics.deadPeers += 1
            self.publishStatistics()
            self.kill()
            return
        case nil:
            break
        }
        self.scheduleHeartbeat()
    }
}
