// SPDX-License-Identifier: Apache-2.0
/// Reports the path by which this machine is connected, and its changes.
///
/// The default of ``SocketConfiguration/networkMonitor`` queries the system; a ``ManualNetworkMonitor`` is set by the
/// app.
public protocol NetworkMonitor: Sendable {
    /// Returns a new stream of the current path, at once, and of each path that follows.
    ///
    /// A socket requests one at its first `connect()` and terminates it when it ends; clean up in the stream's
    /// `onTermination`. Consecutive equal paths count as one.
    func paths() -> AsyncStream<NetworkPath>
}

extension AsyncStream<NetworkPath> {
    /// Makes a stream that keeps the latest paths for a slow reader. It keeps more than one, so that a network that is
    /// lost and returns is not missed: connections do not always survive that.
    static func ofPaths() -> (stream: Self, continuation: Continuation) {
        self.makeStream(bufferingPolicy: .bufferingNewest(16))
    }
}
