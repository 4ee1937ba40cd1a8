// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// The streams of one connection of a ``MockServer``, once hello has agreed on them: the credit for received items, and
/// payloads in pieces. Does no I/O.
///
/// The server takes items as they arrive, and grants the same amount again, except for streams that are stalled.
/// Nothing here depends on what a script sends, because that may be wrong.
struct MockStreams {
    /// A call that may be a stream: its opening does not say.
    private struct Call {
        /// The type of the opening.
        let type: UInt32
        /// The window of the received items; nil before the first.
        var window: ReceiveWindow?
        var isStalled = false
        /// Whether it was cancelled, or has its final answer.
        var isOver = false
    }

    /// A payload whose last piece has not arrived.
    private struct Unfinished {
        var bytes: ByteBuffer
        var count: Int
        var isCorrupt: Bool
    }

    let terms: StreamTerms
    private var connection: ReceiveWindow
    private var calls: [UInt32: Call] = [:]
    private var unfinished: [UInt32: Unfinished] = [:]

    init(_ terms: StreamTerms) {
        self.terms = terms
        self.connection = ReceiveWindow(terms.server.connection)
    }

    /// Returns the type of the opening with this serial; nil if there was none.
    func type(of serial: UInt32) -> UInt32? { self.calls[serial]?.type }

    /// Whether items and the end of them get no reaction.
    func isDeaf(to serial: UInt32) -> Bool { self.calls[serial].map { $0.isStalled || $0.isOver } ?? true }

    /// The amount that the client may have sent on a stream, as far as it was granted.
    func granted(_ serial: UInt32) -> UInt64 {
        self.calls[serial]?.window?.granted ?? UInt64(self.terms.server.stream)
    }

    // MARK: Received frames

    /// Takes a received frame, and completes it.
    ///
    /// - Returns: Whether it is complete, which a piece is not; and the credits that are due.
    mutating func receive(_ received: inout FrameWire.Received) -> (isWhole: Bool, credits: [Frame]) {
        let (type, serial) = (received.frame.type & ~FrameType.allFlags, received.frame.serial)
        var credits =
            type == FrameType.item ? self.grant(StreamFrames.cost(received.body.readableBytes), on: serial) : []
        let isWhole = self.join(&received)
        if FrameType.control.contains(type) {
            received.streamType = self.calls[serial]?.type
            if type == FrameType.cancel { credits += self.end(serial) }
        } else if isWhole {
            self.calls[serial] = Call(type: type)
        }
        return (isWhole, credits)
    }

    private mutating func grant(_ cost: UInt64, on serial: UInt32) -> [Frame] {
        // Bytes beyond the window remain a matter between the client and its test.
        _ = self.connection.receive(cost)
        var credits: [Frame] = []
        if let call = self.calls[serial], !call.isOver {
            var window = call.window ?? ReceiveWindow(self.terms.server.stream)
            _ = window.receive(cost)
            defer { self.calls[serial]?.window = window }
            guard !call.isStalled else { return [] }
            window.take(cost)
            if let credit = window.grant() { credits.append(StreamFrames.credit(serial: serial, credit)) }
        }
        return credits + self.take(cost)
    }

    private mutating func take(_ cost: UInt64) -> [Frame] {
        self.connection.take(cost)
        return self.connection.grant().map { [StreamFrames.credit(serial: FrameSerial.connectionCredit, $0)] } ?? []
    }

    /// Joins a payload's pieces.
    ///
    /// - Returns: False for all but the last.
    private mutating func join(_ received: inout FrameWire.Received) -> Bool {
        let (serial, frame) = (received.frame.serial, received.frame)
        var whole = self.unfinished[serial] ?? Unfinished(bytes: ByteBuffer(), count: 0, isCorrupt: false)
        guard frame.type & FrameType.continuesFlag == 0 else {
            whole.bytes.writeImmutableBuffer(frame.payload)
            whole.count += 1
            whole.isCorrupt = whole.isCorrupt || received.isCorrupt
            self.unfinished[serial] = whole
            return false
        }
        // A credit, a cancel or the end of the items is not a piece of the unfinished payload.
        let type = frame.type & ~FrameType.allFlags
        guard whole.count > 0, type == FrameType.item || !FrameType.control.contains(type) else { return true }
        self.unfinished[serial] = nil
        whole.bytes.writeImmutableBuffer(frame.payload)
        received.frame.payload = whole.bytes
        received.pieces = whole.count + 1
        received.isCorrupt = received.isCorrupt || whole.isCorrupt
        return true
    }

    // MARK: What scripts do

    /// Ends a stream whose final answer is sent, or that the client has cancelled: untaken items of a stalled stream
    /// are dropped.
    ///
    /// - Returns: The credits that are due.
    mutating func end(_ serial: UInt32) -> [Frame] {
        self.unfinished[serial] = nil
        guard let call = self.calls[serial], !call.isOver else { return [] }
        self.calls[serial]?.isOver = true
        return self.take(call.window?.untaken ?? 0)
    }

    /// Stops taking items of a stream.
    mutating func stall(_ serial: UInt32) { self.calls[serial]?.isStalled = true }

    /// A payload that costs one more than a window, regardless of earlier grants: it is more than the client has
    /// granted.
    static func excess(_ window: UInt32) -> ByteBuffer {
        ByteBuffer(repeating: UInt8(ascii: "x"), count: Int(window) + 1 - min(Int(window), Int(StreamFrames.overhead)))
    }
}
