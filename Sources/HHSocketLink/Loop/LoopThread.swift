// SPDX-License-Identifier: Apache-2.0
package import NIOCore

/// A thread on which a ``SocketLoop`` runs instead of the event loop, with its clock: for tests.
///
/// By this clock a loop measures its own load, and pauses so that the event loop serves other channels. Deadlines have
/// another one where ``SocketTime`` is not the system's: otherwise a loop that pauses for some microseconds would wait
/// for a test that has stopped the time.
package struct LoopThread: Sendable {
    /// Whether the calling thread is it.
    let isCurrent: @Sendable () -> Bool
    /// Runs a closure on the thread soon.
    let wake: @Sendable (@escaping @Sendable () -> Void) -> Void
    let now: @Sendable () -> NIODeadline
    /// Called after each submission, on the submitting thread, even if it was refused.
    let submitted: @Sendable () -> Void

    package init(
        isCurrent: @escaping @Sendable () -> Bool,
        wake: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void,
        now: @escaping @Sendable () -> NIODeadline,
        submitted: @escaping @Sendable () -> Void = {}
    ) {
        self.isCurrent = isCurrent
        self.wake = wake
        self.now = now
        self.submitted = submitted
    }

    /// The thread of the event loop, with the system's clock.
    init(of eventLoop: any EventLoop) {
        self.init(
            isCurrent: { eventLoop.inEventLoop },
            wake: { eventLoop.execute($0) },
            now: { .now() }
        )
    }
}
