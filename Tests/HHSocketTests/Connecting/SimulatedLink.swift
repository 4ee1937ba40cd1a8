// SPDX-License-Identifier: Apache-2.0
import NIOCore

@testable import HHSocket

/// An idle connection through a router with network address translation, in virtual time: the router forgets the
/// connection when nothing passed for its timeout, and drops everything later. Then the client reconnects.
struct SimulatedLink {
    private let policy: HeartbeatPolicy
    /// The time without a packet after which the router forgets a connection.
    var natTimeout: TimeAmount
    var roundTripTime = TimeAmount.milliseconds(80)
    var tuner: HeartbeatTuner
    private(set) var now = NIODeadline.uptimeNanoseconds(1_000_000_000_000)
    private var lastPacket: NIODeadline
    private var monitor: HeartbeatMonitor
    /// The intervals with which series of pings began, oldest first.
    private(set) var intervals: [Duration] = []
    private(set) var deaths = 0
    /// The times from the last passed packet to the detection of each death.
    private(set) var timesToDeath: [TimeAmount] = []

    init(
        _ policy: HeartbeatPolicy,
        natTimeout: TimeAmount,
        network: String = "",
        storage: (any HeartbeatStorage)? = nil
    ) {
        self.policy = policy
        self.natTimeout = natTimeout
        self.tuner = HeartbeatTuner(policy.interval, network: network, storage: storage)
        self.lastPacket = self.now
        self.monitor = HeartbeatMonitor(policy, interval: self.tuner.interval, canPing: true, now: self.now)
    }

    /// Runs until `pings` series of pings have been answered or have ended with the connection.
    mutating func run(pings: Int) {
        let end = self.intervals.count + pings
        while self.intervals.count < end || self.monitor.awaitsReply { self.step() }
    }

    private mutating func step() {
        self.monitor.setInterval(self.tuner.interval)
        self.now = max(self.now, self.monitor.nextTick(now: self.now))
        let isFirst = !self.monitor.awaitsReply
        switch self.monitor.tick(now: self.now) {
        case .ping:
            if isFirst { self.intervals.append(self.tuner.interval) }
            self.monitor.bytesSent(now: self.now)
            guard self.now - self.lastPacket < self.natTimeout else { return }
            self.now = self.now + self.roundTripTime
            self.lastPacket = self.now
            if let outcome = self.monitor.bytesReceived(now: self.now) { self.tuner.observe(outcome) }
        case .peerIsDead:
            self.deaths += 1
            self.timesToDeath.append(self.now - self.lastPacket)
            if let outcome = self.monitor.connectionLost() { self.tuner.observe(outcome) }
            self.now = self.now + .seconds(1)
            self.lastPacket = self.now
            self.monitor = HeartbeatMonitor(
                self.policy,
                interval: self.tuner.interval,
                canPing: true,
                now: self.now
            )
        case nil:
            break
        }
    }
}
