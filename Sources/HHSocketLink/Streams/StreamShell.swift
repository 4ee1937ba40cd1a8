// SPDX-License-Identifier: Apache-2.0
package import DequeModule
import NIOCore

/// The application's code at one end of a stream, as its connection sees it. On the connection's thread.
package protocol StreamParty: AnyObject {
    var port: StreamPort { get }
    /// Called when items are complete.
    ///
    /// - Parameter items: Emptied. Its memory is kept for the next items.
    func received(_ items: inout Deque<StreamItem>, in turn: inout Turn)
    /// Called when items were passed on for sending.
    func sent(_ items: StreamPort.Settled)
    /// Resumes a sender, or a reader.
    func resume(_ sender: StreamPort.Sender, in turn: inout Turn)
    /// Called once, when the stream is over, after all of its items.
    func ended(_ end: StreamEnd, in turn: inout Turn)
}

/// The owner of a connection's streams, as their shell sees it. On the connection's thread.
package protocol StreamSide: AnyObject {
    /// A payload in pieces is complete: a request, an answer or a push.
    func receivedPayload(_ frame: Frame, in turn: inout Turn)
    /// A payload in pieces cannot be joined. A server has answered it.
    func receivedBrokenPayload(_ failure: PayloadFailure, type: UInt32, serial: UInt32, in turn: inout Turn)
    /// A frame is about to be sent.
    ///
    /// - Returns: False if it is not sent.
    func willSend(_ frame: inout Frame, in turn: inout Turn) -> Bool
    /// A stream has ended, and its party was notified.
    func ended(_ id: StreamID, serial: UInt32, _ end: StreamEnd, in turn: inout Turn)
    /// The other side has broken a rule, so that the connection cannot continue.
    func faulted(_ fault: StreamFault, in turn: inout Turn)
    /// Everything that may be sent now was sent; what is held may have changed.
    func settled(in turn: inout Turn)
}

/// A stream that is open. Not private: see ``SlotTable``.
struct OpenStream {
    let party: any StreamParty
    let serial: UInt32
    /// The items that were received since the last were delivered.
    var arrived: Deque<StreamItem> = []
}

/// The streams of one connection, and its payloads in pieces, at either end: passes frames to their machine, performs
/// its decisions, and sends its frames while the link accepts them. On the connection's thread.
///
/// Retains its side until ``abandon()``.
package final class StreamShell<Machine: StreamMachine & ~Copyable> {
    private let link: Link<FrameLanguage>
    private let largestBurst: Int?
    private var side: (any StreamSide)?
    // Unchecked because each frame accesses it, and only on the connection's thread.
    #if !DEBUG && !CHECKED_EXCLUSIVITY
    @exclusivity(unchecked)
    #endif
    private var machine: Machine
    private var opens = SlotTable<OpenStream>()
    private var slots: [StreamID: SlotKey] = [:]
    /// The open stream that received the last item.
    private var lastItem: (id: StreamID, slot: SlotKey)?
    /// The streams with received items that were not delivered.
    private var arrivals: [SlotKey] = []
    private var isPerforming = false
    /// Whether there may be frames to send that were not asked for.
    private var mustSend = false
    private var waitsForRoom = false
    private var timer: SocketLoop.TimerID?

    /// - Parameter largestBurst: The number of bytes after which it is checked how many the system has accepted; nil if
    ///   as many are sent as the link accepts.
    package init(_ machine: consuming Machine, over link: Link<FrameLanguage>, largestBurst: Int? = nil) {
        self.machine = machine
        self.link = link
        self.largestBurst = largestBurst
    }

    package func begin(_ side: any StreamSide) { self.side = side }

    // MARK: What is open

    /// The number of streams that are open.
    package var count: Int { self.slots.count }

    package func isOpen(_ id: StreamID) -> Bool { self.slots[id] != nil }

    /// The slot and the party of a stream; nil if it is not open.
    private func open(_ id: StreamID) -> (slot: SlotKey, party: any StreamParty)? {
        guard let slot = self.slots[id] else { return nil }
        return self.opens.with(slot) { (slot, $0.party) }
    }

    /// Whether frames wait until the link accepts more.
    package var wantsRoom: Bool { self.waitsForRoom }

    /// Whether ``tend(in:)`` would change nothing.
    package var isQuiet: Bool {
        @_specialize(where Machine == ClientStreams)
        @_specialize(where Machine == ServerStreams)
        get { self.machine.isQuiet && self.arrivals.isEmpty && !self.mustSend && !self.waitsForRoom }
    }

    /// The result of `body` for the machine. What follows from it waits for ``tend(in:)``.
    package func with<Result>(_ body: (inout Machine) -> Result) -> Result { body(&self.machine) }

    /// Changes the machine, and performs and sends what follows from it.
    package func change(in turn: inout Turn, _ body: (inout Machine) -> Void) {
        body(&self.machine)
        self.tend(in: &turn)
    }

    /// Adds a stream that the machine has opened.
    @_specialize(where Machine == ClientStreams)
    @_specialize(where Machine == ServerStreams)
    package func add(_ party: any StreamParty, as id: StreamID, serial: UInt32) {
        self.slots[id] = self.opens.insert(OpenStream(party: party, serial: serial))
        self.setTimer()
    }

    // MARK: From the wire

    /// Handles a frame, except for the actions that follow from it.
    ///
    /// - Parameter isAwaited: Whether it is a push, or its serial is that of a plain call in flight; of no effect at a
    ///   server.
    /// - Returns: Whether it belonged to streams or pieces. The connection handles all others.
    @_specialize(where Machine == ClientStreams)
    @_specialize(where Machine == ServerStreams)
    package func receive(
        _ frame: borrowing ArrivedFrame,
        isDamaged: Bool,
        isAwaited: Bool = true,
        in turn: inout Turn
    ) -> Bool {
        self.machine.receive(frame, isDamaged: isDamaged, isAwaited: isAwaited, now: turn.now)
    }

    /// Performs the actions of the machine. Items wait for ``tend(in:)``, since the read that brings them may bring
    /// more of them.
    @_specialize(where Machine == ClientStreams)
    @_specialize(where Machine == ServerStreams)
    package func perform(in turn: inout Turn) {
        // Performing an action leads here again.
        guard !self.isPerforming else { return }
        self.isPerforming = true
        while let action = self.machine.nextAction() { self.perform(action, in: &turn) }
        self.isPerforming = false
    }

    private func perform(_ action: StreamAction, in turn: inout Turn) {
        switch action {
        case .item(let id, let item): self.arrived(item, id)
        case .itemsEnded(let id):
            guard let (slot, party) = self.open(id) else { return }
            self.deliver(slot, in: &turn)
            party.port.inbox.finish { party.resume(.task($0), in: &turn) }
        case .unblock(let id):
            guard let party = self.open(id)?.party else { return }
            party.port.unblock()
            self.settle(party, id, in: &turn)
            self.mustSend = true
        case .ended(let id, let end): self.ended(id, end, in: &turn)
        case .whole(let frame): self.side?.receivedPayload(frame, in: &turn)
        case .failed(let type, let serial, let failure):
            self.side?.receivedBrokenPayload(failure, type: type, serial: serial, in: &turn)
        case .close(let fault): self.side?.faulted(fault, in: &turn)
        }
    }

    private func arrived(_ item: StreamItem, _ id: StreamID) {
        if self.lastItem?.id != id {
            guard let slot = self.slots[id] else { return self.machine.release(id) }
            self.lastItem = (id, slot)
        }
        guard let slot = self.lastItem?.slot else { return }
        let isFirst = self.opens.with(slot) { open in
            open.arrived.append(item)
            return open.arrived.count == 1
        }
        if isFirst == true { self.arrivals.append(slot) }
    }

    private func deliver(in turn: inout Turn) {
        guard !self.arrivals.isEmpty else { return }
        for slot in self.arrivals { self.deliver(slot, in: &turn) }
        self.arrivals.removeAll(keepingCapacity: true)
    }

    private func deliver(_ slot: SlotKey, in turn: inout Turn) {
        // Taken out, so that they are not copied.
        var items: Deque<StreamItem> = []
        let party = self.opens.with(slot) { open in
            swap(&items, &open.arrived)
            return open.party
        }
        guard let party, !items.isEmpty else { return }
        party.received(&items, in: &turn)
        self.opens.with(slot) { if $0.arrived.isEmpty { swap(&$0.arrived, &items) } }
    }

    private func ended(_ id: StreamID, _ end: StreamEnd, in turn: inout Turn) {
        guard let slot = self.slots.removeValue(forKey: id) else { return }
        self.lastItem = nil
        // Before the end.
        self.deliver(slot, in: &turn)
        guard let open = self.opens.remove(slot) else { return }
        open.party.ended(end, in: &turn)
        self.side?.ended(id, serial: open.serial, end, in: &turn)
    }

    // MARK: From the application

    /// Processes the application's changes to a stream.
    package func visit(_ party: any StreamParty, _ id: StreamID, in turn: inout Turn) {
        self.settle(party, id, in: &turn)
        self.tend(in: &turn)
    }

    /// Passes the items that the application has taken, and those that it sends, to the machine.
    ///
    /// - Parameter isLast: Whether all of them are passed on, since the answer follows.
    @_specialize(where Machine == ClientStreams)
    @_specialize(where Machine == ServerStreams)
    package func settle(_ party: any StreamParty, _ id: StreamID, isLast: Bool = false, in turn: inout Turn) {
        let (sends, now) = (self.machine.takesItems(id), turn.now)
        let settled = party.port.settle(id, &self.machine, sends: sends, isLast: isLast, now: now) { sender in
            party.resume(sender, in: &turn)
        }
        if settled.count > 0, self.isOpen(id) { party.sent(settled) }
        if settled.isFinished { self.machine.finish(id) }
    }

    // MARK: To the wire

    /// Delivers the items that were received, sends frames while the link accepts them, and performs the actions of the
    /// machine. A stream's cancel leaves before its end is reported, which may end the connection.
    ///
    /// - Returns: Whether any frame was sent.
    @_specialize(where Machine == ClientStreams)
    @_specialize(where Machine == ServerStreams)
    @discardableResult
    package func tend(in turn: inout Turn) -> Bool {
        guard let side = self.side else { return false }
        guard !self.isPerforming else {
            self.mustSend = true
            return false
        }
        self.deliver(in: &turn)
        var bytes = 0
        repeat {
            self.mustSend = false
            self.send(&bytes, side, in: &turn)
            self.perform(in: &turn)
        } while self.mustSend && self.link.canSend && bytes < self.largestBurst ?? .max
        if bytes > 0, self.largestBurst != nil {
            // Senders that resume have more to send after this has been flushed.
            self.waitsForRoom = true
            self.link.reportsRoom = true
        }
        side.settled(in: &turn)
        return bytes > 0
    }

    /// - Parameters:
    ///   - bytes: The number of bytes that were sent.
    ///   - isLast: Whether frames are sent even if the link does not accept them.
    private func send(_ bytes: inout Int, _ side: any StreamSide, isLast: Bool = false, in turn: inout Turn) {
        guard self.link.phase == .open, self.link.context != nil else { return }
        self.waitsForRoom = true
        while isLast || self.link.canSend, bytes < self.largestBurst ?? .max {
            guard var frame = self.machine.next(now: turn.now) else {
                self.waitsForRoom = false
                break
            }
            guard side.willSend(&frame, in: &turn) else { continue }
            bytes += frame.payload.readableBytes + Int(StreamFrames.overhead)
            self.link.send(frame, in: &turn)
        }
        self.link.reportsRoom = self.waitsForRoom
    }

    /// Sends the last frames, as many as one burst has, even if the link does not accept them now.
    package func sendLast(in turn: inout Turn) {
        self.perform(in: &turn)
        var bytes = 0
        if let side = self.side { self.send(&bytes, side, isLast: true, in: &turn) }
    }

    // MARK: Time

    /// Sets one timer for all streams: the limit is the same for all, so that later ones end later.
    private func setTimer() {
        guard self.timer == nil, let deadline = self.machine.nextDeadline else { return }
        self.timer = self.link.loop.setTimer(deadline) { [weak self] turn in
            guard let self else { return }
            self.timer = nil
            self.machine.timePassed(now: turn.now)
            self.tend(in: &turn)
            self.setTimer()
        }
    }

    // MARK: The end

    /// The connection was lost: delivers the items that are complete, and ends all streams.
    package func lose(in turn: inout Turn) {
        self.machine.connectionLost()
        self.perform(in: &turn)
        self.deliver(in: &turn)
        self.abandon()
    }

    /// Forgets the streams, which their parties learn from the caller. Nothing is received or sent any more.
    package func abandon() {
        self.machine.connectionLost()
        while self.machine.nextAction() != nil {}
        self.opens = SlotTable()
        (self.slots, self.lastItem, self.arrivals) = ([:], nil, [])
        self.waitsForRoom = false
        if let timer = self.timer.take() { self.link.loop.removeTimer(timer) }
        self.side = nil
    }
}

// What every frame or call may ask, and only one end has.

extension StreamShell where Machine == ClientStreams {
    /// Whether the stream with this serial is open.
    package func hasStream(of serial: UInt32) -> Bool { self.machine.stream(of: serial) != nil }

    /// Whether an answer with this serial may end a stream, or be the last piece of a payload.
    package func claims(_ serial: UInt32) -> Bool {
        self.machine.stream(of: serial) != nil || self.machine.hasUnfinished
    }

    /// Visits a stream whose opening has left, since items follow it.
    package func openingHasLeft(_ serial: UInt32, in turn: inout Turn) {
        guard let id = self.machine.stream(of: serial), let party = self.open(id)?.party else { return }
        self.visit(party, id, in: &turn)
    }
}

extension StreamShell where Machine == ServerStreams {
    package var awaitsPieces: Bool { self.machine.awaitsPieces }

    package func takeUnproductiveFrames() -> Int { self.machine.takeUnproductiveFrames() }
}
