import NIOCore
import Testing

@testable import HHSocket

@Suite struct HeartbeatMonitorTests {
    static let policy = HeartbeatPolicy(interval: .seconds(10), replyTimeout: .seconds(3), misses: 1)
    let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    private func at(_ seconds: Int64) -> NIODeadline { self.start + .seconds(seconds) }

    @Test func pingIsDueAfterTheIntervalOfSilence() {
        var monitor = HeartbeatMonitor(Self.policy, now: self.start)
        #expect(monitor.nextDeadline == self.at(10))
        #expect(monitor.tick(now: self.at(9)) == nil)
        #expect(monitor.tick(now: self.at(10)) == .ping)
        #expect(monitor.awaitsReply)
    }

    @Test func sendingAloneDoesNotPutThePingOff() {
        var monitor = HeartbeatMonitor(Self.policy, now: self.start)
        for second in 1...9 { monitor.bytesSent(now: self.at(Int64(second))) }
        #expect(monitor.tick(now: self.at(10)) == .ping)
    }

    @Test func receivingAloneDoesNotPutThePingOff() {
        var monitor = HeartbeatMonitor(Self.policy, now: self.start)
        for second in 1...9 { monitor.bytesReceived(now: self.at(Int64(second))) }
        #expect(monitor.tick(now: self.at(10)) == .ping)
    }

    @Test func trafficBothWaysPutsThePingOff() {
        var monitor = HeartbeatMonitor(Self.policy, now: self.start)
        monitor.bytesSent(now: self.at(6))
        monitor.bytesReceived(now: self.at(7))
        #expect(monitor.tick(now: self.at(10)) == nil)
        #expect(monitor.nextDeadline == self.at(16))
    }

    @Test func anyByteAnswersAPing() {
        var monitor = HeartbeatMonitor(Self.policy, now: self.start)
        #expect(monitor.tick(now: self.at(10)) == .ping)
        monitor.bytesSent(now: self.at(10))
        monitor.bytesReceived(now: self.at(12))
        #expect(!monitor.awaitsReply)
        #expect(monitor.tick(now: self.at(13)) == nil)
        #expect(monitor.nextDeadline == self.at(20))
    }

    @Test(arguments: 0...3)
    func peerIsDeadAfterOneMoreThanTheAllowedMisses(misses: Int) {
        let policy = HeartbeatPolicy(interval: .seconds(10), replyTimeout: .seconds(3), misses: misses)
        var monitor = HeartbeatMonitor(policy, now: self.start)
        var now = self.at(10)
        for _ in 0...misses {
            #expect(monitor.tick(now: now) == .ping)
            monitor.bytesSent(now: now)
            now = now + .seconds(3)
        }
        #expect(monitor.tick(now: now) == .peerIsDead(silentFor: now - self.start))
        #expect(now == self.at(10 + 3 * Int64(misses + 1)))
    }

    @Test func clockStandsStillWhileOurBytesCannotLeave() {
        var monitor = HeartbeatMonitor(Self.policy, now: self.start)
        #expect(monitor.tick(now: self.at(10)) == .ping)
        monitor.writeIsBlocked(now: self.at(13))
        #expect(monitor.tick(now: self.at(13)) == nil)
        monitor.writeIsBlocked(now: self.at(16))
        #expect(monitor.tick(now: self.at(16)) == nil)
        #expect(monitor.tick(now: self.at(19)) == .ping)
    }

    @Test func absurdPoliciesDoNotTrap() {
        let policy = HeartbeatPolicy(interval: .seconds(Int64.max), replyTimeout: .seconds(-1), misses: -5)
        var monitor = HeartbeatMonitor(policy, now: self.start)
        #expect(monitor.nextDeadline == .distantFuture)
        #expect(monitor.tick(now: self.at(1_000_000)) == nil)
    }
}
