// SPDX-License-Identifier: Apache-2.0
/// The time that the machine sleeps, which the clock of event loops does not count.
package struct SleepMeter: Sendable {
    private let begun = (continuous: ContinuousClock.now, suspending: SuspendingClock.now)

    package init() {}

    /// Since this was made, never less than zero.
    package var total: Duration {
        let all = ContinuousClock.now - self.begun.continuous
        return max(.zero, all - (SuspendingClock.now - self.begun.suspending))
    }
}
