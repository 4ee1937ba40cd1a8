// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

/// Sends what is long in pieces, between which other frames may pass. On the event loop.
protocol PieceSender: AnyObject {
    /// Whether a push is being sent in pieces. Others wait.
    var isPushing: Bool { get }
    /// Whether frames wait until the link accepts more.
    var wantsRoom: Bool { get }
    /// The number of bytes that wait for the client.
    var waitingBytes: Int { get }
    func sendInPieces(_ answer: Frame, in turn: inout Turn)
    func push(_ push: Frame, in turn: inout Turn)
    /// Resumes the frames that wait, after a flush.
    ///
    /// - Returns: Whether more was sent.
    func hasRoom(in turn: inout Turn) -> Bool
}

/// Sends a client of frames its answers, in the order of the requests where that is asked for, and its pushes. On the
/// event loop.
final class AnswerWriter {
    /// The cost of a slot in the order of answers, in bytes: that of an answer with its frame, but without its
    /// payload.
    private static let slotCost = 128

    private let link: Link<FrameLanguage>
    private let peer: ServerPeer
    /// Sends long answers and pushes, once hello has agreed on streams.
    private var pieces: (any PieceSender)?
    /// The answers that wait for those to earlier requests; nil if each is sent as soon as it is ready.
    private var order: AnswerOrder<Frame>?
    /// The memory of the payloads that wait in it, in bytes.
    private var orderedBytes = 0
    private var pushes: PushQueue
    /// The charge for what waits here.
    private var hold: Hold
    /// The number of bytes sent by the time the client's backlog was last measured.
    private var bytesSent = 0

    init(_ link: Link<FrameLanguage>, _ peer: ServerPeer) {
        self.link = link
        self.peer = peer
        self.hold = Hold(.memory(0), of: peer.account)
        self.order = peer.parts.rules.answersInOrder ? AnswerOrder() : nil
        let limits = peer.parts.rules.limits
        self.pushes = PushQueue(
            maximumCount: limits.maximumWaitingPushes,
            maximumBytes: limits.maximumWaitingPushBytes
        )
    }

    private var listener: ListenerSettings { self.peer.listener }
    private var counts: SessionCounts { self.peer.loop.sessionCounts }

    /// Hello has agreed on streams.
    func beginPieces(by sender: any PieceSender) { self.pieces = sender }

    func end() {
        self.pushes.removeAll()
        (self.order, self.orderedBytes) = (nil, 0)
        self.pieces = nil
        self.settle()
    }

    // MARK: Answers

    /// A request has come: its answer is the last in the order.
    func reserve() { self.order?.reserve() }

    /// A request will not be answered.
    func abandon(_ run: UInt64, in turn: inout Turn) {
        guard let ready = self.order?.abandon(run) else { return }
        self.emit(ready, in: &turn)
        self.checkOrder(in: &turn)
    }

    /// Sends an answer, when it is its turn.
    ///
    /// - Parameter run: The request's number; nil: the frame answers none.
    func answer(_ frame: consuming Frame, _ run: UInt64?, in turn: inout Turn) {
        guard let run, let isNext = self.order?.isNext(run) else { return self.emit(frame, in: &turn) }
        if !isNext { frame.payload = frame.payload.detached }
        self.orderedBytes += frame.payload.storageCapacity
        self.emit(self.order?.answer(run, frame) ?? [], in: &turn)
        self.checkOrder(in: &turn)
    }

    /// The cost of the waiting answers, in bytes. Slots without a payload count too, including those of cancelled
    /// requests: otherwise they would be unbounded.
    private var orderCost: Int { self.orderedBytes + (self.order?.count ?? 0) * Self.slotCost }

    private func checkOrder(in turn: inout Turn) {
        self.settle()
        if self.orderCost > self.peer.parts.rules.limits.maximumBufferedBytesPerConnection {
            self.peer.evict(.memory, in: &turn)
        }
    }

    private func emit(_ held: [Frame], in turn: inout Turn) {
        for frame in held {
            self.orderedBytes -= frame.payload.storageCapacity
            self.emit(frame, in: &turn)
        }
    }

    /// Sends a frame at once.
    func emit(_ frame: consuming Frame, in turn: inout Turn) {
        if let pieces = self.pieces, frame.payload.readableBytes > StreamFrames.maximumPieceLength {
            return pieces.sendInPieces(frame, in: &turn)
        }
        if self.mayEmit(frame, in: &turn) { self.link.send(frame, in: &turn) }
    }

    /// Returns whether a frame, or a piece of one, can be sent in the client's format. If not, it is counted, or the
    /// client is notified.
    func mayEmit(_ frame: Frame, in turn: inout Turn) -> Bool {
        guard frame.status == .ok || self.listener.format.hasStatus else {
            // Sent without its status it would look like success. The client's timeout reveals the failure.
            self.counts.count(.errorsNotSent)
            return false
        }
        return self.listener.isStandard || self.isEncodable(frame, in: &turn)
    }

    /// Returns whether the format can encode an answer, which only a codec may refuse. If it refuses, the client is
    /// notified that the request failed, if that is possible.
    private func isEncodable(_ frame: Frame, in turn: inout Turn) -> Bool {
        guard let refusal = self.listener.encoder.refusal(of: frame) else { return true }
        self.peer.log("an answer cannot be encoded", "\(refusal)")
        let failure = Frame(type: frame.type, serial: frame.serial, status: .unknown)
        if self.listener.format.hasStatus, self.listener.encoder.refusal(of: failure) == nil {
            self.link.send(failure, in: &turn)
        } else {
            self.counts.count(.errorsNotSent)
        }
        return false
    }

    // MARK: Pushes

    /// Sends a push, or queues it if the client is slow.
    ///
    /// - Returns: Whether it was accepted.
    func push(_ push: SharedPush, in turn: inout Turn) -> Bool {
        let encoded =
            switch push {
            case .one(let type, let body): self.listener.push(type: type, body: body.buffer)
            case .encoded(let pushes): pushes[self.listener.index]
            }
        guard let encoded, self.link.phase == .open, self.link.context != nil else { return false }
        // It waits for a slow client, not for what this turn has sent.
        if self.link.isWritable, !self.link.canSend { self.link.flush(in: &turn) }
        if self.link.canSend, self.pushes.isEmpty, self.link.channelBytes == 0, self.pieces?.isPushing != true {
            self.beginPush(encoded, in: &turn)
        } else if self.peer.parts.books.ledger.isFull || !self.pushes.append(encoded) {
            self.counts.count(.pushesDropped)
            self.peer.takeCounts()
            if self.peer.parts.rules.limits.slowClients == .disconnect { self.peer.evict(.slowClient, in: &turn) }
            return false
        } else {
            // A push that is sent in pieces is followed by the others.
            self.link.reportsRoom = true
            self.link.flushOnceWritten()
            self.settle()
        }
        self.counts.count(.pushesSent)
        self.peer.takeCounts()
        return true
    }

    /// Sends a push, in pieces where it is long and streams are agreed on.
    private func beginPush(_ push: PushQueue.Push, in turn: inout Turn) {
        guard let pieces = self.pieces, let frame = push.frame else {
            return self.link.send(encoded: push.bytes.buffer, in: &turn)
        }
        pieces.push(frame, in: &turn)
    }

    // MARK: Room

    /// Whether the link reports room, for what waits here.
    var wantsRoom: Bool { !self.pushes.isEmpty }

    /// Sends the waiting pushes as long as the client accepts them, and checks from time to time how much it has not
    /// taken.
    func hasRoom(in turn: inout Turn) -> Bool {
        if !self.pushes.isEmpty {
            var isMore = false
            while self.link.canSend, self.pieces?.isPushing != true, let push = self.pushes.popFirst() {
                self.beginPush(push, in: &turn)
                isMore = true
            }
            self.link.reportsRoom = !self.pushes.isEmpty || self.pieces?.wantsRoom == true
            self.settle()
            if isMore { return true }
        }
        if let pieces = self.pieces, pieces.hasRoom(in: &turn) { return true }
        let sent = self.link.traffic.bytesSent - self.bytesSent
        if sent >= LinkChannel.uncheckedBytes || !self.link.isWritable { self.checkHeldBytes(in: &turn) }
        return false
    }

    /// The number of bytes that the client has not taken yet.
    var waitingBytes: Int {
        self.link.unwrittenBytes + self.pushes.bytes + self.orderCost + self.link.knownChannelBytes
            + (self.pieces?.waitingBytes ?? 0)
    }

    /// Charges what is held, and closes a client that has not taken too much.
    private func checkHeldBytes(in turn: inout Turn) {
        self.link.settleNow()
        self.bytesSent = self.link.traffic.bytesSent
        if self.waitingBytes > self.peer.parts.rules.limits.maximumBufferedBytesPerConnection {
            self.peer.evict(.memory, in: &turn)
        }
    }

    /// Charges the answers in order and the pushes that wait here. The link charges what is being sent.
    private func settle() { self.hold.change(to: self.orderCost + self.pushes.cost) }
}
