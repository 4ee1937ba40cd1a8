// SPDX-License-Identifier: Apache-2.0
/// The executor of the tasks of asynchronous handlers.
public enum HandlerExecutor: Sendable, Hashable {
    /// On Swift's thread pool: for handlers that compute, or of which nobody knows how long they do. Requests that come
    /// together share the changes of threads there and back.
    case global
    /// On the connection's thread, which it shares with other connections: for handlers that mostly wait by `await`, or
    /// do very little. One that never suspends costs no change of threads, and is answered with the read that brought
    /// it.
    ///
    /// **It must not block or compute for long**: all connections of the thread wait meanwhile. What it awaits
    /// elsewhere, such as an actor, computes there. See ``/HHSocket/SocketExecutor``.
    ///
    /// Requires macOS 15, iOS 18, tvOS 18, watchOS 11 or visionOS 2; before, it is ``global``. Linux has no such limit.
    case connection
}
