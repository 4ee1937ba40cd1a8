// SPDX-License-Identifier: Apache-2.0
import Dispatch
import Foundation

/// A monitor that queries the system: `NWPathMonitor` on Apple platforms, rtnetlink on Linux. Elsewhere it reports a
/// network that never changes.
///
/// One watcher, with one descriptor, serves all sockets of the process, from the first that observes until the last has
/// ended.
///
/// On Linux there is a network if an interface other than the loopback is up, has a carrier, and has an address other
/// than a link-local IPv6 one; the path changes when such interfaces, their addresses or the route to the internet
/// change. Temporary IPv6 addresses do not count. Changes within 200 ms are reported as one.
package final class SystemNetworkMonitor: NetworkMonitor, @unchecked Sendable {
    // Proof of Sendable: variables are used only on the queue.

    package static let shared = SystemNetworkMonitor(watching: watchSystemPath)

    private let queue = DispatchQueue(label: "HHSocket network")
    private let watching: PathWatching
    private var observers: [UUID: AsyncStream<NetworkPath>.Continuation] = [:]
    private var watcher: (any PathWatcher)?
    /// Identifies the current watcher, so that reports of an earlier one are ignored.
    private var watch = UUID()
    /// The last path reported; nil while there is no watcher.
    private var path: NetworkPath?

    init(watching: @escaping PathWatching) {
        self.watching = watching
    }

    package func paths() -> AsyncStream<NetworkPath> {
        let (stream, continuation) = AsyncStream.ofPaths()
        let id = UUID()
        self.queue.async { self.join(id, continuation) }
        continuation.onTermination = { _ in
            self.queue.async { self.remove(id) }
        }
        return stream
    }

    private func join(_ id: UUID, _ observer: AsyncStream<NetworkPath>.Continuation) {
        self.observers[id] = observer
        if let path = self.path { observer.yield(path) }
        guard self.watcher == nil else { return }
        let watch = UUID()
        self.watch = watch
        self.watcher = self.watching(self.queue) { [weak self] path in self?.take(path, of: watch) }
    }

    private func remove(_ id: UUID) {
        self.observers[id] = nil
        guard self.observers.isEmpty else { return }
        self.watcher?.cancel()
        self.watcher = nil
        self.watch = UUID()
        self.path = nil
    }

    private func take(_ path: NetworkPath, of watch: UUID) {
        guard watch == self.watch, path != self.path else { return }
        self.path = path
        for observer in self.observers.values { observer.yield(path) }
    }

    /// Whether the system is being watched, for at least one observer.
    var isWatching: Bool { self.queue.sync { self.watcher != nil } }

    /// The number of streams being read.
    var observerCount: Int { self.queue.sync { self.observers.count } }

    /// Runs `body` on the queue of the watchers.
    func perform(_ body: () -> Void) { self.queue.sync(execute: body) }
}
