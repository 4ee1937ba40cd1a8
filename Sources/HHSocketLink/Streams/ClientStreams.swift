// SPDX-License-Identifier: Apache-2.0
import DequeModule
import NIOCore

/// The client's streams on one connection, and its payloads in pieces. Does no I/O.
///
/// The shell passes each frame to ``receive(_:isDamaged:isAwaited:now:)`` and handles those that it does not accept,
/// pulls frames with ``next(now:)`` while the socket accepts more, and performs the actions of ``nextAction()`` after
/// each call. It calls ``timePassed(now:)`` at ``nextDeadline``.
package struct ClientStreams: StreamMachine, ~Copyable {
    package var table: StreamTable

    package init(_ settings: StreamSettings = StreamSettings()) {
        self.table = StreamTable(.client, settings)
    }

    // MARK: What the application does

    /// Whether one more stream may be opened. If not, one may be opened when the next stream has ended.
    package var canOpen: Bool {
        !self.table.isClosed && self.table.openCount < Int(self.table.settings.terms.maximumStreams)
    }

    /// Opens a stream.
    ///
    /// - Parameters:
    ///   - type: The type of the call, with the flags of the opening.
    ///   - serial: A free one.
    ///   - payload: The payload of the opening: metadata, and the one message where the client streams none.
    package mutating func open(
        type: UInt32,
        serial: UInt32,
        payload: ByteBuffer = ByteBuffer(),
        kind: StreamKind,
        priority: FramePriority = .default,
        now: NIODeadline
    ) -> StreamID {
        let id = self.table.enter(
            type: type & ~FrameType.allFlags,
            serial: serial,
            kind: kind,
            priority: priority,
            now: now
        )
        if let lane = self.table.streams[id.key]?.lane {
            self.table.scheduler.append(LanePayload(type: type, kind: .free, bytes: payload), to: lane)
        }
        return id
    }

    /// Sends an item. Only one is sent at a time: the next may follow if the result allows it, or after
    /// ``StreamAction/unblock(_:)``.
    package mutating func send(_ id: StreamID, _ payload: ByteBuffer, isCompressed: Bool = false) -> SendResult {
        let type = isCompressed ? FrameType.item | FrameType.compressionFlag : FrameType.item
        return self.table.send(id, type: type, status: .ok, payload)
    }

    /// Whether items may be sent: not before the sending of the opening has begun, so that the stream can still be
    /// opened on another connection.
    package mutating func takesItems(_ id: StreamID) -> Bool { self.table.streams.with(id.key) { $0.hasLeft } ?? false }

    /// Sends the end of the items, after those that wait.
    package mutating func finish(_ id: StreamID) {
        guard let stream = self.table.streams[id.key], !stream.isOver, !stream.hasOutputEnded else { return }
        self.table.streams.with(id.key) { $0.hasOutputEnded = true }
        self.table.scheduler.append(LanePayload(type: FrameType.end, kind: .end), to: stream.lane)
    }

    /// Cancels a stream that the application, or its deadline, abandons.
    package mutating func cancel(_ id: StreamID) {
        self.table.fail(id.key, .cancelled)
        // An ended stream may have items that are no longer needed.
        self.table.release(id.key)
        self.table.unblockSenders()
    }

    /// Ends a stream by an error of this side, such as an item that cannot be decompressed. Items before it are still
    /// the application's.
    package mutating func fail(_ id: StreamID, _ outcome: StreamOutcome) {
        self.table.fail(id.key, outcome)
        self.table.unblockSenders()
    }

    // MARK: Plain calls

    /// A plain call has ended: it was cancelled, or answered.
    ///
    /// - Returns: The progress of its request. After ``StreamScheduler/Dropped/halfway`` a cancel
    ///   must be sent to the server.
    package mutating func dropPlain(serial: UInt32) -> StreamScheduler.Dropped {
        self.table.assembler.forget(serial)
        let dropped = self.table.scheduler.dropPlain(serial: serial)
        self.table.unblockSenders()
        return dropped
    }

    // MARK: From the wire

    package mutating func receive(
        _ frame: borrowing ArrivedFrame,
        isDamaged: Bool = false,
        isAwaited: Bool,
        now: NIODeadline
    ) -> Bool {
        guard !self.table.isClosed else { return true }
        let type = frame.type & ~FrameType.allFlags
        if FrameType.control.contains(type) {
            guard type == FrameType.credit, frame.type == type else { return false }
            if !isDamaged { self.table.receivedCredit(frame, now: now) }
            return true
        }
        if let key = self.table.find(frame.serial) {
            if frame.status == .partial {
                self.table.receivedItem(frame, isDamaged: isDamaged, now: now)
            } else {
                self.table.receivedAnswer(frame, of: key, isDamaged: isDamaged, now: now)
            }
            self.table.unblockSenders()
            return true
        }
        if frame.status == .partial {
            // An item of an ended stream; or of a plain call, which it fails.
            self.table.receivedItem(frame, isDamaged: isDamaged, now: now)
            return !isAwaited
        }
        guard frame.type & FrameType.continuesFlag != 0 || self.table.assembler.has(frame.serial) else { return false }
        if isAwaited { self.table.receivedPiece(frame, isDamaged: isDamaged) }
        return true
    }

    // MARK: To the shell

    /// The cost of a stream's items that were sent and received so far; nil once it has ended.
    package func traffic(_ id: StreamID) -> (sent: UInt64, received: UInt64)? {
        guard let stream = self.table.streams[id.key], !stream.isOver else { return nil }
        return (self.table.scheduler.sent(stream.lane), stream.window.received)
    }

    /// The number of received bytes of a plain call's incomplete answer.
    package mutating func gatheredBytes(_ serial: UInt32) -> Int { self.table.assembler.gatheredBytes(serial) }
}
