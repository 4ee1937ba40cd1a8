// SPDX-License-Identifier: Apache-2.0
import DequeModule
import NIOCore

/// A server's streams on one connection, and its payloads in pieces. Does no I/O.
///
/// The shell passes each frame to ``receive(_:isDamaged:isAwaited:now:)`` and handles those that it does not accept,
/// and passes each cancel. It opens a request of a stream's type with
/// ``open(type:serial:kind:hasBody:hasKey:priority:now:)``. It pulls frames with ``next(now:)`` while the socket
/// accepts more, and performs the actions of ``nextAction()`` after each call. It calls ``timePassed(now:)`` at
/// ``nextDeadline``.
package struct ServerStreams: StreamMachine, ~Copyable {
    package var table: StreamTable
    private var isDraining = false

    package init(_ settings: StreamSettings = StreamSettings()) {
        self.table = StreamTable(.server, settings)
    }

    /// The result of an opening.
    package enum Opening: Hashable, Sendable {
        case opened(StreamID)
        /// It is answered with this status.
        case refused(Status)
    }

    /// The reason why a stream is not opened.
    package enum Objection: Hashable, Sendable {
        case draining
        /// The opening has a body where the client streams, or an idempotency key.
        case malformed
        /// The limit of open streams was reached.
        case tooMany

        /// The status that the opening is answered with.
        package var status: Status {
            switch self {
            case .draining: .draining
            case .malformed: .illegalFormat
            case .tooMany: .overloaded
            }
        }
    }

    // MARK: From the wire

    package mutating func receive(
        _ frame: borrowing ArrivedFrame,
        isDamaged: Bool = false,
        isAwaited: Bool = true,
        now: NIODeadline
    ) -> Bool {
        guard !self.table.isClosed else { return true }
        let type = frame.type & ~FrameType.allFlags
        if FrameType.control.contains(type) { return self.receiveControl(frame, type, isDamaged: isDamaged, now: now) }
        if let key = self.table.find(frame.serial) {
            self.table.fail(key, isDamaged ? .damaged : .violated(.serialInUse))
            self.table.unblockSenders()
            return true
        }
        guard frame.type & FrameType.continuesFlag != 0 || self.table.assembler.has(frame.serial) else { return false }
        self.table.receivedPiece(frame, isDamaged: isDamaged)
        return true
    }

    private mutating func receiveControl(
        _ frame: borrowing ArrivedFrame,
        _ type: UInt32,
        isDamaged: Bool,
        now: NIODeadline
    ) -> Bool {
        switch type {
        case FrameType.item:
            self.table.receivedItem(frame, isDamaged: isDamaged, now: now)
            self.table.unblockSenders()
        case FrameType.credit where frame.type == type:
            if isDamaged { self.table.unproductiveFrames += 1 } else { self.table.receivedCredit(frame, now: now) }
        case FrameType.end where frame.type == type:
            if isDamaged { self.table.unproductiveFrames += 1 } else { self.receivedEnd(frame.serial) }
        default: return false
        }
        return true
    }

    private mutating func receivedEnd(_ serial: UInt32) {
        guard let key = self.table.find(serial), let stream = self.table.streams[key], !stream.hasInputEnded,
            !stream.hasOutputEnded
        else {
            self.table.unproductiveFrames += 1
            return
        }
        guard stream.assembly == nil else {
            self.table.fail(key, .violated(.endWithinItem))
            return self.table.unblockSenders()
        }
        self.table.streams.with(key) { $0.hasInputEnded = true }
        self.table.actions.append(.itemsEnded(StreamID(key: key)))
    }

    /// Handles a cancel.
    ///
    /// - Returns: Whether it ended a stream, or an incomplete payload.
    package mutating func cancelled(serial: UInt32) -> Bool {
        guard !self.table.isClosed else { return true }
        let wasUnfinished = self.table.assembler.forget(serial)
        // An answer that was not sent is no longer needed; pushes are not answers.
        if self.table.settings.format.layout.requestSerials.contains(serial) {
            _ = self.table.scheduler.dropPlain(serial: serial)
        }
        let key = self.table.find(serial)
        if let key { self.table.finish(key, .cancelled) }
        self.table.unblockSenders()
        return wasUnfinished || key != nil
    }

    /// Handles a request of a stream's type.
    ///
    /// - Parameters:
    ///   - type: Its type, without flags.
    ///   - hasBody: Whether there is anything after the metadata.
    ///   - hasKey: Whether it has an idempotency key.
    package mutating func open(
        type: UInt32,
        serial: UInt32,
        kind: StreamKind,
        hasBody: Bool,
        hasKey: Bool = false,
        priority: FramePriority = .default,
        now: NIODeadline
    ) -> Opening {
        if let objection = self.objection(toOpen: kind, hasBody: hasBody, hasKey: hasKey) {
            self.sendPlain(type: type, serial: serial, status: objection.status, priority: priority)
            return .refused(objection.status)
        }
        return .opened(self.table.enter(type: type, serial: serial, kind: kind, priority: priority, now: now))
    }

    /// The reason why no stream may be opened; nil if one may.
    ///
    /// - Parameters:
    ///   - hasBody: Whether there is anything after the opening's metadata.
    ///   - hasKey: Whether the opening has an idempotency key.
    package func objection(toOpen kind: StreamKind, hasBody: Bool, hasKey: Bool) -> Objection? {
        if self.isDraining { return .draining }
        if kind.clientStreams && hasBody || hasKey { return .malformed }
        return self.table.openCount < Int(self.table.settings.terms.maximumStreams) ? nil : .tooMany
    }

    /// The client sends nothing more: streams whose items had not ended are over, without an answer.
    package mutating func inputClosed() {
        for (_, key) in self.table.open.sorted(by: { $0.key < $1.key })
        where self.table.streams[key].map({ !$0.hasInputEnded && !$0.hasOutputEnded }) ?? false {
            self.table.finish(key, .inputClosed)
        }
        self.table.assembler.removeAll()
        self.table.unblockSenders()
    }

    /// No credit can arrive, and nothing may be sent: streams with waiting items are over, without an answer.
    package mutating func endStarved() {
        for (_, key) in self.table.open.sorted(by: { $0.key < $1.key })
        where self.table.streams[key].map({ self.table.scheduler.hasWaiting($0.lane) }) ?? false {
            self.table.finish(key, .inputClosed)
        }
        self.table.unblockSenders()
    }

    /// Sets the limits of payloads and of received bytes, and the flags of items, from now on; received payloads stay.
    package mutating func accept(payloadsUpTo length: Int, holding bytes: Int, flags: UInt32) {
        self.table.accept(payloadsUpTo: length, holding: bytes, flags: flags)
    }

    // MARK: What the application does

    /// Sends an item. Only one is sent at a time: the next may follow if the result allows it, or after
    /// ``StreamAction/unblock(_:)``.
    package mutating func send(_ id: StreamID, _ payload: ByteBuffer, isCompressed: Bool = false) -> SendResult {
        guard let type = self.table.streams.with(id.key, { $0.type }) else { return .over }
        let flags = isCompressed ? FrameType.compressionFlag : 0
        return self.table.send(id, type: type | flags, status: .partial, payload)
    }

    /// Whether items may be sent: at a server always.
    package func takesItems(_: StreamID) -> Bool { true }

    /// Of no effect: a server's items end with its answer.
    package func finish(_: StreamID) {}

    /// Answers a stream, after the items that wait. Items of the client are dropped from now on.
    ///
    /// - Parameters:
    ///   - status: Any but ``Status/partial``, which no answer has.
    ///   - flags: The flags of the payload.
    package mutating func answer(
        _ id: StreamID,
        status: Status = .ok,
        flags: UInt32 = 0,
        payload: ByteBuffer = ByteBuffer()
    ) {
        guard let type = self.table.streams[id.key]?.type else { return }
        let status = status == .partial ? .unknown : status
        self.table.answer(id, LanePayload(type: type | flags, status: status, kind: .last, bytes: payload))
        self.table.unblockSenders()
    }

    /// Ends a stream by a status, without the items that wait: an item that cannot be decompressed, a deadline.
    package mutating func fail(_ id: StreamID, _ status: Status) {
        self.table.fail(id.key, .failed(status))
        self.table.unblockSenders()
    }

    /// Detaches the payloads that wait to be sent from the reads, or the longer bodies, that they are slices of: the
    /// client does not take them for now.
    package mutating func detachWaiting() {
        if self.table.scheduler.waitingCount > 0 { self.table.scheduler.detachWaiting() }
    }

    // MARK: Draining

    /// Refuses openings from now on; open streams continue.
    package mutating func drain() { self.isDraining = true }

    /// Ends all open streams, because the grace period of a drain is over.
    package mutating func endPatience() {
        for (_, key) in self.table.open.sorted(by: { $0.key < $1.key }) { self.table.fail(key, .drained) }
        self.table.unblockSenders()
    }

    // MARK: To the shell

    /// Returns the number of unproductive frames since the last call.
    package mutating func takeUnproductiveFrames() -> Int {
        defer { self.table.unproductiveFrames = 0 }
        return self.table.unproductiveFrames
    }

    /// The memory of what was received and is held, and of what waits to be sent, in bytes.
    package var cost: Int { Int(clamping: self.table.heldMemory) + self.table.scheduler.waitingBytes }

    /// The number of bytes that wait only for the socket, and for no credit.
    package var waitingPlainBytes: Int { self.table.scheduler.waitingBytes - self.table.scheduler.waitingItemBytes }
}
