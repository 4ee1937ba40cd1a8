import Dispatch

/// Watches the system's network until it is cancelled. Made, used and cancelled on one queue.
protocol PathWatcher: AnyObject {
    func cancel()
}

/// Begins to watch: the closure receives the present path, at once or soon, and each that follows; on the queue.
typealias PathWatching = @Sendable (DispatchQueue, @escaping @Sendable (NetworkPath) -> Void) -> any PathWatcher

/// The watcher for this system.
func watchSystemPath(
    on queue: DispatchQueue,
    _ tell: @escaping @Sendable (NetworkPath) -> Void
) -> any PathWatcher {
    #if canImport(Network)
    return NetworkFrameworkWatcher(queue: queue, tell: tell)
    #elseif os(Linux) || os(Android)
    return NetlinkWatcher(queue: queue, tell: tell)
    #else
    return UnknownPath(tell: tell)
    #endif
}

#if !canImport(Network) && !os(Linux) && !os(Android)
/// Nothing is known here, which must hold nobody back.
private final class UnknownPath: PathWatcher {
    init(tell: (NetworkPath) -> Void) {
        tell(NetworkPath(isReachable: true))
    }

    func cancel() {}
}
#endif
