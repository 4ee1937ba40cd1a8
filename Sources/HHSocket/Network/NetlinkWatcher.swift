// SPDX-License-Identifier: Apache-2.0
#if os(Linux) || os(Android)
import CNetlink
import Dispatch
import HHSocketSystem

/// Takes a snapshot of the network when the kernel reports a change. If listening is not permitted, as for apps on
/// Android, it reports a network that never changes: a failure to observe must not prevent connecting.
final class NetlinkWatcher: PathWatcher, @unchecked Sendable {
    // Proof of Sendable: it is made and cancelled on the queue, and its variables are used only there.

    /// The time for which changes are gathered before a snapshot is taken, counted from the first. An interface that
    /// comes up causes about ten messages (link, carrier, addresses, routes) within some tens of milliseconds, and is
    /// not usable before the last; 200 ms is short compared with a connection attempt on a new network.
    static let settlingTime = PathSettler.settlingTime

    private let queue: DispatchQueue
    private let report: @Sendable (NetworkPath) -> Void
    private var source: (any DispatchSourceRead)?
    private var check: DispatchWorkItem?

    init(queue: DispatchQueue, report: @escaping @Sendable (NetworkPath) -> Void) {
        self.queue = queue
        self.report = report
        let descriptor = cnetlink_open()
        guard descriptor >= 0 else {
            report(NetworkPath(isReachable: true))
            return
        }
        let source = DispatchSource.makeReadSource(fileDescriptor: descriptor, queue: queue)
        source.setEventHandler { [weak self] in self?.read(descriptor) }
        source.setCancelHandler { close(descriptor) }
        source.activate()
        self.source = source
        // The socket already listens, so no change is missed.
        self.takeSnapshot()
    }

    func cancel() {
        self.check?.cancel()
        self.check = nil
        self.source?.cancel()
        self.source = nil
    }

    private func read(_ descriptor: CInt) {
        let changes = cnetlink_drain(descriptor)
        guard changes >= 0 else {
            self.cancel()
            return self.report(NetworkPath(isReachable: true))
        }
        guard changes > 0, self.check == nil, self.source != nil else { return }
        let check = DispatchWorkItem { [weak self] in
            self?.check = nil
            self?.takeSnapshot()
        }
        self.check = check
        self.queue.asyncAfter(deadline: .now() + Self.settlingTime, execute: check)
    }

    private func takeSnapshot() {
        self.report(NetworkSnapshot.now()?.path ?? NetworkPath(isReachable: true))
    }
}
#endif
