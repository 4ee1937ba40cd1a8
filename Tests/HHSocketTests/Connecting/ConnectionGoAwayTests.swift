// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocket

/// Servers that send a go-away.
@Suite struct ConnectionGoAwayTests {
    let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    private func id(_ number: UInt64) -> ConnectionID { ConnectionID(number: number) }

    private func ready(
        _ servers: [Endpoint] = [serverA, serverB],
        policy: ServerPolicy = ServerPolicy(),
        seed: UInt64 = 1,
        _ change: (inout Machine.Settings) -> Void = { _ in }
    ) -> Machine {
        var settings = Machine.Settings()
        change(&settings)
        var machine = Machine(
            servers: servers,
            policy: policy,
            settings: settings,
            generator: SeededGenerator(seed: seed)
        )
        _ = machine.connect(now: self.start)
        _ = machine.connected(self.id(1), now: self.start)
        return machine
    }

    private func goAway(
        _ machine: inout Machine,
        _ number: UInt64 = 1,
        for time: Duration? = .seconds(10),
        others: [Endpoint] = [],
        isAnnounced: Bool = true,
        at now: NIODeadline? = nil
    ) -> [Machine.Action] {
        machine.goAway(
            self.id(number),
            GoAway(reason: "restart", retryAfter: time, endpoints: others),
            isAnnounced: isAnnounced,
            now: now ?? self.start
        )
    }

    // MARK: When the successor is made

    @Test func callIsSentAtOnceToAnotherServerAndTheOldConnectionDrainsThen() {
        var machine = self.ready()
        #expect(
            self.goAway(&machine).texts == ["report a:1 sent a go-away, for 10.0 s: restart", "go-away 1", "put off"]
        )
        #expect(machine.state.description == "ready, a:1")
        #expect(machine.reconnectSooner(now: self.start).deeds == ["open 2 b:2"])
        #expect(machine.state.description == "ready, a:1")
        #expect(machine.connected(self.id(2), now: self.start).deeds == ["ready 2 b:2", "drain 1"])
        #expect(machine.nextDeadline == nil)
    }

    @Test func idleClientSwitchesAtARandomMomentWithinTheAnnouncedTime() throws {
        var seconds: [Double] = []
        for seed in 0..<500 as Range<UInt64> {
            var machine = self.ready(seed: seed)
            _ = self.goAway(&machine)
            let timer = try #require(machine.nextDeadline)
            seconds.append(Double((timer - self.start).nanoseconds) / 1e9)
            #expect(machine.timerFired(now: timer).deeds == ["open 2 b:2"])
        }
        #expect(seconds.allSatisfy { (0...10).contains($0) })
        for second in 0..<10 {
            let share = seconds.count { Int($0) == second }
            #expect((20...90).contains(share), "\(share) of 500 leave in second \(second)")
        }
    }

    @Test func onlyServerIsLeftAloneUntilItsTime() {
        var machine = self.ready([serverA])
        _ = self.goAway(&machine, for: .seconds(30))
        let time = self.start + .seconds(30)
        #expect(machine.nextDeadline == time)
        #expect(machine.timerFired(now: time - .nanoseconds(1)).isEmpty)
        #expect(machine.timerFired(now: time).deeds == ["open 2 a:1"])
        let actions = machine.connected(self.id(2), now: time).texts
        #expect(actions == ["ready 2 a:1", "drain 1", "report switched from a:1 to a:1"])
    }

    @Test(arguments: [200, 30_000] as [Int64]) func callHasTheOnlyServerTriedWithinASecondOrItsTime(time: Int64) throws
    {
        var machine = self.ready([serverA])
        _ = self.goAway(&machine, for: .milliseconds(time))
        #expect(machine.reconnectSooner(now: self.start).isEmpty)
        let timer = try #require(machine.nextDeadline)
        #expect(timer > self.start && timer <= self.start + .milliseconds(min(time, 1_000)))
        #expect(machine.reconnectSooner(now: self.start).isEmpty)
        #expect(machine.nextDeadline == timer, "later calls change nothing")
        #expect(machine.timerFired(now: timer).deeds == ["open 2 a:1"])
    }

    @Test func otherServersAreTriedAgainAndTheOneThatWentAwayNotBeforeItsTime() throws {
        var machine = self.ready()
        _ = self.goAway(&machine, for: .seconds(20))
        var now = self.start
        var actions = machine.reconnectSooner(now: now)
        var tried: [String] = []
        while let endpoint = machine.endpointBeingTried {
            tried += actions.deeds.filter { $0.hasPrefix("open") }.map { String($0.suffix(3)) }
            if endpoint == serverA { break }
            actions = machine.connectFailed(self.id(machine.nextID - 1), because: refused(endpoint), now: now)
            #expect(actions.texts.suffix(2) == ["report switch failed connectionRefused", "put off"])
            let timer = try #require(machine.nextDeadline)
            #expect(timer > now)
            now = timer
            actions = machine.timerFired(now: now)
        }
        #expect(now >= self.start + .seconds(20))
        #expect(tried.count > 3)
        #expect(tried.last == "a:1" && tried.dropLast().allSatisfy { $0 == "b:2" })
    }

    @Test func roundsThatFailMakeNoTightLoopHoweverManyCallsWait() throws {
        var machine = self.ready()
        _ = self.goAway(&machine, for: .seconds(300))
        var now = self.start
        var waits: [TimeAmount] = []
        _ = machine.reconnectSooner(now: now)
        for _ in 0..<200 {
            let endpoint = try #require(machine.endpointBeingTried)
            _ = machine.connectFailed(self.id(machine.nextID - 1), because: refused(endpoint), now: now)
            // A call keeps waiting.
            _ = machine.reconnectSooner(now: now)
            while machine.endpointBeingTried == nil {
                let timer = try #require(machine.nextDeadline)
                waits.append(timer - now)
                now = timer
                _ = machine.timerFired(now: now)
            }
        }
        // As in other outages, calls shorten the waits only at first.
        #expect(waits.prefix(4).allSatisfy { $0 <= .seconds(1) })
        #expect(waits.contains { $0 > .seconds(15) } && waits.allSatisfy { $0 <= .seconds(60) })
        #expect(waits.map(\.nanoseconds).reduce(0, +) > 200 * 10_000_000_000, "at most once in ten seconds, on average")
    }

    @Test func whatIsInFlightMakesNoMoreAttemptsWhileItsServerDrainsThanTheBackoffAllows() throws {
        var machine = self.ready([serverA]) {
            $0.backoff = Backoff(base: .seconds(5), cap: .seconds(60), jitter: 0)
        }
        _ = self.goAway(&machine, for: .milliseconds(461))
        var now = self.start
        var attempts = 0
        var failures = 0
        while true {
            // The client requests an earlier round after each one, as long as a call is in flight.
            _ = machine.reconnectSooner(now: now)
            let timer = try #require(machine.nextDeadline)
            guard timer - self.start < .seconds(40) else { break }
            now = timer
            let actions = machine.timerFired(now: now)
            attempts += actions.count { if case .open = $0 { true } else { false } }
            guard let endpoint = machine.endpointBeingTried else { continue }
            let events = machine.connectFailed(self.id(machine.nextID - 1), because: refused(endpoint), now: now)
            failures += events.count { if case .report(.connectFailed) = $0 { true } else { false } }
        }
        #expect((3...6).contains(attempts), "\(attempts) attempts in 40 s")
        #expect(failures == attempts)
    }

    // MARK: Where

    @Test func serversThatAreNamedArePreferredInTheirOrder() {
        var machine = self.ready([serverA, serverB, serverC])
        _ = self.goAway(&machine, others: [serverC, serverB])
        #expect(machine.reconnectSooner(now: self.start).deeds == ["open 2 c:3"])
        #expect(machine.connectFailed(self.id(2), because: refused(serverC), now: self.start).deeds == ["open 3 b:2"])
    }

    private let stranger = Endpoint(host: "x", port: 9)

    @Test func strangersThatAreNamedAreNotUsed() {
        var machine = self.ready()
        _ = self.goAway(&machine, others: [self.stranger])
        #expect(machine.reconnectSooner(now: self.start).deeds == ["open 2 b:2"])
        #expect(machine.connectFailed(self.id(2), because: refused(serverB), now: self.start).deeds == ["put off"])
        #expect(machine.servers.endpoints == [serverA, serverB])
    }

    @Test func strangersAreUsedWhereThatIsAllowedSixteenAtMostAndNoneOfThisMachine() {
        var machine = self.ready(policy: ServerPolicy(acceptsOtherEndpoints: true))
        let many = (1...40).map { Endpoint(host: "x", port: $0) }
        _ = self.goAway(&machine, others: [Endpoint(unixPath: "/var/run/secret")] + many)
        #expect(machine.reconnectSooner(now: self.start).deeds == ["open 2 x:1"])
        #expect(machine.servers.count == 2 + 15)
        _ = machine.connected(self.id(2), now: self.start)
        // The servers of the next go-away replace the earlier ones, except the one in use.
        _ = self.goAway(&machine, 2, others: many.suffix(3))
        #expect(machine.servers.endpoints == [serverA, serverB, many[0]] + many.suffix(3))
        #expect(machine.reconnectSooner(now: self.start).deeds == ["open 3 x:38"])
    }

    // MARK: No failure

    @Test func goAwayIsNotHeldAgainstTheServer() {
        var machine = self.ready()
        var now = self.start
        for number in 1...20 as ClosedRange<UInt64> {
            now = now + .seconds(60)
            _ = self.goAway(&machine, number, for: .seconds(1), at: now)
            _ = machine.reconnectSooner(now: now)
            #expect(machine.connected(self.id(number + 1), now: now).deeds.last == "drain \(number)")
            _ = machine.connectionLost(self.id(number), because: lostError, now: now)
        }
        #expect(!machine.servers.isBanned(serverA, now: now) && !machine.servers.isBanned(serverB, now: now))
        #expect(machine.failures == 0)
    }

    @Test func timeThatAServerMayNameIsLimited() {
        var machine = self.ready([serverA])
        _ = self.goAway(&machine, for: .milliseconds(Int64(UInt32.max)))
        #expect(machine.nextDeadline == self.start + .seconds(300))
    }

    @Test func userWhoAsksForTheServerGetsItAtOnce() {
        var machine = self.ready()
        _ = self.goAway(&machine)
        #expect(machine.switchServer(to: serverA, now: self.start).deeds == ["open 2 a:1"])
        #expect(machine.connected(self.id(2), now: self.start).deeds == ["ready 2 a:1", "drain 1"])
    }

    @Test func onlyTheFirstGoAwayOfAConnectionCounts() {
        var machine = self.ready()
        _ = self.goAway(&machine)
        let timer = machine.nextDeadline
        #expect(self.goAway(&machine, for: .zero).isEmpty)
        #expect(machine.nextDeadline == timer)
        _ = machine.reconnectSooner(now: self.start)
        _ = machine.connected(self.id(2), now: self.start)
        #expect(self.goAway(&machine).isEmpty, "it drains already")
        #expect(self.goAway(&machine, 7).isEmpty, "no such connection")
    }

    @Test func goAwayAfterAnAnswerThatSaidSoBringsWhatThatDidNotSay() throws {
        var machine = self.ready([serverA])
        #expect(self.goAway(&machine, for: nil, isAnnounced: false).deeds == ["go-away 1", "put off"])
        #expect(try #require(machine.nextDeadline) <= self.start + .seconds(1))
        #expect(self.goAway(&machine, for: nil, isAnnounced: false).isEmpty)
        _ = machine.reconnectSooner(now: self.start)
        let actions = self.goAway(&machine, for: .seconds(30)).texts
        #expect(actions == ["report a:1 sent a go-away, for 30.0 s: restart", "put off"])
        #expect(machine.nextDeadline == self.start + .seconds(30))
        _ = machine.reconnectSooner(now: self.start)
        #expect(try #require(machine.nextDeadline) <= self.start + .seconds(1))
    }

    // MARK: Losses

    @Test func connectionThatIsLostBeforeItHasASuccessorIsReplacedAtOnce() {
        var machine = self.ready()
        _ = self.goAway(&machine)
        let actions = machine.connectionLost(self.id(1), because: lostError, now: self.start).deeds
        #expect(actions == ["lost 1 connectionLost", "being made", "open 2 b:2"])
        #expect(!machine.servers.isBanned(serverA, now: self.start))
    }

    @Test(arguments: [true, false]) func onlyServerThatClosesIsLeftAloneEvenByCallsIfItWasNeverOfUse(isStable: Bool)
        throws
    {
        var machine = self.ready([serverA])
        let now = isStable ? self.start + .seconds(60) : self.start
        _ = self.goAway(&machine, for: .seconds(30), at: now)
        if !isStable { _ = machine.reconnectSooner(now: now) }
        let actions = machine.connectionLost(self.id(1), because: lostError, now: now).deeds
        #expect(actions == ["lost 1 connectionLost", "being made", "put off"], "and `offline` is not reported")
        #expect(machine.nextDeadline == now + .seconds(30))
        _ = machine.reconnectSooner(now: now)
        let timer = try #require(machine.nextDeadline)
        #expect(isStable ? timer <= now + .seconds(1) : timer == now + .seconds(30))
        #expect(machine.timerFired(now: timer).deeds == ["being made", "open 2 a:1"])
    }

    @Test(arguments: 0..<20 as Range<UInt64>)
    func roundsThatFailedWhileTheOnlyServerWasEndingDoNotPutOffItsReturn(seed: UInt64) throws {
        var machine = self.ready([serverA], seed: seed) { $0.backoff.cap = .seconds(3_600) }
        var now = self.start + .seconds(60)
        _ = self.goAway(&machine, for: .milliseconds(100), at: now)
        for _ in 0..<12 {
            now = try #require(machine.nextDeadline)
            _ = machine.timerFired(now: now)
            _ = machine.connectFailed(self.id(machine.nextID - 1), because: refused(serverA), now: now)
        }
        // Now the server has ended. It is tried immediately, and then with a new back-off.
        _ = machine.connectionLost(self.id(1), because: lostError, now: now)
        _ = machine.connectFailed(self.id(machine.nextID - 1), because: refused(serverA), now: now)
        let next = try #require(machine.nextDeadline)
        #expect(next <= now + .seconds(1), "\(next - now)")
    }

    @Test func serverThatOnlySendsItsClientsAwayMeetsGrowingWaits() throws {
        var machine = self.ready([serverA])
        var now = self.start
        var waits: [Duration] = []
        for number in 1...12 as ClosedRange<UInt64> {
            _ = self.goAway(&machine, number, for: .zero, at: now)
            _ = machine.connectionLost(self.id(number), because: lostError, now: now)
            _ = machine.reconnectSooner(now: now)
            if let timer = machine.nextDeadline {
                waits.append(Duration(timer - now))
                now = timer
                _ = machine.timerFired(now: now)
            } else {
                waits.append(.zero)
            }
            #expect(machine.connected(self.id(number + 1), now: now).deeds.first == "ready \(number + 1) a:1")
        }
        #expect(waits.first == .zero)
        #expect(waits.dropFirst().allSatisfy { $0 >= .milliseconds(100) })
        #expect(waits.last.map { $0 >= .seconds(7) } == true, "\(waits)")
    }

    @Test func waitForAServerEndsWhenTheNetworkIsLost() {
        var machine = self.ready([serverA])
        _ = self.goAway(&machine)
        _ = machine.connectionLost(self.id(1), because: lostError, now: self.start)
        #expect(machine.networkChanged(isReachable: false, now: self.start).deeds == ["offline networkUnreachable"])
        // Another network does not bring the server back any sooner.
        let back = machine.networkChanged(isReachable: true, now: self.start)
        #expect(back.deeds == ["being made", "put off"])
        #expect(machine.nextDeadline == self.start + .seconds(10))
    }

    @Test func successorIsMadeWithinASecondWhenThereIsANetworkAgain() {
        var machine = self.ready()
        _ = machine.networkChanged(isReachable: false, now: self.start)
        #expect(self.goAway(&machine).deeds == ["go-away 1", "put off"])
        #expect(machine.nextDeadline == nil)
        #expect(machine.reconnectSooner(now: self.start).isEmpty)
        #expect(machine.networkChanged(isReachable: true, now: self.start).deeds == ["probe 1", "put off"])
        #expect(machine.nextDeadline.map { $0 <= self.start + .seconds(1) } == true)
        // At once if something is in flight.
        #expect(machine.reconnectSooner(now: self.start).deeds == ["open 2 b:2"])
    }

    @Test func successorThatIsBeingMadeIsMadeAnewOnAnotherPath() {
        var machine = self.ready()
        _ = self.goAway(&machine)
        #expect(machine.reconnectSooner(now: self.start).deeds == ["open 2 b:2"])
        #expect(machine.networkChanged(isReachable: true, now: self.start).deeds == ["probe 1", "close 2", "put off"])
        #expect(machine.nextDeadline.map { $0 <= self.start + .seconds(1) } == true)
        #expect(machine.reconnectSooner(now: self.start).deeds == ["open 3 b:2"])
    }

    // MARK: The gate

    @Test func goAwayDuringTheHandshakeIsAFailedAttemptAndNoFault() throws {
        var machine = self.ready { $0.handshake = LinkHandshake(timeout: .seconds(5), failure: "late") }
        let actions = self.goAway(&machine).texts
        #expect(
            actions == [
                "close 1", "report a:1 sent a go-away, for 10.0 s: restart", "report connect failed draining",
                "report connecting to b:2, attempt 2", "open 2 b:2",
            ]
        )
        let end = machine.connectFailed(self.id(2), because: refused(serverB), now: self.start).deeds
        #expect(end == ["offline connectionRefused"], "each server was tried")
        #expect(!machine.servers.isBanned(serverA, now: self.start))
        var tried: [String] = []
        while let timer = machine.nextDeadline, timer < self.start + .seconds(10) {
            tried += machine.timerFired(now: timer).deeds.filter { $0.hasPrefix("open") }.map { String($0.suffix(3)) }
            _ = machine.connectFailed(self.id(machine.nextID - 1), because: refused(serverB), now: timer)
        }
        #expect(!tried.isEmpty && tried.allSatisfy { $0 == "b:2" })
    }
}
