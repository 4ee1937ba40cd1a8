import NIOCore
import Testing

@testable import HHSocket

@Suite struct HeartbeatStrategyTests {
    private let active = HeartbeatHistory(isApplicationActive: true)
    private let inBackground = HeartbeatHistory()

    /// What the documentation shows.
    @Test func policiesReadAsTheyAreMeant() {
        let everyTenSeconds = HeartbeatPolicy(interval: .seconds(10))
        #expect(everyTenSeconds.interval.interval(for: self.active) == .seconds(10))
        #expect(everyTenSeconds.interval.interval(for: self.inBackground) == .seconds(10))
        #expect(everyTenSeconds.payload == ByteBuffer())
        #expect(everyTenSeconds.mode == .ping)

        let text = HeartbeatPolicy(interval: .seconds(60), payload: ByteBuffer(string: "alive"))
        #expect(text.payload == ByteBuffer(string: "alive"))

        var saving = HeartbeatPolicy(strategy: .fixed(.seconds(60), inBackground: .seconds(600)))
        #expect(saving.interval.interval(for: self.active) == .seconds(60))
        #expect(saving.interval.interval(for: self.inBackground) == .seconds(600))
        saving.interval = .adaptive(minimum: .seconds(100))
        #expect(saving.interval.interval(for: self.inBackground) == .seconds(100))

        let custom = HeartbeatPolicy(strategy: .custom { .seconds($0.runs.count + 1) })
        #expect(custom.interval.interval(for: self.inBackground) == .seconds(1))

        let careful = CustomHeartbeat { history in
            history.runs.suffix(3).allSatisfy(\.isAnswered) ? .seconds(120) : .seconds(60)
        }
        var history = self.inBackground
        #expect(careful.interval(for: history) == .seconds(120))
        history.record(interval: .seconds(120), isAnswered: false)
        #expect(careful.interval(for: history) == .seconds(60))

        let silent = HeartbeatPolicy(mode: .expectPings)
        #expect(silent.interval.interval(for: self.active) == .seconds(60))
        #expect(silent.replyTimeout == .seconds(8))
        #expect(silent.misses == 1)
    }
}
