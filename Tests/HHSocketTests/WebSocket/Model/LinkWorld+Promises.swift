// SPDX-License-Identifier: Apache-2.0
import NIOCore

@testable import HHSocket
@testable import HHSocketLink

/// The promises of all histories, and their end.
extension LinkWorld {
    // MARK: Promises

    func check() {
        if let unexplained = self.unexplained, !self.wasClosed, self.life != .closed, self.link != nil {
            self.fail(unexplained)
        }
        self.unexplained = nil
        self.wasClosed = false
        for (number, peer) in self.lost where !peer.isOver {
            self.fail("message \(number) is lost, and connection \(peer.number) is not")
        }
        self.lost = []
        self.checkSent()
        self.checkReceived()
        if self.mustHaveEnded {
            self.mustHaveEnded = false
            if self.life != .closed { self.fail("attempts go on, which the close code forbids") }
        }
        if let peer = self.openPeer, peer.isOver {
            self.fail("connection \(peer.number) has ended, and nobody is told")
        }
        self.checkTimes()
    }

    func checkSent() {
        let hasChannel = self.peers.contains { $0.channel.isOpen }
        var (count, bytes) = (0, 0)
        self.unsettled.removeAll { number in
            let message = self.sent[number]
            let isForgotten = message.style == .forgotten && (message.end != nil || message.peer?.isOver == true)
            if message.outcome != nil || isForgotten {
                self.senders[number] = nil
                return message.expectation != .refused || self.checkRefusal(number, message)
            }
            if message.style == .forgotten {
                // The outcomes of others are not reported.
                return self.life == .closed && !hasChannel || message.expectation == .refused
                    || message.expectation == .closed
            }
            switch message.expectation {
            case .refused: self.fail("message \(number) is over the limit, and is not refused at once")
            case .closed: self.fail("message \(number) has no outcome, though nothing is open any more")
            case .accepted, .unknown: break
            }
            if message.isCancelled, message.peer == nil { self.fail("message \(number) is cancelled, and still waits") }
            if let peer = message.peer {
                if peer.isOver { self.fail("message \(number) has no outcome, and connection \(peer.number) is over") }
                // Its outcome may be reported together with later ones.
                if message.end != nil, peer.channel.bufferedBytes == 0 {
                    self.fail("message \(number) has left, and nobody is told")
                }
            } else {
                count += 1
                bytes += message.length
                if self.life == .closed, !hasChannel { self.fail("message \(number) hangs, though nothing is open") }
            }
            return false
        }
        if !self.hasEverOpened, count > self.settings.maximumWaiting { self.fail("\(count) messages wait") }
        if count > 1, bytes > 2 * self.settings.maximumBytes { self.fail("\(bytes) bytes wait") }
    }

    func checkRefusal(_ number: Int, _ message: SentMessage) -> Bool {
        if case .failure(let error)? = message.outcome, error.code == .queueFull { return true }
        self.fail("message \(number) is over the limit, and is not refused")
        return true
    }

    func checkReceived() {
        guard !self.isHeld || self.settings.usesHandler else { return }
        let missing = self.expected[self.nextExpected...].filter { !$0.isOptional }
        if let first = missing.first {
            self.fail("\(missing.count) messages have not come; the first: \(first.message)")
        }
    }

    func checkTimes() {
        let now = self.loop.now
        for peer in self.peers where !peer.isOver { self.checkTimes(of: peer, now) }
        let mayAttempt =
            self.life == .wanted && !self.peers.contains { $0.channel.isOpen } && self.isReachable
            && (!self.isInBackground || self.settings.background == .keepConnected) && self.link != nil
        guard mayAttempt else { return self.idleSince = nil }
        let since = self.idleSince ?? now
        self.idleSince = since
        let latest = max(since + .seconds(Int64(self.settings.expectedCap)), self.returns.values.max() ?? now)
        if now > latest + .seconds(1) {
            self.fail("nothing is attempted for \(now - since)")
        }
    }

    func checkTimes(of peer: SimulatedPeer, _ now: NIODeadline) {
        let state = self.states[peer.number]
        let patience = TimeAmount.seconds(Int64(self.settings.patience)) + .milliseconds(500)
        if let time = state.closeWrittenAt, now > time + patience {
            self.fail("the closing handshake of connection \(peer.number) takes \(now - time)")
        }
        if let time = state.ownCloseAt, now > time + patience + patience {
            self.fail("connection \(peer.number) is there \(now - time) after disconnect()")
        }
        if let time = state.deliveredCloseAt, now > time + patience + patience + patience {
            self.fail("connection \(peer.number) is there \(now - time) after the server's close frame")
        }
        // The server is silent, while our side pings and reads.
        let isExcused =
            peer !== self.openPeer || !peer.channel.isAutoReading || !peer.channel.isWritable
            || self.isInBackground || state.deliveredBytes != peer.deliveredBytes || state.ownClose != nil
            || state.closeWrittenAt != nil
        self.states[peer.number].deliveredBytes = peer.deliveredBytes
        if isExcused { self.states[peer.number].aliveAt = now }
        if let heartbeat = self.settings.heartbeat,
            now > state.aliveAt + .seconds(Int64(heartbeat.interval + 2 * heartbeat.reply + 2)), !isExcused
        {
            self.fail("connection \(peer.number) is silent for \(now - state.aliveAt), and taken for alive")
        }
        // The server takes almost no bytes.
        let isMoving = peer.channel.isWritable || peer !== self.openPeer || state.takenBytes != peer.takenBytes
        self.states[peer.number].takenBytes = peer.takenBytes
        if isMoving { self.states[peer.number].progressAt = now }
        if !isMoving, now > state.progressAt + .seconds(62) {
            self.fail("connection \(peer.number) takes nothing for \(now - state.progressAt)")
        }
    }

    // MARK: The end

    /// Ends the history: after a period without faults, or immediately.
    func end(heals: Bool) -> String? {
        if heals { self.heal() }
        self.release()
        return self.broken
    }

    /// Ends all faults: waiting messages are sent.
    func heal() {
        self.stepNumber += 1
        self.mood = ServerMood()
        // The mood of these servers may be not to answer.
        for peer in self.peers where !peer.isOver { peer.finishWell() }
        for step: LinkStep in [.network(true), .foreground, .receive(nil), .time(15_000), .connect, .time(1_000)] {
            if self.take(step) != nil { return }
        }
        let latest = self.returns.values.max() ?? self.loop.now
        self.advance(max(.zero, latest - self.loop.now) + .seconds(62))
        self.check()
        if self.broken != nil { return }
        if self.openPeer == nil { return self.fail("there is no connection, though all is well") }
        let waiting = self.unsettled.first { number in
            self.sent[number].style != .forgotten || self.sent[number].expectation == .accepted
        }
        if let waiting { return self.fail("message \(waiting) still waits, though all is well") }
        let lost = self.sent.enumerated().first { $0.element.style == .completion && $0.element.outcome == nil }
        if let lost { return self.fail("message \(lost.offset) has no outcome") }
        _ = self.take(.disconnect(code: 1_000, hasReason: false))
        _ = self.take(.time(1_000))
        guard self.broken == nil, let peer = self.peers.last else { return }
        if !peer.isOver || peer.clientClose?.code != 1_000 { self.fail("the last connection does not end well") }
    }

    func release() {
        let wasBroken = self.broken
        self.stepNumber += 1
        for number in self.unsettled { self.senders[number]?.cancel() }
        for number in self.unsettled where self.senders[number] != nil { self.sent[number].isCancelled = true }
        self.loop.run()
        self.link = nil
        self.isHeld = false
        self.openGate()
        self.settle()
        for round in 0..<400 where self.trace != nil || self.peers.contains(where: { $0.channel.isOpen }) {
            self.loop.advanceTime(by: .milliseconds(500))
            self.settle()
            guard round == 200 else { continue }
            // A ping may wait forever without a heartbeat.
            for peer in self.peers where !peer.isOver { peer.finishWell() }
        }
        self.loop.advanceTime(by: .seconds(1))
        self.settle()
        if self.trace != nil { self.fail("somebody keeps the link") }
        if let peer = self.peers.first(where: { $0.channel.isOpen }) {
            self.fail("connection \(peer.number) is there without a link")
            peer.channel.close(promise: nil)
        }
        if let message = self.sent.firstIndex(where: { $0.outcome == nil && $0.style != .forgotten }) {
            self.fail("message \(message) has no outcome at the end")
        }
        if let ping = self.pings.firstIndex(where: { $0.outcomes != 1 }) {
            self.fail("ping \(ping) has \(self.pings[ping].outcomes) outcomes")
        }
        if self.endedTasks < (self.settings.usesHandler ? 1 : 2) {
            self.fail("messages or events go on without a link")
        }
        if wasBroken != nil { self.broken = wasBroken }
        self.loop.advanceTime(by: .hours(24))
        for peer in self.peers { peer.release() }
    }
}
