// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// One turn of a socket thread: the work that one event causes, at one point in time, with one flush at its end.
///
/// An event is a read, a timer, or a submission from another thread. A turn reads the clock once. Its sends are flushed
/// together when it ends, and its callbacks run when nothing is borrowed. The time, sends and callbacks are
/// accessible only through this value, of which there is one and which only ``SocketLoop`` makes: so nothing can use
/// the time of an earlier turn, and nothing can be sent without being flushed.
@usableFromInline
package struct Turn: ~Copyable {
    /// The loop, which outlives its turns: counting a reference to it would cost a call as much as its other work.
    @usableFromInline let loop: Unmanaged<SocketLoop>
    /// The loop's.
    @usableFromInline let handlers: UnsafeMutablePointer<HandlerBuffer>

    @usableFromInline
    init(_ loop: SocketLoop) {
        self.loop = Unmanaged.passUnretained(loop)
        self.handlers = loop.handlers
    }

    /// The time of the whole turn: the clock is read at the first access.
    @inlinable package var now: NIODeadline { self.loop._withUnsafeGuaranteedRef { $0.time } }

    /// Runs `handler` on this thread once nothing is borrowed: after the units of this read, or after the
    /// submissions.
    @inlinable
    package mutating func run(_ handler: consuming some TurnHandler) {
        self.handlers.pointee.append(handler)
    }

    /// Passes `callback` to the user's queue with the others of this turn, or runs it like ``run(_:)`` if callbacks run
    /// on the socket's thread.
    package mutating func callBack(_ callback: consuming SocketCallback) {
        // A closure cannot consume what it captures, but can take it.
        var callback = Optional(consume callback)
        self.loop._withUnsafeGuaranteedRef { loop in if let callback = callback.take() { loop.callBack(callback) } }
    }

    /// Resumes a waiter: among the handlers if it runs on this thread, so that it continues in this turn; else when the
    /// turn ends.
    package mutating func resume(_ waiter: TurnWaiter) {
        if waiter.isHere {
            self.run(waiter)
        } else {
            self.loop._withUnsafeGuaranteedRef { $0.hot.continuations.append(waiter.continuation) }
        }
    }

    /// Returns a turn of ``SocketLoop/takeTurnOfHandlers()``.
    package consuming func giveBack() {
        self.loop._withUnsafeGuaranteedRef { $0.hot.phase = .handlers }
    }

    /// Schedules a flush of the link at the end of the turn.
    mutating func flushes(_ link: any TurnLink) {
        self.loop._withUnsafeGuaranteedRef { $0.touch(link) }
    }

    /// Records that a channel has bytes that should be flushed before much more is done.
    mutating func wantsFlush() {
        self.loop._withUnsafeGuaranteedRef { $0.hot.wantsFlush = true }
    }

    /// Runs `body` in this turn, once the current holder of the turn has returned.
    package mutating func after(_ body: @escaping (inout Turn) -> Void) {
        self.loop._withUnsafeGuaranteedRef { $0.hot.later.append(body) }
    }
}

/// An observer of the end of a batch.
@usableFromInline
package protocol TurnHandler {
    /// Moves the handler out of its memory and runs it.
    static func run(at pointer: UnsafeMutableRawPointer)
}

extension UnsafeMutableRawPointer {
    /// Moves a handler out of the memory that is passed to ``TurnHandler/run(at:)``.
    package func takeHandler<Handler: TurnHandler>(_: Handler.Type) -> Handler {
        self.assumingMemoryBound(to: Handler.self).move()
    }
}

/// A Swift task that waits for a turn.
@usableFromInline
package struct TurnWaiter: TurnHandler, Sendable {
    let continuation: UnsafeContinuation<Void, Never>
    /// Whether the waiting began on the loop's thread, and so continues there.
    package let isHere: Bool

    package init(_ continuation: UnsafeContinuation<Void, Never>, isHere: Bool) {
        self.continuation = continuation
        self.isHere = isHere
    }

    @usableFromInline
    package static func run(at pointer: UnsafeMutableRawPointer) {
        pointer.takeHandler(Self.self).resume()
    }

    /// Resumes it at once.
    @usableFromInline
    package func resume() {
        self.continuation.resume()
    }
}

/// An object that may need a flush when a turn ends.
protocol TurnLink: AnyObject {
    func flush(in turn: inout Turn)
}

/// An object that is notified at the end of each turn.
package protocol TurnHost: AnyObject {
    /// The turn is about to flush: what is sent now is still flushed with it.
    func turnEnds(in turn: inout Turn)
    /// The turn has flushed, so it can be measured. Nothing more can be sent.
    func turnEnded()
}
