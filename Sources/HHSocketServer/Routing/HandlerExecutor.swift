// SPDX-License-Identifier: Apache-2.0
/// The executor of the tasks of asynchronous handlers.
public enum HandlerExecutor: Sendable, Hashable {
    /// On Swift's thread pool: for handlers that compute, or may compute. Requests of one read share the changes of
    /// threads.
    case global
    /// On the connection's thread, which it shares with other connections: for handlers that mostly wait by `await`, or
    /// do very little. One that never suspends costs no change of threads, and is answered in the turn that read the
    /// request.
    ///
    /// **It must not block or compute for long**: all connections of the thread wait meanwhile. Code that it awaits
    /// elsewhere, such as an actor's, computes there. See ``/HHSocket/SocketExecutor``.
    ///
    /// Requires macOS 15, iOS 18, tvOS 18, watchOS 11 or visionOS 2; on earlier systems it is the same as ``global``.
    /// Linux has no such limit.
    case connection
}
