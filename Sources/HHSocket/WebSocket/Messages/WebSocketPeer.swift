package import NIOCore

/// The receiver of a link that speaks WebSocket, on either side: hands messages on, answers pings, and takes part in
/// the closing handshake. On the socket's thread.
package final class WebSocketPeer: LinkReceiver {
    package typealias Language = WebSocketLanguage

    /// The number of waiting bytes, of whatever kind, from which on pings are not answered: 64 KiB.
    private static let maximumWaitingPongs = 64 << 10
    /// The memory of more places for messages that leave than these is not kept.
    private static let largestKept = 16
    /// Memory that is kept for messages to come is freed when it was not used for this time, or up to twice as long.
    private static let idleTime = TimeAmount.seconds(5)
    /// The number of bytes of messages that a turn takes at least, if they have come: more may be a few bytes that were
    /// compressed.
    private static let maximumTurnBytes = 1 << 20

    /// The time after which a close frame is answered although messages before it were not read: less than peers wait.
    private static let maximumUnreadTime = WebSocketLanguage.patience - .seconds(1)

    /// The place where messages go.
    package enum Delivery {
        case inbox(WebSocketInbox)
        /// Called on the socket's thread, among the handlers of a turn.
        case handler(@Sendable (WebSocketMessage) -> Void)
        case delegate(WebSocketDelegation)
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
    /// Told the units that have not begun to leave.
    private let ended: ([WebSocketUnit], inout Turn) -> Void
    /// The outcomes of messages that have begun to leave, in order.
    private var leaving: [WebSocketOutcome] = []
    private var news: News?
    /// The peer's close frame.
    private(set) var received: WebSocketClose?
    /// The peer's violation, behind which nothing is read.
    private var violation: LinkError?
    /// Whether a timer is set to free memory.
    private var isAging = false
    /// Called for each pong.
    var pongCame: ((ByteBuffer) -> Void)?
    /// Those who wait for a pong, the oldest first.
    private var pings: [(payload: ByteBuffer, completion: (Bool) -> Void)] = []

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
        link.tellsOfRoom = true
    }

    // MARK: Sending

    /// Sends a message, which fails where the link closes or too much waits.
    package func send(_ unit: WebSocketUnit, in turn: inout Turn) -> Bool {
        let outcome = unit.outcome
        let isLong = unit.payload.readableBytes > Frame.unslicedLength
        switch self.link.send(unit, in: &turn) {
        case .sent:
            if let outcome {
                outcome.hasBegun = true
                // A long one says so itself, and may have done so.
                if !isLong { outcome.isWhole = true }
                self.leaving.append(outcome)
            }
            return true
        case .queued: return true
        case .refused: return false
        }
    }

    package func unitWillBeSent(_ unit: WebSocketUnit, in turn: inout Turn) -> Bool {
        guard let outcome = unit.outcome else { return true }
        guard outcome.isOpen else { return false }
        outcome.hasBegun = true
        outcome.isWhole = unit.payload.readableBytes <= Frame.unslicedLength
        self.leaving.append(outcome)
        return true
    }

    package func unitProgressed(_ outgoing: Outgoing<WebSocketUnit>, in turn: inout Turn) {
        if outgoing.sent == outgoing.unit.payload.readableBytes { outgoing.unit.outcome?.isWhole = true }
    }

    package func hasRoom(in turn: inout Turn) -> Bool {
        self.age(in: &turn)
        self.completeSent()
        return false
    }

    package func hasLeft(in turn: inout Turn) { self.completeSent() }

    /// Completes the messages of which the last byte was handed to the system, or has that done when it is.
    private func completeSent() {
        guard !self.leaving.isEmpty else { return }
        let count = self.leaving.firstIndex { !$0.isWhole } ?? self.leaving.count
        // Where a write has failed, the end of the link is still to be told, and tells of them.
        guard count > 0, let context = self.link.context, context.channel.isActive else { return }
        let gone = Array(self.leaving.prefix(count))
        guard self.link.channelBytes > 0 else {
            self.removeLeaving(count)
            for outcome in gone { outcome.complete(.success(())) }
            return
        }
        // Behind what the channel still has.
        guard self.flushed == nil else { return }
        let flushed = context.eventLoop.makePromise(of: Void.self)
        self.flushed = gone.last
        context.writeAndFlush(NIOAny(ByteBuffer()), promise: flushed)
        flushed.futureResult.assumeIsolated().whenSuccess { self.completeFlushed() }
    }

    /// The last message that has left when the channel has nothing any more; nil where that is not waited for.
    private var flushed: WebSocketOutcome?

    private func completeFlushed() {
        guard let last = self.flushed.take(), let index = self.leaving.firstIndex(where: { $0 === last }) else {
            return
        }
        let gone = Array(self.leaving.prefix(index + 1))
        self.removeLeaving(index + 1)
        for outcome in gone { outcome.complete(.success(())) }
        if !self.leaving.isEmpty { self.link.loop.enter { _ in self.completeSent() } }
    }

    private func removeLeaving(_ count: Int) {
        self.leaving.removeFirst(count)
        // There may have been very many.
        if self.leaving.isEmpty, self.leaving.capacity > Self.largestKept { self.leaving = [] }
    }

    /// Has memory freed that nothing uses for a while. There is no timer while there is none.
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

    /// Sends a ping. `completion` is called once: with true when it was answered, with false when the link ends before.
    package func ping(_ payload: ByteBuffer, in turn: inout Turn, _ completion: @escaping (Bool) -> Void) {
        guard self.link.send(WebSocketUnit(.ping, payload), .control, in: &turn) != .refused else {
            return completion(false)
        }
        self.pings.append((payload, completion))
    }

    /// A pong answers the ping with its payload, and those before it.
    private func pong(_ payload: ByteBuffer) {
        self.pongCame?(payload)
        guard let index = self.pings.firstIndex(where: { $0.payload == payload }) else { return }
        let answered = self.pings.prefix(index + 1)
        self.pings.removeFirst(index + 1)
        for ping in answered { ping.completion(true) }
    }

    // MARK: Receiving

    package func received(_ batch: inout Batch<WebSocketLanguage>, in turn: inout Turn) throws(LinkError) {
        guard self.violation == nil else { return }
        var (taken, isFull) = (0, self.link.hasLeftUnits && self.isFull)
        while self.news == nil, batch.goesOn {
            if taken >= Self.maximumTurnBytes || isFull, self.leavesRest(isFull: isFull) { return }
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
                isFull = self.deliver(WebSocketMessage(wire: kind, payload), in: &turn)
            case .ping(let payload): self.answer(payload, in: &turn)
            case .pong(let payload): self.pong(payload)
            case .close(let close): self.news = .closed(close)
            case .bytes: break
            case nil: return self.age(in: &turn)
            }
        }
        if self.news != nil { self.link.tellsOfReads = true }
        self.age(in: &turn)
    }

    /// Answers a ping, unless the peer does not read: a later answer may stand for all (RFC 6455, section 5.5.3).
    private func answer(_ ping: ByteBuffer, in turn: inout Turn) {
        guard self.link.waitingBytes < Self.maximumWaitingPongs else { return }
        self.link.send(WebSocketUnit(.pong, ping), .control, in: &turn)
    }

    /// - Returns: Whether nothing more should come for now.
    private func deliver(_ message: WebSocketMessage, in turn: inout Turn) -> Bool {
        switch self.delivery {
        case .inbox(let inbox):
            return inbox.append(message, isLast: !self.link.mayLeaveUnits)
        case .handler(let handler):
            turn.run(MessageHandler(handler: handler, message: message))
            return false
        case .delegate(let delegation):
            return delegation.deliver(message, on: self.link.loop)
        }
    }

    private var isFull: Bool {
        switch self.delivery {
        case .inbox(let inbox): inbox.isFull
        case .delegate(let delegation): delegation.isFull
        case .handler: false
        }
    }

    /// Leaves what has come and was not taken, until there is room, or until another turn.
    ///
    /// - Returns: False if there is nothing to leave, or no later.
    private func leavesRest(isFull: Bool) -> Bool {
        guard self.link.mayLeaveUnits, self.link.unfinishedBytes > 0 else { return false }
        self.link.leaveUnits()
        let (loop, bound) = (self.link.loop, NIOLoopBound(self, eventLoop: self.link.loop.eventLoop))
        let goOn: @Sendable () -> Void = {
            loop.submit(.closure { bound.value.link.takeLeftUnits(in: &$0) })
        }
        switch self.delivery {
        case .inbox(let inbox) where isFull: inbox.whenRoom(goOn)
        case .delegate(let delegation) where isFull: delegation.whenRoom(goOn)
        default: goOn()
        }
        return true
    }

    package func finishedReading(in turn: inout Turn) {
        guard let news = self.news.take() else { return }
        self.link.tellsOfReads = false
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

    /// Runs `body` once the messages so far were taken and what was sent because of them has been submitted; where
    /// they are not, before the peer waits no longer.
    private func whenTaken(in turn: inout Turn, _ body: @escaping @Sendable (WebSocketPeer, inout Turn) -> Void) {
        let (bound, loop) = (NIOLoopBound(self, eventLoop: self.link.loop.eventLoop), self.link.loop)
        let submit: @Sendable () -> Void = { loop.submit(.closure { body(bound.value, &$0) }) }
        switch self.delivery {
        case .handler: return submit()
        case .delegate: loop.callBack(.closure(submit))
        case .inbox(let inbox): inbox.whenRead(submit)
        }
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

    /// A close frame that has not been answered yet says why the peer ends TCP, and so does a violation that has not.
    package func explain(_ end: LinkEnd) -> LinkEnd {
        self.received.map { self.end($0) } ?? self.violation.map { self.end($0) } ?? end
    }

    package func linkEnded(returning units: [WebSocketUnit], in turn: inout Turn) {
        let error = SocketError(
            .connectionLost,
            message: "the connection was lost while the message was being sent",
            delivery: .sentUnknown
        )
        let lost = self.leaving
        self.leaving = []
        self.flushed = nil
        for outcome in lost { outcome.complete(.failure(error)) }
        let pings = self.pings
        self.pings = []
        for ping in pings { ping.completion(false) }
        self.ended(units, &turn)
    }
}

/// A message for a handler, among the others of its turn.
private struct MessageHandler: TurnHandler {
    let handler: @Sendable (WebSocketMessage) -> Void
    let message: WebSocketMessage

    static func run(at place: UnsafeMutableRawPointer) {
        let this = place.takeHandler(Self.self)
        this.handler(this.message)
    }
}

extension Link where Language == WebSocketLanguage {
    /// Whether memory is kept for messages to come.
    fileprivate var keepsMemory: Bool { self.hot.language.holdsContexts || self.hot.out.bytes.keepsMuch }

    /// Frees that memory, as far as compression has not used it since the last call.
    fileprivate func releaseMemoryUnlessUsed() {
        self.hot.language.releaseContextsUnlessUsed()
        self.hot.out.bytes.releaseRest()
    }

    /// Chooses our close frame.
    package func setClose(_ close: WebSocketClose) {
        self.hot.language.ownClose = close
    }
}
