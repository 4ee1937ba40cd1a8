import Dispatch

/// Gathers the paths of a burst, such as a phone's change from Wi-Fi to cellular brings, and reports the last of them,
/// since each path that is reported begins all connection attempts anew. Used on one queue.
final class PathSettler: @unchecked Sendable {
    // Proof of Sendable: variables are touched on the queue alone.

    /// How long paths are gathered, from the first of them on. `NetlinkWatcher` gathers for as long.
    static let settlingTime = DispatchTimeInterval.milliseconds(200)

    private let queue: DispatchQueue
    private let report: @Sendable (NetworkPath) -> Void
    private var hasReported = false
    /// The latest path that was not reported yet.
    private var latest: NetworkPath?
    private var isCancelled = false

    init(queue: DispatchQueue, report: @escaping @Sendable (NetworkPath) -> Void) {
        self.queue = queue
        self.report = report
    }

    /// Takes the next path. The first of all is reported at once.
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

    /// Nothing is reported any more.
    func cancel() {
        self.isCancelled = true
    }
}
