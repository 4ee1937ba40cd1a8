// SPDX-License-Identifier: Apache-2.0
import Dispatch

/// Gathers the paths of a burst, such as when a phone changes from Wi-Fi to cellular, and reports the last of them,
/// since each reported path restarts all connection attempts. Used on one queue.
final class PathSettler: @unchecked Sendable {
    // Proof of Sendable: variables are used only on the queue.

    /// The time for which paths are gathered, counted from the first. `NetlinkWatcher` uses it too.
    static let settlingTime = DispatchTimeInterval.milliseconds(200)

    private let queue: DispatchQueue
    private let report: @Sendable (NetworkPath) -> Void
    private var hasReported = false
    /// The latest path not yet reported.
    private var latest: NetworkPath?
    private var isCancelled = false

    init(queue: DispatchQueue, report: @escaping @Sendable (NetworkPath) -> Void) {
        self.queue = queue
        self.report = report
    }

    /// Accepts the next path. The very first is reported at once.
    func take(_ path: NetworkPath) {
        guard self.hasReported else {
            self.hasReported = true
            return self.report(path)
        }
        let isGathering = self.latest != nil
        self.latest = path
        guard !isGathering else { return }
        self.queue.asyncAfter(deadline: .now() + Self.settlingTime) {
            guard !self.isCancelled, let latest = self.latest else { return }
            self.latest = nil
            self.report(latest)
        }
    }

    /// Stops reporting.
    func cancel() {
        self.isCancelled = true
    }
}
