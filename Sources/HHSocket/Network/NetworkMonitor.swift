/// Says by which path this machine is connected, and when that changes.
///
/// ``SystemNetworkMonitor`` asks the system, the app sets ``ManualNetworkMonitor``.
public protocol NetworkMonitor: Sendable {
    /// The present path at once, then each that follows. Every call makes a stream of its own.
    ///
    /// A socket takes one at its first `connect()` and gives it up when it ends; the stream's `onTermination` is the
    /// place to clean up. Equal paths in a row count as one.
    func paths() -> AsyncStream<NetworkPath>
}

extension AsyncStream<NetworkPath> {
    /// A stream that keeps the latest paths for a reader who is slow. More than one, so that a network which goes and
    /// comes back is not missed: connections do not always survive that.
    static func ofPaths() -> (stream: Self, continuation: Continuation) {
        self.makeStream(bufferingPolicy: .bufferingNewest(16))
    }
}
