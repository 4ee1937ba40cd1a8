#if os(Linux) || os(Android)
import CNetlink
import Dispatch

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

/// Hears from the kernel that something has changed, and looks what that is. Where it may not listen, as apps on
/// Android may not, there is a network that never changes: what cannot be found out must hold nobody back.
final class NetlinkWatcher: PathWatcher, @unchecked Sendable {
    // Proof of Sendable: it is made and cancelled on the queue, and what changes is touched there alone.

    /// How long changes are gathered before one look is taken, from the first of them. An interface that comes up is
    /// told in some ten messages (link, carrier, addresses, routes) within some tens of milliseconds, and half a
    /// network is no network; against what a connection costs on a network that is new, 200 ms are little.
    static let settlingTime = PathSettler.settlingTime

    private let queue: DispatchQueue
    private let tell: @Sendable (NetworkPath) -> Void
    private var source: (any DispatchSourceRead)?
    private var look: DispatchWorkItem?

    init(queue: DispatchQueue, tell: @escaping @Sendable (NetworkPath) -> Void) {
        self.queue = queue
        self.tell = tell
        let descriptor = cnetlink_open()
        guard descriptor >= 0 else {
            tell(NetworkPath(isReachable: true))
            return
        }
        let source = DispatchSource.makeReadSource(fileDescriptor: descriptor, queue: queue)
        source.setEventHandler { [weak self] in self?.read(descriptor) }
        source.setCancelHandler { close(descriptor) }
        source.activate()
        self.source = source
        // It listens by now, so that no change falls between.
        self.takeLook()
    }

    func cancel() {
        self.look?.cancel()
        self.look = nil
        self.source?.cancel()
        self.source = nil
    }

    private func read(_ descriptor: CInt) {
        let changes = cnetlink_drain(descriptor)
        guard changes >= 0 else {
            self.cancel()
            return self.tell(NetworkPath(isReachable: true))
        }
        guard changes > 0, self.look == nil, self.source != nil else { return }
        let look = DispatchWorkItem { [weak self] in
            self?.look = nil
            self?.takeLook()
        }
        self.look = look
        self.queue.asyncAfter(deadline: .now() + Self.settlingTime, execute: look)
    }

    private func takeLook() {
        self.tell(NetworkSnapshot.now()?.path ?? NetworkPath(isReachable: true))
    }
}
#endif
