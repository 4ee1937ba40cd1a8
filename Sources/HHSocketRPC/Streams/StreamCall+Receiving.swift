// SPDX-License-Identifier: Apache-2.0
import Atomics
import DequeModule
import Dispatch
import HHSocket
import NIOConcurrencyHelpers
import NIOCore

/// Received items.
extension StreamCall {
    /// Delivers the items of this turn to the reader. Socket thread only.
    func handOver(in turn: inout Turn) {
        guard !self.flight.arrived.isEmpty else { return }
        let (reader, callsBack) = self.state.withLockedValue { state -> (TurnWaiter?, Bool) in
            guard !state.dropsItems, state.end == nil else { return (nil, false) }
            if state.items.isEmpty {
                swap(&state.items, &self.flight.arrived)
            } else {
                // The reader is behind.
                self.flight.detachArrived(isOneOfMany: state.items.count > Self.manyItems)
                state.items.append(contentsOf: self.flight.arrived)
            }
            return (state.reader.take(), self.mustCallBack(&state))
        }
        self.flight.arrived.removeAll(keepingCapacity: true)
        if let reader { turn.resume(reader) }
        if callsBack { turn.callBack(.work(self), on: self.callbackQueue) }
    }

    /// The number of items that are behind above which even small ones are copied.
    private static var manyItems: Int { 1_024 }

    /// Moves all available items into `batch`, which is empty.
    ///
    /// - Returns: The result of the stream, if there are no more items.
    /// - Throws: `invalidArgument` if another reader waits for the next item.
    func take(into batch: inout Deque<StreamItem>) throws(SocketError) -> Result<SocketResponse, SocketError>? {
        let (end, isReadElsewhere) = self.state.withLockedValue { state in
            if !state.items.isEmpty {
                swap(&batch, &state.items)
                return (nil as Result<SocketResponse, SocketError>?, false)
            }
            return (state.end, state.end == nil && state.reader != nil)
        }
        guard isReadElsewhere else { return end }
        throw SocketError(
            .invalidArgument,
            message: "the items of a stream are for one reader, and another one waits for the next"
        )
    }

    /// Returns items that a reader has taken and not used to the front.
    func giveBack(_ batch: consuming Deque<StreamItem>) {
        var rest = batch
        self.state.withLockedValue { state in
            guard !state.dropsItems else { return }
            rest.append(contentsOf: state.items)
            state.items = rest
        }
    }

    /// Registers a reader that waits for an item, or for the end.
    ///
    /// - Returns: Whether there is something to wait for.
    func awaitItem(_ reader: TurnWaiter) -> Bool {
        self.state.withLockedValue { state in
            guard state.items.isEmpty, state.end == nil, state.reader == nil else { return false }
            state.reader = reader
            return true
        }
    }

    /// The cost of the items that a reader may take without a report: at the end of a batch, and before that.
    var reportLimits: (quiet: UInt64, most: UInt64) {
        self.state.withLockedValue { ($0.quietCost, $0.reportedCost) }
    }

    /// Reports that items were taken.
    func report(_ taken: ItemReceipt) {
        let mustVisit = self.state.withLockedValue { state in
            state.taken += taken
            return state.asksForVisit()
        }
        if mustVisit { self.submitVisit() }
    }

    /// Opens the envelope of an item, on the reader's thread.
    func body(of item: StreamItem) throws(SocketError) -> ByteBuffer {
        guard item.isCompressed else { return item.payload }
        do throws(EnvelopeError) {
            return try Envelope.inflate(item.payload, limit: self.maximumItemLength)
        } catch {
            throw SocketError(
                error.isTooLarge ? .frameTooLarge : .protocolViolation,
                message: "an item cannot be used: \(error); the stream was cancelled",
                delivery: .answered
            )
        }
    }

    /// Drops waiting items, which are no longer needed. Any thread.
    func discardItems() {
        self.isCancelled.store(true, ordering: .relaxed)
        self.state.withLockedValue { state in
            state.dropsItems = true
            state.items = []
        }
        self.submitRelease()
    }

    // MARK: Callbacks

    /// Runs `body` where callbacks run, soon. Any thread.
    func callBack(_ body: @escaping @Sendable () -> Void) {
        self.callBack(.closure(body))
    }

    private func callBack(_ callback: SocketCallback) {
        switch (self.callbackQueue ?? self.loop.callbackQueue).target {
        case .queue(let queue): queue.async { callback.run() }
        case .socketThread:
            if !self.loop.submit(.closure { $0.run(callback) }) { callback.run() }
        }
    }

    func scheduleCallbacks() { self.callBack(.work(self)) }

    /// Whether callbacks must be scheduled; they count as scheduled from now on.
    func mustCallBack(_ state: inout State) -> Bool {
        guard self.onItem != nil || self.onEnd != nil, !state.isCallingBack,
            !self.isPaused.load(ordering: .relaxed), state.hasCallbacks
        else { return false }
        state.isCallingBack = true
        return true
    }

    func pause() { self.isPaused.store(true, ordering: .relaxed) }

    func resume() {
        self.isPaused.store(false, ordering: .relaxed)
        if self.state.withLockedValue({ self.mustCallBack(&$0) }) { self.scheduleCallbacks() }
    }
}

extension StreamCall: CallbackWork {
    /// Calls back for each received item, and finally for the end.
    func callBack() {
        var batch: Deque<StreamItem> = []
        while true {
            let (goesOn, end) = self.state.withLockedValue { state -> (Bool, Result<SocketResponse, SocketError>?) in
                guard !self.isPaused.load(ordering: .relaxed), state.hasCallbacks else {
                    state.isCallingBack = false
                    return (false, nil)
                }
                if !state.items.isEmpty {
                    swap(&batch, &state.items)
                    return (true, nil)
                }
                state.wasEndToldOf = true
                return (true, state.end)
            }
            guard goesOn else { return }
            if let end {
                self.onEnd?(end)
                continue
            }
            self.callBack(for: &batch)
        }
    }

    private func callBack(for batch: inout Deque<StreamItem>) {
        var taken = ItemReceipt()
        while !self.isPaused.load(ordering: .relaxed), !self.isCancelled.load(ordering: .relaxed),
            let item = batch.popFirst()
        {
            do throws(SocketError) {
                let body = try self.body(of: item)
                self.onItem?(body)
            } catch {
                self.fail(error)
            }
            taken += item.receipt
        }
        if !batch.isEmpty { self.giveBack(batch) }
        batch = []
        if taken != ItemReceipt() { self.report(taken) }
    }
}

extension StreamCall.Flight {
    /// Detaches the items of this turn from the reads that they are slices of.
    ///
    /// - Parameter isOneOfMany: Whether small items are copied, too, which are in blocks of 1 KiB with others.
    fileprivate mutating func detachArrived(isOneOfMany: Bool) {
        for index in self.arrived.indices {
            let payload = self.arrived[index].payload
            guard isOneOfMany || payload.readableBytes > FrameDecoder.defaultCopyLimit else { continue }
            self.arrived[index].payload = payload.detached
        }
    }
}

extension StreamCall.State {
    /// Whether there is an item or an end to call back for.
    fileprivate var hasCallbacks: Bool { !self.items.isEmpty || self.end != nil && !self.wasEndToldOf }
}
