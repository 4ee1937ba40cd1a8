import Dispatch
import Foundation

/// Asks the system: `NWPathMonitor` on Apple platforms, rtnetlink on Linux. Elsewhere there always is a network that
/// never changes.
///
/// One asks for the whole process, on one descriptor, however many sockets there are: from the first that wants to know
/// until the last one has ended.
///
/// On Linux there is a network if an interface other than the loopback is up, has a carrier, and has an address, which
/// is not IPv6's own of the link; the path is another one when such interfaces, their addresses or the way to the
/// internet are others. Temporary IPv6 addresses do not count. Changes within 200 ms are reported as one.
public final class SystemNetworkMonitor: NetworkMonitor, @unchecked Sendable {
    // Proof of Sendable: variables are touched on the queue alone.

    public static let shared = SystemNetworkMonitor(watching: watchSystemPath)

    private let queue = DispatchQueue(label: "HHSocket network")
    private let watching: PathWatching
    private var observers: [UUID: AsyncStream<NetworkPath>.Continuation] = [:]
    private var watcher: (any PathWatcher)?
    /// Tells what a watcher says from what the one before it said.
    private var watch = UUID()
    /// The last path reported; nil while there is no watcher.
    private var path: NetworkPath?

    init(watching: @escaping PathWatching) {
        self.watching = watching
    }

    public func paths() -> AsyncStream<NetworkPath> {
        let (stream, continuation) = AsyncStream.ofPaths()
        let id = UUID()
        self.queue.async { self.join(id, continuation) }
        continuation.onTermination = { _ in
            self.queue.async { self.leave(id) }
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

    private func leave(_ id: UUID) {
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

    /// Whether somebody observes, and the system is asked.
    var isWatching: Bool { self.queue.sync { self.watcher != nil } }

    /// How many streams are being read.
    var observerCount: Int { self.queue.sync { self.observers.count } }

    /// Runs `body` where watchers run.
    func perform(_ body: () -> Void) { self.queue.sync(execute: body) }
}
