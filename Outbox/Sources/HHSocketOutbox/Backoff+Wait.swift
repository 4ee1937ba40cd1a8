// SPDX-License-Identifier: Apache-2.0
#if Outbox
import HHSocketRPC

extension Backoff {
    /// Returns a wait after `failures` earlier ones, like those between attempts to connect.
    func wait(afterFailures failures: Int, using generator: inout some RandomNumberGenerator) -> Duration {
        var bound = Self.seconds(self.base)
        // At most a day, which can be added to any time.
        let cap = min(Self.seconds(self.cap), 86_400)
        var remaining = failures
        while remaining > 0, bound < cap, self.factor > 1 {
            bound *= self.factor
            remaining -= 1
        }
        bound = max(0, min(bound, cap))
        let jitter = self.jitter.isFinite ? min(max(self.jitter, 0), 1) : 1
        let wait = Duration.seconds(bound * Double.random(in: (1 - jitter)...1, using: &generator))
        return failures == 0 ? wait : max(wait, Self.minimumRepeatedWait)
    }

    private static func seconds(_ duration: Duration) -> Double {
        let (seconds, attoseconds) = duration.components
        return Double(seconds) + Double(attoseconds) / 1e18
    }
}
#endif
