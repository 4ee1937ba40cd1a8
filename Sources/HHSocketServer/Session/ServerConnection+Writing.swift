// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// Frames that are sent to the client.
extension ServerConnection {
    /// Sends an answer, when it is its turn.
    ///
    /// - Parameter run: The request's number; nil: the frame answers none.
    func answer(_ frame: consuming Frame, _ run: UInt64?, in turn: inout Turn) {
        guard let run, let isNext = self.line.order?.isNext(run) else { return self.emit(frame, in: &turn) }
        if !isNext { frame.payload = frame.payload.detached }
        self.line.payloadBytes += frame.payload.storageCapacity
        self.emit(self.line.order?.answer(run, frame) ?? [], in: &turn)
        self.checkOrder(in: &turn)
    }

    func checkOrder(in turn: inout Turn) {
        if self.line.bytes > self.core.limits.maximumBufferedBytesPerConnection { self.evict(.memory, in: &turn) }
    }

    func emit(_ held: [Frame], in turn: inout Turn) {
        for frame in held {
            self.line.payloadBytes -= frame.payload.storageCapacity
            self.emit(frame, in: &turn)
        }
    }

    func emit(_ frame: consuming Frame, in turn: inout Turn) {
        guard frame.status == .ok || self.listener.format.hasStatus else {
            // Sent without its status it would look like success. The client's timeout reveals the failure.
            self.hot.machine.statistics.errorsNotSent += 1
            return
        }
        if self.streams != nil, self.sendInPieces(frame, in: &turn) { return }
        guard self.listener.isStandard || self.isEncodable(frame, in: &turn) else { return }
        self.link.send(frame, in: &turn)
    }

    /// Returns whether the format can encode an answer, which only a codec may refuse. If it refuses, the client is
    /// notified that the request failed, if that is possible.
    private func isEncodable(_ frame: Frame, in turn: inout Turn) -> Bool {
        guard let refusal = self.listener.encoder.refusal(of: frame) else { return true }
        self.log("an answer cannot be encoded", "\(refusal)")
        let failure = Frame(type: frame.type, serial: frame.serial, status: .unknown)
        if self.listener.format.hasStatus, self.listener.encoder.refusal(of: failure) == nil {
            self.link.send(failure, in: &turn)
        } else {
            self.hot.machine.statistics.errorsNotSent += 1
        }
        return false
    }

    // MARK: Pushes

    func push(type: UInt32, body: ByteBuffer, in turn: inout Turn) -> Bool {
        guard let push = self.listener.push(type: type, body: body) else { return false }
        return self.push(push, in: &turn)
    }

    /// Sends a frame that is shared with other connections, or queues it if the client is slow.
    ///
    /// - Returns: Whether it was accepted.
    func push(_ frame: PushQueue.Push, in turn: inout Turn) -> Bool {
        guard self.hot.phase == .open, self.link.context != nil else { return false }
        // It waits for a slow client, not for what this turn has sent.
        if self.link.isWritable, !self.link.canSend { self.link.flush(in: &turn) }
        if self.link.canSend, self.pushes.isEmpty, self.link.channelBytes == 0, !(self.streams?.isPushing ?? false) {
            self.begin(frame, in: &turn)
        } else if self.core.ledger.isFull || !self.pushes.append(frame) {
            self.hot.machine.statistics.pushesDropped += 1
            self.takeStatistics()
            if self.core.limits.slowClients == .disconnect { self.evict(.slowClient, in: &turn) }
            return false
        } else {
            // A push that is sent in pieces is followed by the others.
            self.link.tellsOfRoom = true
            self.link.flushOnceWritten()
            self.account()
        }
        self.hot.machine.statistics.pushesSent += 1
        self.takeStatistics()
        return true
    }

    /// Sends a push, in pieces where it is long and streams are agreed on.
    private func begin(_ push: PushQueue.Push, in turn: inout Turn) {
        guard let streams = self.streams, let frame = push.frame else {
            return self.link.send(encoded: push.bytes, in: &turn)
        }
        streams.isPushing = true
        streams.machine.sendPlain(type: frame.type, serial: frame.serial, status: frame.status, payload: frame.payload)
        self.sendFramesOfStreams(streams, in: &turn)
        self.noteWaiting()
    }

    /// Sends the waiting pushes as long as the client accepts them, and checks from time to time how much it has not
    /// taken.
    func hasRoom(in turn: inout Turn) -> Bool {
        guard self.hot.phase == .open else { return false }
        if !self.pushes.isEmpty {
            var isMore = false
            while self.link.canSend, !(self.streams?.isPushing ?? false), let frame = self.pushes.popFirst() {
                self.begin(frame, in: &turn)
                isMore = true
            }
            self.link.tellsOfRoom = !self.pushes.isEmpty || self.streams?.wantsRoom ?? false
            if isMore { return true }
        }
        if let streams = self.streams, self.streamsHaveRoom(streams, in: &turn) { return true }
        let sent = self.link.traffic.bytesSent - self.hot.accounting.bytesSent
        if sent >= LinkChannel.uncheckedBytes || !self.link.isWritable { self.checkHeldBytes(in: &turn) }
        return false
    }

    // MARK: What is held

    /// The number of bytes that the client has not taken yet.
    private var waitingBytes: Int {
        self.link.unwrittenBytes + self.pushes.bytes + self.line.bytes + self.link.knownChannelBytes
            + (self.streams?.machine.waitingBytesInPlace() ?? 0)
    }

    /// Updates the cost of what waits here.
    func noteWaiting() {
        let cost = self.streams?.cost ?? 0
        self.streams?.charged = cost
        self.hot.accounting.waiting = self.line.bytes + self.pushes.cost + cost
    }

    /// Charges what is held here: requests, answers in order, waiting pushes, and the streams' data. The link charges
    /// what is being received and sent.
    @inline(__always)
    func account() {
        let held = self.hot.machine.bodyBytes + self.hot.accounting.waiting
        guard held != self.hot.accounting.bytes else { return }
        self.load.held(held - self.hot.accounting.bytes)
        self.hot.accounting.bytes = held
    }

    /// Charges what is held, and closes a client that has not taken too much.
    func checkHeldBytes(in turn: inout Turn) {
        self.link.settleNow()
        self.account()
        self.hot.accounting.bytesSent = self.link.traffic.bytesSent
        if self.waitingBytes > self.core.limits.maximumBufferedBytesPerConnection { self.evict(.memory, in: &turn) }
    }
}
