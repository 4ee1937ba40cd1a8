// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The receiver of a WebSocket link, on either side: delivers messages, answers pings, and takes part in the closing
/// handshake. On the socket's thread.
package final class WebSocketPeer: MessagePeer {
    package typealias Language = WebSocketLanguage

    /// The number of waiting bytes, of any kind, above which pings are not answered: 64 KiB.
    private static let maximumWaitingPongs = 64 << 10
    /// Memory that is reserved for future messages is freed when it was not used for this time, or up to twice as long.
    private static let idleTime = TimeAmount.seconds(5)
    /// The number of bytes of messages that a turn takes, if they are available: more might come from a few compressed
    /// bytes.
    private static let maximumTurnBytes = 1 << 20
    /// See ``lastSlices``.
    private static let maximumLastSlices = maximumTurnBytes / WebSocketDecoder.inflatedPerTurn

    /// The time after which a close frame is answered although messages before it were not read: less than peers wait.
    private static let maximumUnreadTime = WebSocketLanguage.patience - .seconds(1)

    package typealias Delivery = MessageDelivery<WebSocketMessage>

    /// A ping of the user's that was not answered.
    private struct Ping {
        var payload: OwnedBytes
        var outcome: MessageOutcome
        /// Makes the error for a link that ends before the answer.
        var lost: () -> SocketError
    }

    /// A peer that may be gone.
    private struct PeerReference {
        weak var peer: WebSocketPeer?
    }

    private enum News {
        case closed(WebSocketClose)
        case violated(LinkError)
    }

    package let link: Link<WebSocketLanguage>
    private let role: WebSocketRole
    private let delivery: Delivery
    /// The end that a close frame of the peer's means.
    private let end: (WebSocketClose) -> LinkEnd
    /// Receives the units whose sending has not begun.
    private let ended: ([WebSocketUnit], inout Turn) -> Void
    package let begun: BegunMessages<WebSocketLanguage>
    private var news: News?
    /// The peer's close frame.
    package private(set) var received: WebSocketClose?
    /// The number of pings and pongs so far.
    package private(set) var controlFrames = 0
    /// The peer's violation, after which nothing is read.
    private var violation: LinkError?
    /// Whether a timer is set to free memory.
    private var isAging = false
    /// The number of times that a server has inflated more than a turn's share because its connection ends.
    private var lastSlices = 0
    /// Called for each pong.
    package var pongCame: ((ByteBuffer) -> Void)?
    /// The pings that wait for a pong, the oldest first.
    private var pings: [Ping] = []
    /// The number of pings without a payload of the user's.
    private var numberedPings = 0

    package init(
        _ link: Link<WebSocketLanguage>,
        role: WebSocketRole,
        _ delivery: Delivery,
        end: @escaping (WebSocketClose) -> LinkEnd,
        ended: @escaping ([WebSocketUnit], inout Turn) -> Void
    ) {
        self.link = link
        self.role = role
        self.delivery = delivery
        self.end = end
        self.ended = ended
        self.begun = BegunMessages(link)
    }

    // MARK: Sending

    package func hasRoom(in turn: inout Turn) -> Bool {
        self.age(in: &turn)
        self.begun.completeSent()
        return false
    }

    /// Frees unused memory after a while. There is no timer while there is none.
    private func age(in turn: inout Turn) {
        guard !self.isAging, self.link.phase != .ended, self.link.keepsMemory else { return }
        self.isAging = true
        _ = self.link.loop.setTimer(turn.now + Self.idleTime) { [weak self] turn in
            guard let self else { return }
            self.isAging = false
            self.link.releaseMemoryUnlessUsed()
            self.age(in: &turn)
        }
    }

    /// Sends a ping, whose outcome completes when it is answered.
    ///
    /// - Parameters:
    ///   - payload: Nil for one that no other ping has, so that the pong of a heartbeat does not answer it.
    ///   - lost: Makes the error for a link that ends before the answer.
    package func ping(
        _ payload: ByteBuffer?,
        _ outcome: MessageOutcome,
        in turn: inout Turn,
        lost: @escaping () -> SocketError
    ) {
        let payload = payload ?? self.nextPayload()
        guard self.link.send(WebSocketUnit(.ping, payload), .control, in: &turn) != .refused else {
            return outcome.complete(.failure(lost()))
        }
        self.pings.append(Ping(payload: OwnedBytes(payload), outcome: outcome, lost: lost))
    }

    private func nextPayload() -> ByteBuffer {
        self.numberedPings += 1
        return ByteBuffer(string: "ping \(self.numberedPings)")
    }

    /// The answer to a ping is no longer awaited.
    package func cancelPing(_ outcome: MessageOutcome) {
        self.pings.removeAll { $0.outcome === outcome }
    }

    /// A pong answers the ping with its payload, and those before it.
    private func pong(_ payload: ByteBuffer) {
        self.controlFrames += 1
        self.pongCame?(payload)
        guard let index = self.pings.firstIndex(where: { $0.payload.buffer == payload }) else { return }
        let answered = self.pings.prefix(index + 1)
        self.pings.removeFirst(index + 1)
        for ping in answered { ping.outcome.complete(.success(())) }
    }

    // MARK: Receiving

    package func received(_ batch: inout Batch<WebSocketLanguage>, in turn: inout Turn) throws(LinkError) {
        guard self.violation == nil, self.resumeWork(&batch) else { return }
        var (taken, isFull) = (0, self.link.hasDeferredUnits && self.delivery.isFull)
        while self.news == nil, batch.continues {
            let stops = taken >= Self.maximumTurnBytes || isFull
            if stops, self.link.deferRest(of: self.delivery, isFull: isFull) { return }
            let input: WebSocketInput?
            do throws(LinkError) {
                input = try batch.next()
            } catch {
                self.news = .violated(error)
                break
            }
            switch input {
            case .message(let kind, let payload):
                taken += payload.readableBytes
                isFull = self.delivery.deliver(
                    WebSocketMessage(wire: kind, payload),
                    isLast: !self.link.mayDeferUnits,
                    on: self.link.loop,
                    in: &turn
                )
            case .ping(let payload):
                self.controlFrames += 1
                self.answer(payload, in: &turn)
            case .pong(let payload): self.pong(payload)
            case .close(let close): self.news = .closed(close)
            case .bytes: break
            case nil:
                guard batch.hasMoreWork, self.mayContinue(&batch, in: &turn) else { return self.age(in: &turn) }
            }
        }
        if self.news != nil { self.link.reportsReads = true }
        self.age(in: &turn)
    }

    /// Continues the language's deferred work in another turn; false until that turn.
    private func resumeWork(_ batch: inout Batch<WebSocketLanguage>) -> Bool {
        guard batch.hasMoreWork else { return true }
        guard !self.link.hasDeferredUnits else { return false }
        batch.resumeWork()
        return true
    }

    /// The language has used its budget for this turn.
    ///
    /// - Returns: Whether it continues nevertheless, because the connection ends, and messages that are not taken now
    ///   are lost. A server continues only for a while, since a client could otherwise occupy a whole turn.
    private func mayContinue(_ batch: inout Batch<WebSocketLanguage>, in turn: inout Turn) -> Bool {
        guard !self.link.deferWork(in: &turn) else { return false }
        if self.role == .server {
            guard self.lastSlices < Self.maximumLastSlices else { return false }
            self.lastSlices += 1
        }
        batch.resumeWork()
        return true
    }

    /// Answers a ping, unless the peer does not read: a later answer may answer several pings (RFC 6455, section
    /// 5.5.3).
    private func answer(_ ping: ByteBuffer, in turn: inout Turn) {
        guard self.link.waitingBytes < Self.maximumWaitingPongs else { return }
        self.link.send(WebSocketUnit(.pong, ping), .control, in: &turn)
    }

    package func finishedReading(in turn: inout Turn) {
        guard let news = self.news.take() else { return }
        self.link.reportsReads = false
        switch news {
        case .violated(let error):
            self.violation = error
            self.whenTaken(in: &turn) { $0.fail(error, in: &$1) }
        case .closed(let close):
            self.received = close
            guard self.link.phase == .open else {
                if self.role == .server { self.link.peerAnsweredClose(in: &turn) }
                return
            }
            self.whenTaken(in: &turn) { $0.answerClose(close, in: &$1) }
        }
    }

    /// Runs `body` once the current messages were taken and the sends that they caused have been submitted; if they are
    /// not taken, before the peer's patience ends.
    private func whenTaken(in turn: inout Turn, _ body: @escaping @Sendable (WebSocketPeer, inout Turn) -> Void) {
        // Weak: the messages may never be taken, and the peer retains the inbox that would retain this closure.
        let loop = self.link.loop
        let bound = NIOLoopBound(PeerReference(peer: self), eventLoop: loop.eventLoop)
        let submit: @Sendable () -> Void = {
            loop.submit { turn in if let peer = bound.value.peer { body(peer, &turn) } }
        }
        if case .handler = self.delivery { return submit() }
        self.delivery.whenTaken(on: loop, submit)
        _ = loop.setTimer(turn.now + Self.maximumUnreadTime) { body(self, &$0) }
    }

    private func fail(_ error: LinkError, in turn: inout Turn) {
        self.link.part(self.end(error), error.reason, within: WebSocketLanguage.patience, in: &turn)
    }

    /// The end that a violation means.
    private func end(_ error: LinkError) -> LinkEnd {
        var end = LinkEnd(.protocolViolation(error))
        if let violation = error.underlying as? WebSocketViolation {
            end.verdict = self.end(WebSocketClose(code: violation.code)).verdict
        }
        return end
    }

    private func answerClose(_ close: WebSocketClose, in turn: inout Turn) {
        self.link.part(self.end(close), .done, within: WebSocketLanguage.patience, in: &turn)
    }

    /// The end of TCP is explained by the peer's unanswered close frame, or by its violation.
    package func explain(_ end: LinkEnd) -> LinkEnd {
        self.received.map { self.end($0) } ?? self.violation.map { self.end($0) } ?? end
    }

    package func linkEnded(returning units: [WebSocketUnit], in turn: inout Turn) {
        self.begun.fail()
        // Its user may keep the link.
        self.link.hot.language.dropAll()
        let pings = self.pings
        self.pings = []
        for ping in pings { ping.outcome.complete(.failure(ping.lost())) }
        self.ended(units, &turn)
    }
}

extension Link where Language == WebSocketLanguage {
    /// Whether memory is reserved for future messages.
    fileprivate var keepsMemory: Bool { self.hot.language.holdsContexts || self.hot.out.bytes.keepsMuch }

    /// Frees that memory, as far as compression has not used it since the last call.
    fileprivate func releaseMemoryUnlessUsed() {
        self.hot.language.releaseContextsUnlessUsed()
        self.hot.out.bytes.releaseRest()
        self.settleNow()
    }

    /// Chooses our close frame.
    package func setClose(_ close: WebSocketClose) {
        self.hot.language.ownClose = close
    }
}
