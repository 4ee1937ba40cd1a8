// SPDX-License-Identifier: Apache-2.0
package import NIOCore

/// The decisions of one end of a connection's streams, as far as an open stream needs them.
package protocol ItemMachine: ~Copyable {
    mutating func send(_ id: StreamID, _ payload: ByteBuffer, isCompressed: Bool) -> SendResult
    mutating func took(_ id: StreamID, _ receipt: ItemReceipt, now: NIODeadline)
    func allowance(_ id: StreamID) -> UInt64
}

/// The decisions of one end of a connection's streams: ``ClientStreams`` and ``ServerStreams``. Does no I/O.
package protocol StreamMachine: ItemMachine, ~Copyable {
    /// The state that both ends have.
    var table: StreamTable { get set }

    /// Handles a frame.
    ///
    /// - Parameters:
    ///   - isDamaged: Whether its checksum is wrong.
    ///   - isAwaited: At a client, whether it is a push, or its serial is that of a plain call in flight.
    /// - Returns: Whether it belonged to streams or pieces. The shell handles all others.
    mutating func receive(_ frame: borrowing ArrivedFrame, isDamaged: Bool, isAwaited: Bool, now: NIODeadline) -> Bool
    /// Whether items may be sent on a stream.
    mutating func takesItems(_ id: StreamID) -> Bool
    /// Ends this side's items, after those that wait.
    mutating func finish(_ id: StreamID)
}

extension StreamMachine where Self: ~Copyable {
    // MARK: What the application does

    /// The cost of items that may be sent on a stream before a sender must wait. Other streams may use the connection's
    /// part of it meanwhile.
    package func allowance(_ id: StreamID) -> UInt64 {
        guard let lane = self.table.streams[id.key]?.sendingLane else { return 0 }
        return self.table.scheduler.allowance(lane)
    }

    /// Records that the application has taken items.
    package mutating func took(_ id: StreamID, _ receipt: ItemReceipt, now: NIODeadline) {
        self.table.took(id, receipt, now: now)
    }

    /// Grants more on a stream than hello announced, for one with many items. The window never shrinks.
    package mutating func widen(_ id: StreamID, to window: UInt64) { self.table.widen(id, to: window) }

    /// The application takes no more items of a stream, which continues.
    package mutating func release(_ id: StreamID) { self.table.release(id.key) }

    /// Sends a payload that belongs to no stream, in pieces if it is long: a request, an answer, a push.
    ///
    /// - Parameter type: Its type, with the flags of the whole payload.
    package mutating func sendPlain(
        type: UInt32,
        serial: UInt32,
        status: Status = .ok,
        payload: ByteBuffer = ByteBuffer(),
        priority: FramePriority = .default
    ) {
        self.table.scheduler.sendPlain(
            LanePayload(type: type, status: status, kind: .free, bytes: payload),
            serial: serial,
            priority: priority
        )
    }

    /// Sends the payload of a frame that belongs to no stream, in pieces if it is long.
    package mutating func sendPlain(_ frame: Frame, priority: FramePriority = .default) {
        self.sendPlain(
            type: frame.type,
            serial: frame.serial,
            status: frame.status,
            payload: frame.payload,
            priority: priority
        )
    }

    /// The connection was lost. All streams end, and waiting payloads are dropped.
    package mutating func connectionLost() { self.table.connectionLost() }

    // MARK: To the shell

    /// The next frame to send; nil if none may be sent now.
    package mutating func next(now: NIODeadline) -> Frame? { self.table.next(now: now) }

    /// Removes and returns the shell's next action.
    package mutating func nextAction() -> StreamAction? { self.table.actions.popFirst() }

    package var nextDeadline: NIODeadline? { self.table.nextDeadline }
    package mutating func timePassed(now: NIODeadline) { self.table.timePassed(now: now) }

    /// The open stream with this serial.
    package func stream(of serial: UInt32) -> StreamID? { self.table.stream(of: serial) }

    /// The number of streams that are open.
    package var openCount: Int { self.table.openCount }
    /// The number of streams that are open, or have items that the application has not taken.
    package var count: Int { self.table.streams.count }
    /// The cost of the frames that were received and are held.
    package var heldBytes: UInt64 { self.table.heldBytes }
    /// The memory of these frames, in bytes.
    package var heldMemory: UInt64 { self.table.heldMemory }
    /// The number of bytes that wait to be sent.
    package var waitingBytes: Int { self.table.scheduler.waitingBytes }
    /// Whether a frame without a flag may be the last piece of a payload that belongs to no stream.
    package var awaitsPieces: Bool { !self.table.assembler.isEmpty }
    /// Whether there is no stream, no incomplete payload, and nothing to send or to do.
    package var isQuiet: Bool { self.table.isQuiet }
    /// Whether there is an incomplete payload, so that the read-stall timeout applies.
    package var hasUnfinished: Bool { self.table.hasUnfinished }
    /// The credit for items that this side sends.
    package var sendWindow: SendWindow { self.table.scheduler.connection }
    /// The window of items that this side receives.
    package var receiveWindow: ReceiveWindow { self.table.connection }
    /// The number of slots that waiting payloads occupy, including stubs.
    package var occupiedSlots: Int { self.table.occupiedSlots }
}
