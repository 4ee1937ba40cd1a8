// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// The end of a connection, and its causes.
extension ServerConnection {
    /// The reason for closing a client that breaks no rule but is too slow, or one too many.
    enum Eviction {
        case watch(SessionWatch.Verdict)
        case memory
        case slowClient
        /// Connections run short, and it has been silent longest.
        case silence
        case frameFlood
        /// It has cancelled too many requests.
        case cancels
        /// Its identity has too many connections.
        case tooManySessions

        var closeReason: ServerCloseReason {
            switch self {
            case .watch(.idle), .watch(.noFirstFrame), .watch(.unknown), .silence: .timedOut
            case .watch(.stalledReading), .watch(.stalledWriting), .slowClient: .tooSlow
            case .memory, .cancels, .tooManySessions, .frameFlood: .limit
            }
        }
    }

    // MARK: By choice

    /// Refuses new requests, finishes those in flight, and notifies the client, which closes the connection; closes it
    /// itself if the client cannot be notified.
    func drain(_ policy: ShutdownPolicy, in turn: inout Turn) {
        guard self.hot.phase == .open, !self.hot.machine.isDraining else { return }
        self.ends(.shutdown)
        let isTold = self.sendGoAway(policy.notice(share: .random(in: 0...1)), in: &turn)
        self.hot.machine.drain(isToldToClient: isTold)
        self.streams?.machine.drain()
        self.takeStatistics()
        self.finishIfDone(in: &turn)
    }

    /// Sends the client a go-away, where the format has one, and ends the connection.
    func dismiss(_ notice: GoAway, in turn: inout Turn) {
        guard self.hot.phase == .open, self.link.context != nil else { return }
        self.ends(.closedByServer)
        self.stopHandlers()
        self.sendGoAway(notice, in: &turn)
        self.takeStatistics()
        // It need not read it.
        self.finish(within: Self.protocolErrorTime, in: &turn)
    }

    /// Whether the client was sent a go-away.
    @discardableResult
    private func sendGoAway(_ notice: GoAway, in turn: inout Turn) -> Bool {
        guard self.listener.isStandard || self.greeting.agreement != nil else { return false }
        self.hot.machine.statistics.goAwaysSent += 1
        self.link.send(notice.frame, in: &turn)
        return true
    }

    // MARK: For a limit

    /// Called from time to time.
    func checkTimeouts(in turn: inout Turn) {
        guard self.hot.phase != .closed, self.link.context != nil else { return }
        let now = turn.now
        if self.hot.watching.hasReadSinceLook {
            self.hot.watching.hasReadSinceLook = false
            self.hot.watching.watch.received(0, partialBytes: 0, frames: true, now: now)
        }
        self.loop.silence.look(at: self, now: now)
        self.checkHeldBytes(in: &turn)
        self.chargeControlFrames(in: &turn)
        guard self.hot.phase != .closed else { return }
        self.load.settle()
        self.noteProgress(now: now)
        let observation = SessionWatch.Observation(
            self.link,
            isBusy: self.hot.machine.inFlight > 0 || !(self.streams?.isIdle ?? true),
            isReadingSuspended: self.streams?.isReadingSuspended ?? false
        )
        if let streams = self.streams, self.hot.phase == .open, !observation.isReadingHeld,
            streams.isStalled(self.listener.times, now: now)
        {
            return self.evict(.watch(.stalledReading), in: &turn)
        }
        guard let verdict = self.hot.watching.watch.verdict(observation, self.listener.times, now: now) else { return }
        if verdict == .stalledReading, self.listener.format.resynchronises, self.hot.phase == .open {
            // The length of the frame may be wrong: then it would withhold data forever.
            self.hot.watching.watch.frameWasGivenUp()
            guard !self.link.giveUp(in: &turn, where: { _ in true }) else { return }
        }
        if self.hot.phase == .open {
            self.evict(.watch(verdict), in: &turn)
        } else if verdict == .stalledWriting {
            // The last word is not read.
            self.hot.machine.statistics.writeStalls += 1
            self.kill()
        }
    }

    /// Records in the ledger whether bytes have been received or sent since the last check, and frees memory that is
    /// kept for a client with almost no traffic.
    private func noteProgress(now: NIODeadline) {
        let traffic = self.link.traffic
        let taken = traffic.bytesSent - self.link.knownChannelBytes
        let finding = self.hot.accounting.rest.look(bytes: traffic.bytesReceived + taken)
        if finding.hasProgressed { self.load.progressed(at: now) }
        if finding.rests { self.rest() }
    }

    private func rest() {
        self.core.ledger.freed(self.link.releaseRest())
        self.hot.machine.releaseRest()
        if self.deadlines.isEmpty { self.deadlines = [:] }
    }

    func evict(_ eviction: Eviction, in turn: inout Turn) {
        guard self.hot.phase == .open else { return }
        let limits = self.core.limits
        let reason: String
        switch eviction {
        case .watch(.idle):
            reason = "nothing has happened for \(limits.idleTimeout ?? .zero)"
            self.hot.machine.statistics.idleEvictions += 1
        case .watch(.noFirstFrame):
            reason = "no frame came within \(limits.firstFrameTimeout ?? .zero)"
            self.hot.machine.statistics.firstFrameTimeouts += 1
        case .watch(.unknown):
            reason = "it has not identified itself within \(limits.strangers.timeToBecomeKnown ?? .zero)"
            self.hot.machine.statistics.strangerTimeouts += 1
        case .watch(.stalledReading):
            reason = "a frame has not got on for \(limits.readStallTimeout ?? .zero), or too slowly"
            self.hot.machine.statistics.readStalls += 1
        case .watch(.stalledWriting):
            let time = limits.writeStallTimeout ?? .zero
            reason = "less than \(StallWatch.minimumRate) bytes a second were read for \(time)"
            self.hot.machine.statistics.writeStalls += 1
        case .memory:
            reason = "too many bytes are held"
            self.hot.machine.statistics.memoryEvictions += 1
        case .slowClient:
            reason = "pushes are not read"
            self.hot.machine.statistics.slowClientsClosed += 1
        case .silence:
            reason = "connections are scarce, and this one has been silent longest"
            self.hot.machine.statistics.silentEvictions += 1
        case .frameFlood:
            reason = "too many of its frames are unproductive"
            self.hot.machine.statistics.frameFloods += 1
        case .cancels:
            reason = "too many requests were cancelled"
            self.hot.machine.statistics.cancelFloods += 1
        case .tooManySessions:
            reason = "there are too many connections of this identity"
            self.hot.machine.statistics.sessionsDismissed += 1
        }
        self.ends(eviction.closeReason)
        self.log("a client is closed", reason)
        switch eviction {
        case .tooManySessions:
            // Otherwise it would reconnect immediately and displace the next client.
            let wait = Duration.milliseconds(Int64.random(in: 30_000...60_000))
            self.dismiss(GoAway(reason: reason, retryAfter: wait), in: &turn)
        case .watch(.idle), .watch(.noFirstFrame), .watch(.stalledReading):
            self.dismiss(GoAway(reason: reason), in: &turn)
        case .watch(.unknown), .frameFlood, .cancels:
            self.dismiss(GoAway(reason: reason, retryAfter: Self.randomAbsence), in: &turn)
        case .silence:
            self.dismiss(GoAway(reason: reason, retryAfter: Self.randomAbsence), in: &turn)
            // The descriptor is needed now, and one that is silent has sent nothing that could reset the connection.
            _ = self.loop.socketLoop.setTimer(turn.now + LoopSilence.lastWordTime) { _ in self.kill() }
        case .memory where self.link.isWritable:
            self.dismiss(GoAway(reason: reason), in: &turn)
        case .watch(.stalledWriting), .slowClient, .memory:
            // A client that does not read cannot be notified.
            self.kill()
        }
    }

    func log(_ what: String, _ reason: String) {
        self.core.peerLog.write(
            .info,
            "\(what)",
            [
                "connection": "\(self.hot.serverContext?.session.id ?? 0)", "remote": "\(self.remoteName)",
                "reason": "\(reason)",
            ],
            by: self.core.logger
        )
    }

    // MARK: The last word

    func finishIfDone(in turn: inout Turn) {
        guard self.hot.phase == .open, self.hot.machine.isFinished, self.greeting.authentication == nil,
            !self.link.isPaused, self.streams?.isIdle ?? true
        else { return }
        self.finish(in: &turn)
    }

    /// Sends the last answers, then closes: first our direction, so that nothing in transit is lost.
    ///
    /// - Parameter time: How long the client may take to read them; nil: as long as ``SessionWatch`` allows.
    func finish(_ reason: CloseReason = .done, within time: TimeAmount? = nil, in turn: inout Turn) {
        guard self.hot.phase == .open else { return }
        self.hot.phase = .finishing
        self.link.discardIncoming(in: &turn)
        self.link.close(reason, within: time, in: &turn)
    }
}

extension ServerConnection: SilentConnection {
    var bytesReceived: Int { self.link.traffic.bytesReceived }

    /// The time after which a request in flight no longer spares a client that has sent nothing meanwhile, such as a
    /// long poll.
    static let longestPoll = TimeAmount.seconds(60)

    /// Whether the server is at work for the client. A stream that waits for its client is none of that: otherwise a
    /// client would spare itself by never giving credit.
    var isBusy: Bool {
        guard self.hot.machine.inFlight > self.streams?.waitingForClient ?? 0 else { return false }
        return self.hot.watching.watch.silence(now: self.core.time.now()) < Self.longestPoll
    }

    func closeForNewcomer(in turn: inout Turn) {
        if self.hot.phase == .open { self.evict(.silence, in: &turn) } else { self.kill() }
    }
}
