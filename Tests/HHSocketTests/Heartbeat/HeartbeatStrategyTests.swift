// SPDX-License-Identifier: Apache-2.0
import Testing

@testable import HHSocket
@testable import HHSocketLink

@Suite struct HeartbeatStrategyTests {
    private let active = HeartbeatHistory(isApplicationActive: true)
    private let inBackground = HeartbeatHistory()

    /// The properties that `Heartbeats.md` does not show.
    @Test func policiesReadAsTheyAreMeant() {
        var saving = HeartbeatPolicy(strategy: .fixed(.seconds(60), inBackground: .seconds(600)))
        saving.interval = .adaptive(minimum: .seconds(100))
        #expect(saving.interval.interval(for: self.inBackground) == .seconds(100))

        let custom = HeartbeatPolicy(strategy: .custom { .seconds($0.runs.count + 1) })
        #expect(custom.interval.interval(for: self.inBackground) == .seconds(1))

        let silent = HeartbeatPolicy(mode: .expectPings)
        #expect(silent.interval.interval(for: self.active) == .seconds(60))
        #expect(silent.replyTimeout == .seconds(8))
        #expect(silent.misses == 1)
    }
}
