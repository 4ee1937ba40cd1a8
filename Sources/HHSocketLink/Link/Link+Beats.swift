// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Timers: beats, and bytes that make no progress.
extension Link {
    struct Beating {
        var beats: Beats?
        /// Whether a probe was sent and no byte has arrived since.
        var isDoubted = false
    }

    /// Tracks whether the channel accepts no more bytes, and whether its bytes reach the peer.
    struct StallClock {
        var isBlocked = false
        var watch = StallWatch()

        mutating func stop() {
            self.isBlocked = false
            self.watch.stop()
        }
    }

    package func startBeats(interval: Duration?, in turn: inout Turn) {
        self.hot.beating.beats = self.settings.beats(interval, turn.now)
        if self.settings.beatsAtOnce {
            guard self.perform(self.hot.beating.beats?.first(now: turn.now), in: &turn) else { return }
        }
        self.armTimer(in: &turn)
    }

    package func changeBeats(_ change: BeatsChange, in turn: inout Turn) {
        guard self.hot.beating.beats != nil else { return }
        self.hot.beating.beats?.change(change, now: turn.now)
        self.armTimer(in: &turn)
    }

    package func probe(isUrgent: Bool, in turn: inout Turn) {
        guard self.hot.phase == .open else { return }
        self.hot.beating.isDoubted = true
        guard self.perform(self.hot.beating.beats?.probe(now: turn.now, misses: isUrgent ? 0 : nil), in: &turn) else {
            return
        }
        self.armTimer(in: &turn)
    }

    func noteBytesReceived(in turn: inout Turn) {
        if let outcome = self.hot.beating.beats?.bytesReceived(now: turn.now) {
            self.notifyHost(of: .beat(outcome), in: &turn)
        }
    }

    func reportBeatLost(in turn: inout Turn) {
        if let outcome = self.hot.beating.beats?.connectionLost() { self.notifyHost(of: .beat(outcome), in: &turn) }
    }

    // MARK: Bytes that get nowhere

    @_specialize(where Language == FrameLanguage)
    @_specialize(where Language == WebSocketLanguage)
    @_specialize(where Language == LineLanguage)
    func noteBlocked(_ context: ChannelHandlerContext, in turn: inout Turn) {
        if self.hot.isWritable {
            if self.hot.stall.isBlocked { self.hot.stall.stop() }
        } else if !self.hot.stall.isBlocked {
            self.hot.stall.isBlocked = true
            _ = self.isStalled(context, in: &turn)
            self.armTimer(in: &turn)
        }
    }

    private func isStalled(_ context: ChannelHandlerContext, in turn: inout Turn) -> Bool {
        guard let window = self.settings.writeStallTimeout else { return false }
        return self.hot.stall.watch.isStalled(
            isWaiting: self.hot.stall.isBlocked,
            passed: AcknowledgedBytes.count(of: context.channel) ?? self.hot.traffic.bytesSent - self.channelBytes,
            within: window,
            now: turn.now
        )
    }

    // MARK: The timer

    func armTimer(in turn: inout Turn) {
        self.removeTimers()
        guard self.hot.phase == .open else { return }
        var deadline = self.hot.beating.beats?.nextTick(now: turn.now) ?? .distantFuture
        if let window = self.settings.writeStallTimeout, let check = self.hot.stall.watch.nextCheck(within: window) {
            deadline = min(deadline, check)
        }
        guard deadline < .distantFuture else { return }
        self.timer = self.loop.setTimer(deadline) { self.timerFired(in: &$0) }
    }

    func removeTimers() {
        guard let timer = self.timer else { return }
        self.timer = nil
        self.loop.removeTimer(timer)
    }

    private func timerFired(in turn: inout Turn) {
        self.timer = nil
        guard let context = self.context, self.hot.phase == .open else { return }
        if self.hot.stall.isBlocked, self.isStalled(context, in: &turn) { return self.end(.writeStalled, in: &turn) }
        if self.isObstructed {
            let isReading = !self.isReadingHeld
            self.hot.beating.beats?.writeIsBlocked(now: turn.now, isReading: isReading)
        }
        let slept = self.sleep.total
        let action = self.hot.beating.beats?.tick(now: turn.now, slept: slept)
        guard self.perform(action, in: &turn) else { return }
        self.armTimer(in: &turn)
    }

    /// Whether an answer to a ping could not be expected.
    private var isObstructed: Bool {
        if self.hot.stall.isBlocked || self.hot.reading.isPaused { return true }
        return self.settings.readsOnlyWhileWritable
            && (self.hot.reading.isHeld || self.unwrittenBytes + self.channelBytes > 0)
    }

    /// False if the link has ended.
    func perform(_ action: Beats.Action?, in turn: inout Turn) -> Bool {
        switch action {
        case .beat:
            do {
                if let beat = try self.settings.makeBeat() {
                    self.send(beat, .control, in: &turn)
                    self.notifyHost(of: .beatSent, in: &turn)
                }
            } catch {
                self.hot.beating.beats?.beatWasSkipped(now: turn.now)
                self.notifyHost(of: .beatFailed(error), in: &turn)
            }
        case .peerIsDead(let silence):
            self.end(.peerIsDead(silentFor: silence, wePing: self.hot.beating.beats?.pings ?? false), in: &turn)
            return false
        case nil:
            break
        }
        return true
    }
}
