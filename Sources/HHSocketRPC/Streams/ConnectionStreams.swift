// SPDX-License-Identifier: Apache-2.0
import DequeModule
import HHSocket
import NIOCore

/// The streams of one connection of a client, and its payloads in pieces: performs the decisions of
/// ``/HHSocket/ClientStreams``. On the socket thread.
final class ConnectionStreams {
    /// A stream that is open.
    private struct Open {
        let call: StreamCall
        let serial: UInt32
    }

    private let connection: ConnectionID
    private let link: Link<FrameLanguage>
    private let origin: SocketResponse.Origin
    private let format: WireFormat
    private let maximumQueuedBytes: Int
    private let reporter: CallReporter
    /// Outlives this object.
    private unowned let side: any StreamSide
    // Unchecked because each frame accesses it, and only on the socket thread.
    #if !DEBUG && !CHECKED_EXCLUSIVITY
    @exclusivity(unchecked)
    #endif
    private var machine: ClientStreams
    private let terms: StreamTerms
    /// The calls of the streams that are open.
    private var opens: [StreamID: Open] = [:]
    /// The open stream that received the last item.
    private var lastItem: (id: StreamID, serial: UInt32, call: StreamCall)?
    /// The streams that are open, by serial.
    private var serials: [UInt32: StreamID] = [:]
    /// The cancels of streams that carry more than their serial, by that.
    private var cancellations: [UInt32: Frame] = [:]
    /// The number of sent bytes of plain requests in pieces, by serial.
    private var plainBytes: [UInt32: Int] = [:]
    private var isPerforming = false
    /// Whether there may be frames to send that were not pulled.
    private var mustPull = false
    /// The streams with received items that were not delivered.
    private var arrivals: [StreamCall] = []
    private var receivedItems = 0
    private var timer: (id: SocketLoop.TimerID, deadline: NIODeadline)?

    /// The largest number of unsent bytes that the system holds. Small calls overtake bytes that wait here, but none of
    /// those in the system.
    private static let unsentBytes = 128 << 10

    init(
        _ settings: StreamSettings,
        link: Link<FrameLanguage>,
        origin: SocketResponse.Origin,
        maximumQueuedBytes: Int,
        reporter: CallReporter,
        side: any StreamSide
    ) {
        self.connection = link.id
        self.link = link
        self.origin = origin
        self.format = settings.format
        self.maximumQueuedBytes = maximumQueuedBytes
        self.reporter = reporter
        self.side = side
        self.terms = settings.terms
        self.machine = ClientStreams(settings)
        link.limitUnsentBytes(Self.unsentBytes)
    }

    // MARK: Streams

    /// Whether one more stream may be opened now.
    var canOpen: Bool { self.machine.canOpen }
    /// The number of streams that are open.
    var openCount: Int { self.machine.openCount }
    var maximumStreams: Int { Int(self.terms.maximumStreams) }

    /// Opens the stream of a call, whose attempt has this serial.
    ///
    /// - Parameters:
    ///   - sealed: The opening.
    ///   - compression: The policy for compressing the items that this side sends; nil if they are not compressed.
    ///   - cancellation: The stream's cancel; nil where it is as any other.
    func open(
        _ call: StreamCall,
        _ sealed: Envelope.Sealed,
        serial: UInt32,
        priority: FramePriority,
        compression: CompressionPolicy?,
        cancellation: Frame?,
        in turn: inout Turn
    ) {
        let id = self.machine.open(
            type: sealed.type,
            serial: serial,
            payload: sealed.payload,
            kind: call.kind,
            priority: priority,
            now: turn.now
        )
        self.opens[id] = Open(call: call, serial: serial)
        self.serials[serial] = id
        self.cancellations[serial] = cancellation
        let (quiet, most) = self.reportLimits
        call.opened(
            id,
            on: self.connection,
            at: StreamPlace(serial: serial, endpoint: self.origin.endpoint),
            compression: compression,
            quietCost: quiet,
            reportedCost: most,
            in: &turn
        )
        self.goOn(in: &turn)
    }

    /// The amounts that a reader may take without a report: at the end of a batch, and before that. The unreported
    /// items of all readers together must not stop a sender.
    private var reportLimits: (quiet: UInt64, most: UInt64) {
        let window = UInt64(self.terms.client.stream)
        let share = UInt64(self.terms.client.connection) / 4 / UInt64(max(1, self.terms.maximumStreams))
        let most = min(8_192, max(1, window / 8), max(1, share))
        return (window >= 4 * StreamFrames.maximumCost - 64 ? most : 0, most)
    }

    /// Cancels the stream of a call, which has ended or ends.
    func drop(_ call: StreamCall, in turn: inout Turn) {
        guard let id = call.flight.id else { return }
        self.machine.cancel(id)
        self.goOn(in: &turn)
    }

    /// Drops the sent and received pieces of a plain call that has ended.
    func dropPlain(serial: UInt32, in turn: inout Turn) -> StreamScheduler.Dropped {
        self.plainBytes[serial] = nil
        return self.machine.dropPlain(serial: serial)
    }

    /// Refuses a plain request where too much waits already.
    func checkRoom(for frame: Frame) throws(SocketError) {
        let limit = self.maximumQueuedBytes
        let waiting = self.machine.waitingBytes
        guard waiting == 0 || frame.payload.readableBytes <= limit - waiting else {
            throw SocketError(
                .queueFull,
                message: """
                    \(self.origin.endpoint) does not read as fast as frames are sent: no more than \(limit) bytes may wait \
                    (maximumQueuedBytes); send less at once
                    """,
                endpoint: self.origin.endpoint,
                serial: frame.serial
            )
        }
    }

    /// Sends a request in pieces.
    func send(_ frame: Frame, _ priority: FramePriority, in turn: inout Turn) {
        self.machine.sendPlain(type: frame.type, serial: frame.serial, payload: frame.payload, priority: priority)
        self.goOn(in: &turn)
    }

    /// Processes the application's changes to a stream.
    func visit(_ call: StreamCall, in turn: inout Turn) {
        guard let id = call.flight.id else { return }
        self.settle(call, id, in: &turn)
        self.goOn(in: &turn)
    }

    /// Passes the items that the application has taken, and those that it sends, to the machine.
    private func settle(_ call: StreamCall, _ id: StreamID, in turn: inout Turn) {
        let settled = call.settle(id, &self.machine, in: &turn)
        if settled.count > 0 {
            call.flight.hasMoved = true
            if self.opens[id] != nil { call.flight.sentBytes += settled.bytes }
            self.reporter.count(\.sentItems, by: settled.count)
        }
        guard settled.isFinished, !call.flight.isFinished else { return }
        call.flight.isFinished = true
        self.machine.finish(id)
    }

    /// Allows the server to send this amount before the application has taken it, if it is more than the window of
    /// hello.
    func widen(_ call: StreamCall, to window: UInt64, in turn: inout Turn) {
        guard let id = call.flight.id else { return }
        self.machine.widen(id, to: window)
        self.goOn(in: &turn)
    }

    /// The application does not need the received items.
    func release(_ call: StreamCall, in turn: inout Turn) {
        guard let id = call.flight.id else { return }
        self.machine.release(id)
        self.goOn(in: &turn)
    }

    /// Fails a stream by an error of this side.
    func fail(_ call: StreamCall, _ error: SocketError, in turn: inout Turn) {
        guard let id = call.flight.id, self.opens[id] != nil else { return }
        self.side.fail(call, error, in: &turn)
    }

    // MARK: From the wire

    /// Whether a stream has this serial, or there may be an incomplete payload with it.
    func hasStreamOrPieces(of serial: UInt32) -> Bool {
        self.hasStream(of: serial) || self.machine.awaitsPieces
    }

    /// Whether an answer with this serial may end a stream, or be the last piece of a payload.
    func claims(_ serial: UInt32) -> Bool {
        self.hasStream(of: serial) || self.machine.hasUnfinished
    }

    private func hasStream(of serial: UInt32) -> Bool {
        self.lastItem?.serial == serial || !self.serials.isEmpty && self.serials[serial] != nil
    }

    /// Handles a frame.
    ///
    /// - Returns: Whether it belonged to streams or pieces. The connection handles all others.
    func receive(_ frame: borrowing ArrivedFrame, isDamaged: Bool = false, in turn: inout Turn) -> Bool {
        // Irrelevant for a stream.
        let isAwaited =
            !self.hasStream(of: frame.serial)
            && (self.format.isPush(frame) || self.side.isAwaited(frame.serial, on: self.connection))
        let isTaken = self.machine.receive(frame, isDamaged: isDamaged, isAwaited: isAwaited, now: turn.now)
        self.perform(in: &turn)
        if isTaken, isAwaited, frame.type & FrameType.continuesFlag != 0 {
            self.side.isReceiving(
                frame.serial,
                gathered: self.machine.gatheredBytes(frame.serial),
                on: self.connection,
                in: &turn
            )
        }
        return isTaken
    }

    /// The number of received bytes of a plain call's incomplete answer.
    func gatheredBytes(_ serial: UInt32) -> Int { self.machine.gatheredBytes(serial) }

    /// A read has been received, or part of one.
    func finishReceiving(in turn: inout Turn) {
        self.handOver(in: &turn)
        guard !self.machine.isQuiet || self.mustPull || self.timer != nil else { return }
        self.goOn(in: &turn)
    }

    private func handOver(in turn: inout Turn) {
        guard !self.arrivals.isEmpty else { return }
        if self.receivedItems > 0 { self.reporter.count(\.receivedItems, by: self.receivedItems) }
        self.receivedItems = 0
        for call in self.arrivals { call.handOver(in: &turn) }
        self.arrivals.removeAll(keepingCapacity: true)
    }

    /// The connection was lost: complete items are delivered. The caller ends the calls.
    func connectionLost(in turn: inout Turn) {
        self.machine.connectionLost()
        self.perform(in: &turn)
        self.handOver(in: &turn)
        self.abandon()
    }

    /// The traffic of an open stream so far; nil if it is not open here.
    ///
    /// - Parameter asksSystem: Whether to query the system for the bytes that the peer has acknowledged.
    func traffic(of call: StreamCall, asksSystem: Bool) -> StreamTraffic? {
        guard let id = call.flight.id, let open = self.opens[id], let items = self.machine.traffic(id) else {
            return nil
        }
        var received = items.received
        if let arriving = self.link.arriving(), arriving.serial == open.serial {
            received += UInt64(max(0, arriving.receivedBytes))
        }
        let context = asksSystem ? self.link.context : nil
        let acknowledged = context.flatMap { AcknowledgedBytes.count(of: $0.channel) }
        return StreamTraffic(
            sent: items.sent,
            received: received,
            acknowledgedOnConnection: acknowledged.map { UInt64(max(0, $0)) }
        )
    }

    /// Notifies the streams that the client fails over, or that the server is shutting down.
    func drains() {
        for open in self.opens.values { open.call.drains() }
    }

    /// Stops using this connection.
    func abandon() {
        if let timer = self.timer { self.link.loop.removeTimer(timer.id) }
        self.timer = nil
        self.opens = [:]
        self.serials = [:]
        self.lastItem = nil
    }

    // MARK: To the wire

    /// Sends frames, and performs the resulting actions.
    private func goOn(in turn: inout Turn) {
        self.pull(in: &turn)
        self.perform(in: &turn)
        self.handOver(in: &turn)
        self.armTimer(in: &turn)
    }

    /// Sends frames while the link accepts them.
    ///
    /// - Returns: Whether any was sent.
    @discardableResult
    func pull(in turn: inout Turn) -> Bool {
        var hasSent = false
        repeat {
            self.mustPull = false
            while self.link.canSend, var frame = self.machine.next(now: turn.now) {
                guard self.leaves(&frame, in: &turn) else { continue }
                self.link.send(frame, in: &turn)
                hasSent = true
            }
            self.link.tellsOfRoom = !self.link.canSend
            self.perform(in: &turn)
        } while self.mustPull && self.link.canSend
        return hasSent
    }

    /// A frame is about to be sent.
    ///
    /// - Returns: False if it is no longer needed.
    private func leaves(_ frame: inout Frame, in turn: inout Turn) -> Bool {
        if !self.cancellations.isEmpty, frame.type == self.format.layout.cancel?.type,
            let cancellation = self.cancellations.removeValue(forKey: frame.serial)
        {
            frame = cancellation
            return true
        }
        let type = frame.type & ~FrameType.allFlags
        guard !FrameType.control.contains(type) else { return true }
        let isLast = frame.type & FrameType.continuesFlag == 0
        if let id = self.serials[frame.serial] { return self.openingLeaves(&frame, id, in: &turn) }
        let length = frame.payload.readableBytes
        let left = (self.plainBytes[frame.serial] ?? 0) + length
        let isFirst = left == length && self.plainBytes[frame.serial] == nil
        if isFirst {
            guard self.side.willSend(type: type, serial: frame.serial, on: self.connection, in: &turn) else {
                _ = self.machine.dropPlain(serial: frame.serial)
                return false
            }
        } else if !self.side.isAwaited(frame.serial, on: self.connection) {
            // It was answered before the server had received all of it.
            self.plainBytes[frame.serial] = nil
            _ = self.machine.dropPlain(serial: frame.serial)
            guard let cancel = self.format.cancel(serial: frame.serial) else { return false }
            frame = cancel
            return true
        }
        self.plainBytes[frame.serial] = isLast ? nil : left
        self.side.sent(type: type, serial: frame.serial, payloadBytes: left, on: self.connection, in: &turn)
        return true
    }

    private func openingLeaves(_ frame: inout Frame, _ id: StreamID, in turn: inout Turn) -> Bool {
        guard let call = self.opens[id]?.call else { return true }
        frame.customFields = call.flight.customFields
        guard !call.flight.hasLeft else { return true }
        call.flight.hasLeft = true
        _ = self.side.willSend(
            type: frame.type & ~FrameType.allFlags,
            serial: frame.serial,
            on: self.connection,
            in: &turn
        )
        // Items follow the whole opening.
        turn.after { [weak self] turn in self?.visit(call, in: &turn) }
        return true
    }

    // MARK: Actions

    private func perform(in turn: inout Turn) {
        guard !self.isPerforming else { return }
        self.isPerforming = true
        while let action = self.machine.nextAction() { self.perform(action, in: &turn) }
        self.isPerforming = false
    }

    private func perform(_ action: StreamAction, in turn: inout Turn) {
        switch action {
        case .item(let id, let item): self.arrived(item, id)
        case .itemsEnded: break
        case .goOn(let id):
            guard let call = self.call(id) else { return }
            call.port.goOn()
            self.settle(call, id, in: &turn)
            self.mustPull = true
        case .ended(let id, let end): self.ended(id, end, in: &turn)
        case .whole(let frame): self.side.received(whole: frame, on: self.connection, in: &turn)
        case .failed(let type, let serial, let failure):
            self.side.received(broken: failure, type: type, serial: serial, on: self.connection, in: &turn)
        case .close(let fault): self.close(fault, in: &turn)
        }
    }

    private func call(_ id: StreamID) -> StreamCall? { self.opens[id]?.call }

    private func arrived(_ item: StreamItem, _ id: StreamID) {
        let call: StreamCall
        if let last = self.lastItem, last.id == id {
            call = last.call
        } else {
            guard let found = self.opens[id] else { return self.machine.release(id) }
            call = found.call
            self.lastItem = (id, found.serial, found.call)
        }
        if call.flight.arrived.isEmpty { self.arrivals.append(call) }
        call.flight.arrived.append(item)
        call.flight.hasMoved = true
        self.receivedItems += 1
    }

    private func ended(_ id: StreamID, _ end: StreamEnd, in turn: inout Turn) {
        guard let open = self.opens.removeValue(forKey: id) else { return }
        self.lastItem = nil
        self.serials[open.serial] = nil
        switch end.outcome {
        case .answered, .connectionLost: self.cancellations[open.serial] = nil
        // A stream whose opening was sent is cancelled.
        default: if !end.hasLeft { self.cancellations[open.serial] = nil }
        }
        // Before the end.
        open.call.handOver(in: &turn)
        open.call.flight.hasMoved = open.call.flight.hasMoved || end.hasMoved
        switch end.outcome {
        // The code that cancelled it, or lost the connection, ends the call.
        case .cancelled, .connectionLost, .drained, .inputClosed, .failed: break
        case .answered:
            if let answer = end.answer { self.side.received(whole: answer, on: self.connection, in: &turn) }
        case .violated, .damaged, .tooLong, .tooMuchHeld, .idle:
            self.side.failed(open.call, end.outcome, in: &turn)
        }
        self.side.streamEnded(in: &turn)
    }

    private func close(_ fault: StreamFault, in turn: inout Turn) {
        let what =
            switch fault {
            case .beyondWindow: "it sent more items than the connection's window allows"
            case .tooManyUnfinished: "it began too many payloads in pieces"
            }
        let (link, error) = (self.link, LinkError("the server broke the rules of streams: \(what)"))
        turn.after { turn in link.end(LinkEnd(.protocolViolation(error)), in: &turn) }
    }

    // MARK: Time

    /// Sets the timer of all streams to the next deadline, if it would fire later.
    private func armTimer(in turn: inout Turn) {
        guard let deadline = self.machine.nextDeadline, deadline < self.timer?.deadline ?? .distantFuture else {
            return
        }
        if let timer = self.timer { self.link.loop.removeTimer(timer.id) }
        let id = self.link.loop.setTimer(deadline) { [weak self] turn in
            guard let self else { return }
            self.timer = nil
            self.machine.timePassed(now: turn.now)
            self.goOn(in: &turn)
        }
        self.timer = (id, deadline)
    }
}
