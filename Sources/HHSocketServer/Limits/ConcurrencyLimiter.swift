// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers
import NIOCore

/// The computation of the number of requests that may be in flight. Times are passed in; it has no clock.
struct ConcurrencyGradient: Sendable {
    /// The number of requests in a window.
    static let windowLength = 100
    /// The number of windows after which the shortest time is measured again, with a quarter as many in flight: under a
    /// constant load nothing else would show that requests have become slower for good.
    private static let windowsBetweenMeasurements = 50
    /// The largest limit, which a floating-point number represents exactly; `Int.max` is none of these.
    private static let largestLimit = 1 << 48
    /// The share of a step that is applied at once.
    private static let smoothing = 0.5

    private let policy: AdaptiveConcurrency
    private var estimate: Double
    private(set) var inFlight = 0
    /// The shortest average of a window, in nanoseconds; nil while it is being measured.
    private var shortest: Double?
    private var windows = 0
    /// The number of requests whose times are still ignored: that many were in flight when the current measurement of
    /// the shortest time began.
    private var old = 0
    private var sum = 0.0
    private var count = 0
    /// The largest number in flight in this window.
    private var height = 0

    init(_ policy: AdaptiveConcurrency) {
        var policy = policy
        policy.minimum = min(max(1, policy.minimum), Self.largestLimit)
        policy.maximum = min(max(policy.minimum, policy.maximum), Self.largestLimit)
        policy.tolerance = policy.tolerance > 1 ? policy.tolerance : 1
        self.policy = policy
        self.estimate = Double(min(max(policy.initial, policy.minimum), policy.maximum))
    }

    /// The number of requests that may be in flight.
    var limit: Int {
        Int(
            self.shortest == nil && self.windows > 0
                ? max(Double(self.policy.minimum), self.estimate / 4) : self.estimate
        )
    }

    /// Admits one more request, until ``finished(after:)``; false if the limit is reached.
    mutating func start() -> Bool {
        guard self.inFlight < self.limit else { return false }
        self.inFlight += 1
        self.height = max(self.height, self.inFlight)
        return true
    }

    /// - Parameter time: The duration of the request; nil if it is not meaningful, because the request was cancelled.
    mutating func finished(after time: TimeAmount?) {
        self.inFlight -= 1
        guard self.old == 0 else {
            self.old -= 1
            return
        }
        guard let time, time > .nanoseconds(0) else { return }
        self.sum += Double(time.nanoseconds)
        self.count += 1
        if self.count >= Self.windowLength { self.endWindow() }
    }

    private mutating func endWindow() {
        let average = self.sum / Double(self.count)
        let shortest = min(self.shortest ?? average, average)
        let isMeasurement = self.shortest == nil
        self.windows += 1
        self.shortest = shortest
        if self.windows.isMultiple(of: Self.windowsBetweenMeasurements) {
            self.shortest = nil
            self.old = self.inFlight
        }
        let isUsed = Double(self.height) >= self.estimate / 2
        (self.sum, self.count, self.height) = (0, 0, self.inFlight)
        let gradient = min(1, max(0.5, self.policy.tolerance * shortest / average))
        // A server with little load does not show that more would be possible.
        guard !isMeasurement, isUsed || gradient < 1 else { return }
        let goal = self.estimate * gradient + self.estimate.squareRoot()
        let next = self.estimate * (1 - Self.smoothing) + goal * Self.smoothing
        self.estimate = min(max(next, Double(self.policy.minimum)), Double(self.policy.maximum))
    }
}

/// The limiter of all event loops of a server.
final class ConcurrencyLimiter: Sendable {
    private let gradient: NIOLockedValueBox<ConcurrencyGradient>

    init(_ policy: AdaptiveConcurrency) {
        self.gradient = NIOLockedValueBox(ConcurrencyGradient(policy))
    }

    var limit: Int { self.gradient.withLockedValue { $0.limit } }
    func start() -> Bool { self.gradient.withLockedValue { $0.start() } }
    func finished(after time: TimeAmount?) { self.gradient.withLockedValue { $0.finished(after: time) } }
}
