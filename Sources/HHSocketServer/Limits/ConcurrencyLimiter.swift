import NIOConcurrencyHelpers
import NIOCore

/// Decides how many requests may be in flight at a time. Told the time; keeps none itself.
struct ConcurrencyGradient: Sendable {
    /// So many requests make up a window.
    static let windowLength = 100
    /// How much of the shortest time a window forgets.
    private static let forgetting = 0.02
    /// How much of a step is taken at once.
    private static let smoothing = 0.5

    private let policy: AdaptiveConcurrency
    private var estimate: Double
    private(set) var inFlight = 0
    /// The shortest time that was seen, in nanoseconds; it grows slowly towards what requests take now.
    private var shortest: Double?
    private var sum = 0.0
    private var count = 0
    /// The most that were in flight in this window.
    private var height = 0

    init(_ policy: AdaptiveConcurrency) {
        var policy = policy
        policy.minimum = max(1, policy.minimum)
        policy.maximum = max(policy.minimum, policy.maximum)
        policy.tolerance = policy.tolerance > 1 ? policy.tolerance : 1
        self.policy = policy
        self.estimate = Double(min(max(policy.initial, policy.minimum), policy.maximum))
    }

    /// How many may be in flight.
    var limit: Int { Int(self.estimate) }

    /// Whether one more may be; if so it is, until ``finished(after:)``.
    mutating func start() -> Bool {
        guard self.inFlight < self.limit else { return false }
        self.inFlight += 1
        self.height = max(self.height, self.inFlight)
        return true
    }

    /// - Parameter time: How long the request took; nil where that tells nothing, because it was cancelled.
    mutating func finished(after time: TimeAmount?) {
        self.inFlight -= 1
        guard let time, time > .nanoseconds(0) else { return }
        self.sum += Double(time.nanoseconds)
        self.count += 1
        if self.count >= Self.windowLength { self.endWindow() }
    }

    private mutating func endWindow() {
        let average = self.sum / Double(self.count)
        let shortest = min(self.shortest.map { $0 + ($0 < average ? ($0 * Self.forgetting) : 0) } ?? average, average)
        self.shortest = shortest
        let isUsed = Double(self.height) >= self.estimate / 2
        (self.sum, self.count, self.height) = (0, 0, self.inFlight)
        let gradient = min(1, max(0.5, self.policy.tolerance * shortest / average))
        // That there could be more, a server of which little is asked does not show.
        guard isUsed || gradient < 1 else { return }
        let goal = self.estimate * gradient + self.estimate.squareRoot()
        let next = self.estimate * (1 - Self.smoothing) + goal * Self.smoothing
        self.estimate = min(max(next, Double(self.policy.minimum)), Double(self.policy.maximum))
    }
}

/// The same for every event loop of a server.
final class ConcurrencyLimiter: Sendable {
    private let gradient: NIOLockedValueBox<ConcurrencyGradient>

    init(_ policy: AdaptiveConcurrency) {
        self.gradient = NIOLockedValueBox(ConcurrencyGradient(policy))
    }

    var limit: Int { self.gradient.withLockedValue { $0.limit } }
    func start() -> Bool { self.gradient.withLockedValue { $0.start() } }
    func finished(after time: TimeAmount?) { self.gradient.withLockedValue { $0.finished(after: time) } }
}
