// SPDX-License-Identifier: Apache-2.0
import NIOCore
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// The heartbeat on an idle connection through a simulated NAT, in virtual time.
@Suite struct HeartbeatNATTests {
    private let policy = HeartbeatPolicy(strategy: .adaptive())

    @Test(arguments: [60, 209, 211, 240, 271, 300, 333, 390, 420, 450, 512, 569, 599, 601, 3_600] as [Int64])
    func settlesBelowTheNATsTimeoutWithinAStep(timeout: Int64) throws {
        var link = SimulatedLink(self.policy, natTimeout: .seconds(timeout))
        link.run(pings: 80)
        let settled = try #require(link.intervals.last)
        #expect(link.intervals.suffix(20).allSatisfy { $0 == settled }, "\(link.intervals)")
        if timeout <= 210 {
            #expect(settled == .seconds(210))
            #expect(link.deaths == 80)
        } else if timeout > 600 {
            #expect(settled == .seconds(600))
            #expect(link.deaths == 0)
        } else {
            #expect(settled >= .seconds(timeout - 60) && settled <= .seconds(timeout))
            // Detecting the timeout costs two connections, and then none. It costs four if the timeout equals an
            // interval: pings are idle for a round trip less than the interval, except after a new connection.
            #expect(link.deaths == ((timeout - 210) % 60 == 0 ? 4 : 2))
        }
        #expect(link.timesToDeath.allSatisfy { $0 <= .seconds(600 + 2 * 8) })
    }

    @Test(arguments: [5, 17, 30, 100] as [Int64])
    func settlesWithinSmallerStepsToo(step: Int64) throws {
        let adaptive = AdaptiveHeartbeat(minimum: .seconds(20), maximum: .seconds(900), step: .seconds(step))
        for timeout in stride(from: 25, through: 895, by: 29) as StrideThrough<Int64> {
            var link = SimulatedLink(HeartbeatPolicy(strategy: adaptive), natTimeout: .seconds(timeout))
            link.run(pings: 950)
            var counts: [Duration: Int] = [:]
            for interval in link.intervals { counts[interval, default: 0] += 1 }
            let settled = try #require(counts.max { $0.value < $1.value }?.key)
            #expect(settled <= .seconds(timeout))
            #expect(settled >= .seconds(timeout - step), "timeout \(timeout)")
        }
    }

    @Test func deadLinkBehindANATIsNoticedInTheStatedTime() {
        var link = SimulatedLink(self.policy, natTimeout: .seconds(60))
        link.run(pings: 10)
        // 210 s of silence, and two reply timeouts of 8 s.
        #expect(link.timesToDeath == Array(repeating: .seconds(226), count: 10))
    }

    @Test func networkThatGetsWorseIsFollowedDownAndOneThatGetsBetterUpAgain() {
        var link = SimulatedLink(self.policy, natTimeout: .seconds(500))
        link.run(pings: 80)
        #expect(link.intervals.last == .seconds(450))
        link.natTimeout = .seconds(250)
        link.run(pings: 20)
        #expect(link.intervals.last == .seconds(210))
        link.natTimeout = .seconds(2_000)
        link.run(pings: 80)
        #expect(link.intervals.last == .seconds(210))
        link.run(pings: 60)
        #expect(link.intervals.last == .seconds(600))
    }

    @Test func tryingAgainCostsTwoConnectionsInAHundredPings() {
        var link = SimulatedLink(self.policy, natTimeout: .seconds(300))
        link.run(pings: 30)
        #expect(link.deaths == 2)
        link.run(pings: 1_020)
        #expect(link.deaths == 22)
        #expect(link.intervals.suffix(90).contains(.seconds(270)))
        #expect(link.intervals.allSatisfy { $0 <= .seconds(330) })
    }

    @Test func activeAppPingsAtTheMinimumAndTheBackgroundContinuesWhereItWas() {
        var link = SimulatedLink(self.policy, natTimeout: .seconds(500))
        link.run(pings: 80)
        #expect(link.intervals.last == .seconds(450))
        link.tuner.applicationChanged(isActive: true)
        link.run(pings: 40)
        #expect(link.intervals.suffix(40).allSatisfy { $0 == .seconds(210) })
        link.tuner.applicationChanged(isActive: false)
        link.run(pings: 10)
        #expect(link.intervals.suffix(10).allSatisfy { $0 == .seconds(450) })
        #expect(link.deaths == 2)
    }

    @Test func everyThreeMinutesOutlivesANATOfFiveMinutes() {
        var link = SimulatedLink(HeartbeatPolicy(interval: .seconds(180)), natTimeout: .seconds(300))
        link.run(pings: 1_000)
        #expect(link.deaths == 0)
        link = SimulatedLink(HeartbeatPolicy(interval: .seconds(600)), natTimeout: .seconds(300))
        link.run(pings: 10)
        #expect(link.deaths == 10)
    }

    // MARK: Memory

    @Test func eachNetworkIsRememberedByItsName() {
        let storage = InMemoryHeartbeatStorage()
        var link = SimulatedLink(self.policy, natTimeout: .seconds(500), network: "home", storage: storage)
        link.run(pings: 80)
        link.tuner.networkChanged(to: "work")
        #expect(link.tuner.interval == .seconds(210))
        link.natTimeout = .seconds(300)
        link.run(pings: 40)
        #expect(link.tuner.interval == .seconds(270))
        link.tuner.networkChanged(to: "home")
        #expect(link.tuner.interval == .seconds(450))

        // Another connection, for example after a restart, knows the interval immediately.
        var another = SimulatedLink(self.policy, natTimeout: .seconds(500), network: "home", storage: storage)
        another.run(pings: 20)
        #expect(another.intervals.allSatisfy { $0 == .seconds(450) })
        #expect(another.deaths == 0)
        #expect(HeartbeatTuner(self.policy.interval, network: "train", storage: storage).interval == .seconds(210))
    }

    @Test func pingsThatProveNothingAreNotLearnedFrom() {
        let storage = InMemoryHeartbeatStorage()
        var tuner = HeartbeatTuner(self.policy.interval, network: "home", storage: storage)
        for _ in 0..<10 { tuner.observe(.init(isAnswered: false)) }
        #expect(storage.runs(forNetwork: "home").isEmpty)
        for _ in 0..<3 { tuner.observe(.init(isAnswered: true, testedInterval: .seconds(210))) }
        #expect(tuner.interval == .seconds(270))
        #expect(storage.runs(forNetwork: "home") == [.init(interval: .seconds(210), isAnswered: true, count: 3)])
    }
}
