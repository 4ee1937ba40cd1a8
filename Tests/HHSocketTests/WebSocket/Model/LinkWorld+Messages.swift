// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers
import NIOCore

@testable import HHSocket
@testable import HHSocketLink

/// The messages of a link, in both directions.
extension LinkWorld {
    // MARK: Sending

    func send(_ link: WebSocketLink, _ length: Int, _ isText: Bool, _ style: SentMessage.Style) {
        guard style == .awaited else {
            let number = self.submit(length, isText, style)
            let message = self.sent[number].message
            guard style == .completion else { return link.send(message, completion: nil) }
            return link.send(message) { [weak self] in self?.completed(number, $0) }
        }
        guard #available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *) else { return }
        let box = NIOLockedValueBox<Int?>(nil)
        let task = Task(executorPreference: self.executor) { [weak self] in
            guard let self else { return }
            let number = self.submit(length, isText, style)
            box.withLockedValue { $0 = number }
            do throws(SocketError) {
                try await link.send(self.sent[number].message)
                self.completed(number, .success(()))
            } catch {
                self.completed(number, .failure(error))
            }
        }
        self.loop.run()
        if let number = box.withLockedValue({ $0 }) { self.senders[number] = task }
    }

    /// Records a message that is sent now.
    func submit(_ length: Int, _ isText: Bool, _ style: SentMessage.Style) -> Int {
        self.beginAnew()
        let number = self.sent.count
        let message = SentMessage.message(number, isText: isText, length: length)
        self.sent.append(
            SentMessage(
                message: message,
                style: style,
                expectation: self.expectation(length),
                step: self.stepNumber
            )
        )
        self.unsettled.append(number)
        return number
    }

    func expectation(_ length: Int) -> SentMessage.Expectation {
        if self.life == .closed { return .closed }
        let unsettled = self.unsettled.map { self.sent[$0] }
        // The outcomes of other messages are unknown.
        let isKnown = unsettled.allSatisfy { $0.style != .forgotten || $0.expectation != .unknown }
        guard isKnown, !self.isSwitching else { return .unknown }
        let kept = unsettled.filter { $0.outcome == nil && $0.expectation != .refused }
        let waiting = kept.filter { $0.peer == nil }
        let bytes = waiting.reduce(0) { $0 + $1.length }
        if let peer = self.openPeer {
            let state = self.states[peer.number]
            if state.deliveredClose != nil || state.ownClose != nil || peer.isOver { return .unknown }
            // Messages of this step may be sent immediately.
            let queued = waiting.filter { $0.step < self.stepNumber }
            let queuedBytes = queued.reduce(0) { $0 + $1.length }
            if !queued.isEmpty, length > self.settings.maximumBytes - queuedBytes { return .refused }
            let most = kept.reduce(0) { $0 + $1.length + 14 } + self.ghosts + 14 * (self.pings.count + 10)
            return most + length <= self.settings.maximumBytes ? .accepted : .unknown
        }
        if self.peers.contains(where: { $0.channel.isOpen && $0.isOpen }) { return .unknown }
        let limit = self.settings.expectedWaiting ?? self.settings.maximumWaiting
        let hasRoom = waiting.count < limit && (waiting.isEmpty || length <= self.settings.maximumBytes - bytes)
        return hasRoom ? .accepted : .refused
    }

    func cancel(_ number: Int) {
        self.sent[number].isCancelled = true
        if self.sent[number].isWaiting, self.openPeer != nil { self.ghosts += self.sent[number].length + 14 }
        self.senders[number]?.cancel()
    }

    func completed(_ number: Int, _ result: Result<Void, SocketError>) {
        let message = self.sent[number]
        guard message.outcome == nil else { return self.fail("message \(number) has two outcomes") }
        switch result {
        case .success:
            self.sent[number].outcome = .success
            guard let peer = message.peer, let end = message.end, peer.takenBytes >= end else {
                return self.fail("message \(number) succeeds before its last byte has left")
            }
        case .failure(let error):
            self.sent[number].outcome = .failure(error)
            self.failed(number, message, error)
        }
    }

    func failed(_ number: Int, _ message: SentMessage, _ error: SocketError) {
        if error.delivery == .sentUnknown {
            // A compressed message shows its number at its end.
            let unnamed = self.begunWithoutNumber.map { self.peers[$0] }
            self.begunWithoutNumber = nil
            guard let peer = message.peer ?? unnamed else {
                return self.fail("message \(number) has not begun to leave, and fails with sentUnknown")
            }
            // The connection closes at this moment.
            self.lost.append((number, peer))
            return
        }
        if message.peer != nil { return self.fail("message \(number) has begun to leave, and fails with \(error)") }
        switch error.code {
        case .queueFull:
            if message.expectation == .accepted { self.fail("message \(number) is refused, and there is room") }
        case .cancelled where message.isCancelled:
            break
        default:
            // The end of attempts is reported in this turn.
            if self.unexplained == nil { self.unexplained = "message \(number) fails with \(error)" }
        }
    }

    func ping(_ link: WebSocketLink) {
        guard #available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *) else { return }
        let number = self.pings.count
        let payload = ByteBuffer(string: "ping \(number)")
        self.pings.append((payload, 0))
        let isOpen = self.openPeer.map { self.states[$0.number].ownClose == nil } ?? false
        Task(executorPreference: self.executor) { [weak self] in
            let result: Result<Duration, SocketError>
            do throws(SocketError) {
                result = .success(try await link.ping(payload))
            } catch {
                result = .failure(error)
            }
            self?.ponged(number, result, wasOpen: isOpen)
        }
    }

    func ponged(_ number: Int, _ result: Result<Duration, SocketError>, wasOpen: Bool) {
        self.pings[number].outcomes += 1
        switch result {
        case .success:
            // A later pong also answers earlier pings.
            let isAnswered = self.pings[number...].contains { self.pongs.contains($0.payload) }
            if !isAnswered { self.fail("ping \(number) was answered by nobody") }
        case .failure(let error):
            if error.code == .notConnected, wasOpen, self.openPeer?.isOver == false, self.life == .wanted {
                self.fail("ping \(number) fails though there is a connection: \(error)")
            }
        }
    }

    // MARK: What leaves

    func messageBegins(_ number: Int?, _ peer: SimulatedPeer) {
        if self.settings.beatsAreMessages, number == nil, !self.settings.isCompressed { return }
        guard let number else {
            self.begunWithoutNumber = peer.number
            return
        }
        self.begins(number, peer)
    }

    func begins(_ number: Int, _ peer: SimulatedPeer) {
        guard self.sent.indices.contains(number) else { return self.fail("message \(number) leaves, and is none") }
        if let before = self.sent[number].peer {
            return self.fail("message \(number) leaves by connection \(before.number), and by \(peer.number)")
        }
        if case .failure(let error)? = self.sent[number].outcome {
            return self.fail("message \(number) has failed with \(error), and leaves")
        }
        if [.refused, .closed].contains(self.sent[number].expectation) {
            self.fail("message \(number) leaves, although it is over the limit or nothing was open")
        }
        if number <= self.lastBegun { self.fail("message \(number) leaves after message \(self.lastBegun)") }
        self.lastBegun = number
        self.sent[number].peer = peer
    }

    func messageIsWhole(_ kind: WebSocketMessageKind, _ payload: ByteBuffer, _ peer: SimulatedPeer) {
        self.begunWithoutNumber = nil
        if self.settings.beatsAreMessages, payload == SentMessage.beat { return }
        guard let text = payload.getString(at: payload.readerIndex, length: SentMessage.prefixLength),
            let number = Int(text), self.sent.indices.contains(number)
        else { return self.fail("a message leaves that nobody has sent: \(payload)") }
        if self.settings.ignoresEachTenth, number % 10 == 9 { return }
        if self.sent[number].peer == nil { self.begins(number, peer) }
        guard self.sent[number].message == WebSocketMessage(wire: kind, payload) else {
            return self.fail("message \(number) leaves, and is another")
        }
        self.sent[number].end = peer.wholeBytes
    }

    func closeWasWritten(_ close: WebSocketClose, _ peer: SimulatedPeer) {
        let state = self.states[peer.number]
        self.states[peer.number].closeWrittenAt = self.loop.now
        var allowed: [WebSocketClose] = [state.ownClose].compactMap { $0 }
        if let answered = state.deliveredClose { allowed.append(WebSocketClose(code: answered.code)) }
        if let violation = state.deliveredViolation ?? peer.begunViolation {
            let code = ServerItem.violations[violation].code
            guard close.code != code else { return }
        }
        // The link leaves the connection by itself.
        if self.isSwitching || self.isInBackground || self.link == nil { allowed.append(WebSocketClose(code: 1_000)) }
        if !allowed.contains(close) { self.fail("the close frame is \(close), and should be one of \(allowed)") }
    }

    // MARK: What comes

    func willRead(_ peer: SimulatedPeer) {
        // A closing link continues to read, and drops the excess.
        guard !self.settings.usesHandler, self.states[peer.number].ownClose == nil, peer === self.openPeer,
            !self.isSwitching
        else { return }
        // Messages that the reader has taken are not in the inbox.
        let backlog = self.expected[self.nextExpected...].filter { !$0.isOptional }
        if backlog.count > 260 || backlog.reduce(0, { $0 + $1.message.payload.readableBytes }) > 1 << 20 + 300_000 {
            self.fail("more is read, although \(backlog.count) messages wait")
        }
    }

    func wasDelivered(_ item: SimulatedPeer.Sent, _ peer: SimulatedPeer) {
        let state = self.states[peer.number]
        guard state.deliveredClose == nil, state.deliveredViolation == nil else { return }
        let isLeft = state.wasOpened && peer !== self.openPeer
        let isOptional = state.ownClose != nil || state.closeWrittenAt != nil || isLeft || self.isSwitching
        switch item.item {
        case .message(let isText, _, _):
            self.expected.append((WebSocketMessage(isText ? .text : .binary, item.payload), isOptional))
        case .request:
            self.expected.append((WebSocketMessage(.text, item.payload), isOptional))
        case .close(let code):
            self.states[peer.number].deliveredClose = WebSocketClose(code: code, reason: code == nil ? "" : "because")
            self.states[peer.number].deliveredCloseAt = self.loop.now
        case .violation(let number):
            self.states[peer.number].deliveredViolation = number
        case .pong:
            self.pongs.insert(item.payload)
        case .ping:
            break
        }
    }

    func handled(_ message: WebSocketMessage) {
        self.received(message)
        guard let link = self.link, let words = message.text?.split(separator: " "), words.first == "send",
            let count = Int(words[1])
        else { return }
        for _ in 0..<count { self.send(link, 6 + Int(self.generator.next() % 100), true, .completion) }
    }

    func received(_ message: WebSocketMessage) {
        while self.nextExpected < self.expected.count {
            let next = self.expected[self.nextExpected]
            self.nextExpected += 1
            if next.message == message { return }
            if !next.isOptional { break }
        }
        self.fail("a message comes that is not the next one: \(message)")
    }

    func pass() async {
        guard self.isHeld, self.link != nil else { return }
        guard self.allowance == 0 else {
            self.allowance -= 1
            return
        }
        await withCheckedContinuation { self.gate = $0 }
    }

    func openGate() {
        guard let gate = self.gate, !self.isHeld || self.allowance > 0 || self.link == nil else { return }
        self.gate = nil
        self.allowance = max(0, self.allowance - 1)
        gate.resume()
    }
}
