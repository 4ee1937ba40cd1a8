// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOConcurrencyHelpers
import Tracing

/// The owner of awaited calls, which is on the socket thread. A protocol, since the engine's name would join this file
/// to its cycle.
protocol AwaitedCallOwner: AnyObject, Sendable {
    func start(_ call: AwaitedCall, in turn: inout Turn)
    /// Completes a call that was cancelled before it arrived.
    func cancelBeforeStart(_ call: AwaitedCall, in turn: inout Turn)
    func cancel(_ key: DispatchKey, in turn: inout Turn)
}

/// A call that a Swift task on another executor awaits: the object that the caller hands to the socket thread, and that
/// is handed back with the result.
final class AwaitedCall: SubmittedWork, @unchecked Sendable {
    // Proof of Sendable: until it is submitted, only the caller accesses it; then only the socket thread does, until it
    // resumes the caller. The cancellation accesses nothing, but is submitted too.

    private enum Operation: UInt8 { case start, cancel }

    private enum Life {
        /// The call has not arrived yet.
        case expected
        /// The cancellation has arrived before the call.
        case cancelled
        case begun
    }

    /// Taken around the result where the thread sanitizer runs, which does not see how a continuation orders accesses.
    private static let order: NIOLock? = ThreadSanitizer.isRunning ? NIOLock() : nil

    let request: SocketRequest
    /// The span context of the caller; nil if it is not needed.
    let context: ServiceContext?
    private let owner: any AwaitedCallOwner
    private var waiter: TurnWaiter?
    private var result: CallOutcome?
    private var life = Life.expected
    private var key: DispatchKey?
    private var moved: CallErrors.Timeout.Progress

    init(_ request: consuming SocketRequest, _ owner: any AwaitedCallOwner, context: ServiceContext?) {
        self.moved = .init(length: request.body.readableBytes, sent: 0, received: 0)
        self.request = request
        self.owner = owner
        self.context = context
    }

    /// Makes the call, and returns once it has its result. Cancelling the Swift task cancels the call.
    ///
    /// - Parameters:
    ///   - loop: The owner's.
    ///   - isolation: The caller's.
    func run(on loop: SocketLoop, isolation: isolated (any Actor)? = #isolation) async {
        await withTaskCancellationHandler {
            // A closure that captures the isolation runs in it. Otherwise it would begin elsewhere, and hop back.
            _ = isolation
            await withUnsafeContinuation { self.start($0, on: loop) }
        } onCancel: {
            loop.submit(.work(self, Operation.cancel.rawValue))
        }
    }

    private func start(_ continuation: UnsafeContinuation<Void, Never>, on loop: SocketLoop) {
        let waiter = TurnWaiter(continuation, isHere: loop.isCurrent)
        self.waiter = waiter
        guard !loop.submit(.work(self, Operation.start.rawValue)) else { return }
        // The client was released, and with it the thread and the table that complete calls.
        self.result = .failure(CallErrors.released)
        waiter.resume()
    }

    func performOnSocketThread(_ operation: UInt8, in turn: inout Turn) {
        switch (Operation(rawValue: operation), self.life) {
        case (.start, .expected):
            self.life = .begun
            self.owner.start(self, in: &turn)
        case (.start, _):
            self.owner.cancelBeforeStart(self, in: &turn)
        case (.cancel, .expected):
            self.life = .cancelled
        case (.cancel, .begun):
            if let key = self.key { self.owner.cancel(key, in: &turn) }
        case (.cancel, .cancelled), (nil, _):
            break
        }
    }

    // MARK: For the owner, on the socket thread

    /// Records that the call is in the table.
    func enters(_ key: DispatchKey) { self.key = key }

    /// The bytes of bodies that have moved before the call had a flight.
    var progress: CallErrors.Timeout.Progress { self.moved }

    func sent(_ length: Int) { self.moved.sent = length }

    func progressed(bytesReceived: Int, of expected: Int?) {
        self.moved.received = bytesReceived
        self.moved.expected = expected
    }

    /// Stores the result, and returns the caller that waits for it.
    @inline(__always)
    func finish(_ result: consuming CallOutcome) -> TurnWaiter {
        Self.order?.lock()
        self.result = consume result
        Self.order?.unlock()
        guard let waiter = self.waiter else { preconditionFailure("a call that was started has a caller that waits") }
        return waiter
    }

    /// Returns the result. Must be called once, after ``run(on:isolation:)``.
    func takeResult() -> CallOutcome {
        if let order = Self.order { order.withLock {} }
        guard let result = self.result.take() else { preconditionFailure("a caller is resumed once there is a result") }
        return result
    }
}
