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
    package var core: StreamCore
    private var isDraining = false

    package init(_ settings: StreamSettings = StreamSettings()) {
        self.core = StreamCore(.server, settings)
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
        guard !self.core.isClosed else { return true }
        let type = frame.type & ~FrameType.allFlags
        if FrameType.control.contains(type) { return self.receiveControl(frame, type, isDamaged: isDamaged, now: now) }
        if let key = self.core.find(frame.serial) {
            self.core.fail(key, isDamaged ? .damaged : .violated(.serialInUse))
            self.core.noteGoingOn()
            return true
        }
        guard frame.type & FrameType.continuesFlag != 0 || self.core.assembler.has(frame.serial) else { return false }
        self.core.receivedPiece(frame, isDamaged: isDamaged)
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
            self.core.receivedItem(frame, isDamaged: isDamaged, now: now)
            self.core.noteGoingOn()
        case FrameType.credit where frame.type == type:
            if isDamaged { self.core.unproductiveFrames += 1 } else { self.core.receivedCredit(frame, now: now) }
        case FrameType.end where frame.type == type:
            if isDamaged { self.core.unproductiveFrames += 1 } else { self.receivedEnd(frame.serial) }
        default: return false
        }
        return true
    }

    private mutating func receivedEnd(_ serial: UInt32) {
        guard let key = self.core.find(serial), let stream = self.core.streams[key], !stream.hasInputEnded,
            !stream.hasOutputEnded
        else {
            self.core.unproductiveFrames += 1
            return
        }
        guard stream.assembly == nil else {
            self.core.fail(key, .violated(.endWithinItem))
            return self.core.noteGoingOn()
        }
        self.core.streams.with(key) { $0.hasInputEnded = true }
        self.core.actions.append(.itemsEnded(StreamID(key: key)))
    }

    /// Handles a cancel.
    ///
    /// - Returns: Whether it ended a stream, or an incomplete payload.
    package mutating func cancelled(serial: UInt32) -> Bool {
        guard !self.core.isClosed else { return true }
        let wasUnfinished = self.core.assembler.forget(serial)
        // An answer that was not sent is no longer needed; pushes are not answers.
        if self.core.settings.format.layout.requestSerials.contains(serial) {
            _ = self.core.scheduler.dropPlain(serial: serial)
        }
        let key = self.core.find(serial)
        if let key { self.core.finish(key, .cancelled) }
        self.core.noteGoingOn()
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
        return .opened(self.core.enter(type: type, serial: serial, kind: kind, priority: priority, now: now))
    }

    /// The reason why no stream may be opened; nil if one may.
    ///
    /// - Parameters:
    ///   - hasBody: Whether there is anything after the opening's metadata.
    ///   - hasKey: Whether the opening has an idempotency key.
    package func objection(toOpen kind: StreamKind, hasBody: Bool, hasKey: Bool) -> Objection? {
        if self.isDraining { return .draining }
        if kind.clientStreams && hasBody || hasKey { return .malformed }
        return self.core.openCount < Int(self.core.settings.terms.maximumStreams) ? nil : .tooMany
    }

    /// The client sends nothing more: streams whose items had not ended are over, without an answer.
    package mutating func inputClosed() {
        for (_, key) in self.core.open.sorted(by: { $0.key < $1.key })
        where self.core.streams[key].map({ !$0.hasInputEnded && !$0.hasOutputEnded }) ?? false {
            self.core.finish(key, .inputClosed)
        }
        self.core.assembler.removeAll()
        self.core.noteGoingOn()
    }

    /// No credit can arrive, and nothing may be sent: streams with waiting items are over, without an answer.
    package mutating func endStarved() {
        for (_, key) in self.core.open.sorted(by: { $0.key < $1.key })
        where self.core.streams[key].map({ self.core.scheduler.hasWaiting($0.lane) }) ?? false {
            self.core.finish(key, .inputClosed)
        }
        self.core.noteGoingOn()
    }

    /// Sets the limits of payloads and of received bytes, and the flags of items, from now on; received payloads stay.
    package mutating func accept(payloadsUpTo length: Int, holding bytes: Int, flags: UInt32) {
        self.core.accept(payloadsUpTo: length, holding: bytes, flags: flags)
    }

    // MARK: What the application does

    /// Sends an item. Only one is sent at a time: the next may follow if the result allows it, or after
    /// ``StreamAction/goOn(_:)``.
    package mutating func send(_ id: StreamID, _ payload: ByteBuffer, isCompressed: Bool = false) -> SendResult {
        guard let type = self.core.streams.with(id.key, { $0.type }) else { return .over }
        let flags = isCompressed ? FrameType.compressionFlag : 0
        return self.core.send(id, type: type | flags, status: .partial, payload)
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
        guard let type = self.core.streams[id.key]?.type else { return }
        let status = status == .partial ? .unknown : status
        self.core.answer(id, LanePayload(type: type | flags, status: status, kind: .last, bytes: payload))
        self.core.noteGoingOn()
    }

    /// Ends a stream by a status, without the items that wait: an item that cannot be decompressed, a deadline.
    package mutating func fail(_ id: StreamID, _ status: Status) {
        self.core.fail(id.key, .failed(status))
        self.core.noteGoingOn()
    }

    /// Detaches the payloads that wait to be sent from the reads, or the longer bodies, that they are slices of: the
    /// client does not take them for now.
    package mutating func detachWaiting() {
        if self.core.scheduler.waitingCount > 0 { self.core.scheduler.detachWaiting() }
    }

    // MARK: Draining

    /// Refuses openings from now on; open streams continue.
    package mutating func drain() { self.isDraining = true }

    /// Ends all open streams, because the grace period of a drain is over.
    package mutating func endPatience() {
        for (_, key) in self.core.open.sorted(by: { $0.key < $1.key }) { self.core.fail(key, .drained) }
        self.core.noteGoingOn()
    }

    // MARK: To the shell

    /// Returns the number of unproductive frames since the last call.
    package mutating func takeUnproductiveFrames() -> Int {
        defer { self.core.unproductiveFrames = 0 }
        return self.core.unproductiveFrames
    }

    /// The memory of what was received and is held, and of what waits to be sent, in bytes.
    package var cost: Int { Int(clamping: self.core.heldMemory) + self.core.scheduler.waitingBytes }

    /// The number of bytes that wait only for the socket, and for no credit.
    package var waitingPlainBytes: Int { self.core.scheduler.waitingBytes - self.core.scheduler.waitingItemBytes }
}
