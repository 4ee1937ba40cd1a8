// SPDX-License-Identifier: Apache-2.0
import Atomics
import Dispatch
import HHSocket
import NIOConcurrencyHelpers
import NIOCore

/// Received items.
extension StreamCall {
    /// Reports that items were taken.
    func report(_ taken: ItemReceipt) { self.port.took(taken, visit: self.submitVisit) }

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
        self.port.inbox.discard()
        self.submitRelease()
    }

    // MARK: Callbacks

    /// Runs `body` where callbacks run, soon. Any thread.
    func callBack(_ body: @escaping @Sendable () -> Void) {
        self.callBack(.closure(body))
    }

    private func callBack(_ callback: SocketCallback) {
        switch self.callbackQueue ?? self.loop.callbackQueue {
        case .queue(let queue): queue.async { callback.run() }
        case .socketThread:
            if !self.loop.submit(.closure { $0.run(callback) }) { callback.run() }
        }
    }

    func scheduleCallbacks() { self.callBack(.work(self)) }

    var hasCallbacks: Bool { self.onItem != nil || self.onEnd != nil }

    /// Whether there is an item or an end to call back for.
    private func isBehind(_ state: State) -> Bool {
        !self.port.inbox.isEmpty || state.end != nil && !state.wasEndReported
    }

    /// Whether callbacks must be scheduled; they count as scheduled from now on.
    func mustCallBack(_ state: inout State) -> Bool {
        guard self.hasCallbacks, !state.isCallingBack, !self.isPaused.load(ordering: .relaxed), self.isBehind(state)
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
        let reader = self.port.inbox.makeReader()
        while true {
            let (continues, end) = self.state.withLockedValue { state -> (Bool, Result<SocketResponse, SocketError>?) in
                guard !self.isPaused.load(ordering: .relaxed), self.isBehind(state) else {
                    state.isCallingBack = false
                    return (false, nil)
                }
                guard self.port.inbox.isEmpty else { return (true, nil) }
                state.wasEndReported = true
                return (true, state.end)
            }
            guard continues else { return }
            if let end {
                self.onEnd?(end)
                continue
            }
            self.callBack(forBatchOf: reader)
        }
    }

    private func callBack(forBatchOf reader: Inbox<StreamItem>.Reader) {
        var taken = ItemReceipt()
        var next = reader.take()
        while !self.isCancelled.load(ordering: .relaxed), let item = next {
            do throws(SocketError) {
                let body = try self.body(of: item)
                self.onItem?(body)
            } catch {
                self.fail(error)
            }
            taken += item.receipt
            next = self.isPaused.load(ordering: .relaxed) ? nil : reader.pop()
        }
        reader.giveBack()
        if taken != ItemReceipt() { self.report(taken) }
    }
}
