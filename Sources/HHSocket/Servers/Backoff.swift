// SPDX-License-Identifier: Apache-2.0
/// The waits between rounds of connection attempts. A round tries each server once.
///
/// By default each wait, including the first, is drawn evenly from zero to a bound that doubles, so that the clients of
/// a failed server do not return at the same time. Other policies are values of the same type:
///
/// ```swift
/// Backoff(base: .seconds(2), cap: .seconds(1024), jitter: 0, maximumRounds: 10)  // 2, 4, 8 … 1024 s, ten attempts
/// Backoff(base: .seconds(2), cap: .seconds(64), jitter: 0, maximumRounds: 5)     // 2, 4 … 32 s, never over 64, five
/// Backoff.immediate                                                              // at once
/// ```
public struct Backoff: Hashable, Sendable {
    /// The bound of the first wait.
    package var base: Duration
    /// The factor by which the bound grows after each failed round.
    package var factor: Double
    /// The longest bound.
    package var cap: Duration
    /// The random share of each wait, 0 to 1: a wait is drawn evenly from `bound * (1 - jitter)` to `bound`. With 0 the
    /// clients of a failed server return at the same time.
    package var jitter: Double
    /// The time for which a connection must have been ready for the bound to start over, so that a server which accepts
    /// and closes does not cause a tight loop.
    package var resetAfter: Duration
    /// The number of consecutive rounds without a ready connection after which attempts stop; nil for never. 1 at
    /// least.
    public var maximumRounds: Int?

    /// - Parameters:
    ///   - base: The bound of the first wait; 1 s by default.
    ///   - factor: The factor by which the bound grows after each failed round; 2 by default.
    ///   - cap: The longest bound; 60 s by default.
    ///   - jitter: The random share of each wait, 0 to 1: a wait is drawn evenly from `bound * (1 - jitter)` to
    ///     `bound`. With 0 the clients of a failed server return at the same time. 1 by default: the whole wait is
    ///     random ("full jitter").
    ///   - resetAfter: The time for which a connection must have been ready for the bound to start over, so that a
    ///     server which accepts and closes does not cause a tight loop; 10 s by default.
    ///   - maximumRounds: The number of consecutive rounds without a ready connection after which attempts stop, 1 at
    ///     least; nil, the default, for never.
    public init(
        base: Duration = .seconds(1),
        factor: Double = 2,
        cap: Duration = .seconds(60),
        jitter: Double = 1,
        resetAfter: Duration = .seconds(10),
        maximumRounds: Int? = nil
    ) {
        self.base = base
        self.factor = factor
        self.cap = cap
        self.jitter = jitter
        self.resetAfter = resetAfter
        self.maximumRounds = maximumRounds
    }

    /// Reconnects at once and, while that fails, every 100 ms. For a server on the same machine: many such clients
    /// would all hit a server the moment it returns.
    public static let immediate = Backoff(base: .zero, cap: .zero)

    /// The shortest wait except the first after a stable connection, whatever the policy: a server that refuses, or
    /// accepts and closes, never causes a tight loop. 100 ms, the shortest isolation of brpc.
    package static let minimumRepeatedWait = Duration.milliseconds(100)

    /// Returns the longest wait after `failures` earlier ones.
    func bound(afterFailures failures: Int) -> Duration {
        var bound = self.base.inSeconds
        let cap = self.cap.inSeconds
        var remaining = failures
        while remaining > 0, bound < cap, self.factor > 1 {
            bound *= self.factor
            remaining -= 1
        }
        return max(self.minimum(afterFailures: failures), .seconds(max(0, min(bound, cap))))
    }

    private func minimum(afterFailures failures: Int) -> Duration {
        failures == 0 ? .zero : Self.minimumRepeatedWait
    }

    /// Returns a wait after `failures` earlier ones.
    package func delay(afterFailures failures: Int, using generator: inout some RandomNumberGenerator) -> Duration {
        let bound = self.bound(afterFailures: failures)
        let jitter = self.jitter.isFinite ? min(max(self.jitter, 0), 1) : 1
        let share = Double.random(in: (1 - jitter)...1, using: &generator)
        return max(self.minimum(afterFailures: failures), .seconds(bound.inSeconds * share))
    }
}
