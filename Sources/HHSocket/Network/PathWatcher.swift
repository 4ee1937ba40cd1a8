// SPDX-License-Identifier: Apache-2.0
import Dispatch

/// Watches the system's network until it is cancelled. Made, used and cancelled on one queue.
protocol PathWatcher: AnyObject {
    func cancel()
}

/// Starts to watch: the closure receives the current path, at once or soon, and each that follows, on the queue.
typealias PathWatching = @Sendable (DispatchQueue, @escaping @Sendable (NetworkPath) -> Void) -> any PathWatcher

/// Starts the watcher for this system.
func watchSystemPath(
    on queue: DispatchQueue,
    _ report: @escaping @Sendable (NetworkPath) -> Void
) -> any PathWatcher {
    #if canImport(Network)
    return NetworkFrameworkWatcher(queue: queue, report: report)
    #elseif os(Linux) || os(Android)
    return NetlinkWatcher(queue: queue, report: report)
    #else
    return UnknownPath(report: report)
    #endif
}

#if !canImport(Network) && !os(Linux) && !os(Android)
/// A watcher that reports a network that never changes, for systems on which nothing can be observed.
private final class UnknownPath: PathWatcher {
    init(report: (NetworkPath) -> Void) {
        report(NetworkPath(isReachable: true))
    }

    func cancel() {}
}
#endif
