// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocket

/// Successive connections: attempts, rounds, waits, limits.
@Suite struct ConnectionMachineTests {
    let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    private func machine(
        _ servers: [Endpoint] = [serverA, serverB],
        backoff: Backoff = Backoff(),
        seed: UInt64 = 1
    ) -> Machine {
        var settings = Machine.Settings()
        settings.backoff = backoff
        return Machine(servers: servers, settings: settings, generator: SeededGenerator(seed: seed))
    }

    @Test func connectsToTheFirstServerAtOnce() {
        var machine = self.machine()
        let actions = machine.connect(now: self.start).texts
        #expect(actions == ["being made", "report connecting to a:1, attempt 1", "open 1 a:1"])
        let connected = machine.connected(ConnectionID(number: 1), now: self.start)
        #expect(connected.texts == ["ready 1 a:1", "report connected to a:1"])
        #expect(machine.state.description == "ready, a:1")
        #expect(machine.connect(now: self.start).isEmpty)
        #expect(machine.nextDeadline == nil)
    }

    @Test func refusalMovesOnAtOnceAndARoundThatFailsWaits() throws {
        var machine = self.machine()
        _ = machine.connect(now: self.start)
        let next = machine.connectFailed(ConnectionID(number: 1), because: refused(serverA), now: self.start)
        #expect(next.texts.suffix(1) == ["open 2 b:2"])
        let end = machine.connectFailed(ConnectionID(number: 2), because: refused(serverB), now: self.start)
        #expect(
            end.texts == ["report connect failed connectionRefused", "offline connectionRefused", "report waiting"]
        )
        let timer = try #require(machine.nextDeadline)
        #expect(timer >= self.start && timer <= self.start + .seconds(1))
        guard case .waiting(timer, _) = machine.state else {
            Issue.record("not waiting: \(machine.state)")
            return
        }
    }

    @Test func timerStartsTheNextRoundAndNotBefore() throws {
        var machine = self.machine([serverA])
        _ = machine.connect(now: self.start)
        _ = machine.connectFailed(ConnectionID(number: 1), because: refused(serverA), now: self.start)
        let timer = try #require(machine.nextDeadline)
        #expect(machine.timerFired(now: timer - .nanoseconds(1)).isEmpty)
        #expect(machine.nextDeadline == timer)
        #expect(machine.timerFired(now: timer).texts.last == "open 2 a:1")
        #expect(machine.timerFired(now: timer).isEmpty)
    }

    @Test func lossReconnectsAfterAJitteredWaitWithTheServerThatDidNotFailFirst() throws {
        var machine = self.machine()
        _ = machine.connect(now: self.start)
        _ = machine.connected(ConnectionID(number: 1), now: self.start)
        let actions = machine.connectionLost(
            ConnectionID(number: 1),
            because: lostError,
            now: self.start + .seconds(100)
        )
        #expect(actions.texts.prefix(2) == ["lost 1 connectionLost", "report disconnected connectionLost"])
        let timer = try #require(machine.nextDeadline)
        #expect(timer <= self.start + .seconds(101))
        #expect(machine.timerFired(now: timer).texts.last == "open 2 b:2")
    }

    @Test func serverThatAcceptsAndClosesMeetsAGrowingWait() throws {
        var machine = self.machine([serverA], seed: 3)
        let waits = try self.waitsOfAcceptAndClose(&machine, 40)
        // By then the bound is 60 s, and the mean of 30 waits 30 s.
        #expect(waits.suffix(30).reduce(.zero, +) > .seconds(30 * 15))
        #expect(waits.allSatisfy { $0 <= .seconds(60) })
    }

    @Test func noPolicyMakesATightLoop() throws {
        var machine = self.machine([serverA], backoff: .immediate)
        let waits = try self.waitsOfAcceptAndClose(&machine, 10)
        #expect(waits.first == .zero)
        #expect(waits.dropFirst().allSatisfy { $0 == .milliseconds(100) })
    }

    private func waitsOfAcceptAndClose(_ machine: inout Machine, _ times: Int) throws -> [TimeAmount] {
        var now = self.start
        var id = ConnectionID(number: 1)
        var waits: [TimeAmount] = []
        _ = machine.connect(now: now)
        for _ in 0..<times {
            _ = machine.connected(id, now: now)
            _ = machine.connectionLost(id, because: lostError, now: now)
            let timer = try #require(machine.nextDeadline)
            waits.append(timer - now)
            now = timer
            _ = machine.timerFired(now: now)
            id.number += 1
        }
        return waits
    }

    @Test func backOffStartsOverAfterAConnectionThatStayed() throws {
        var machine = self.machine([serverA])
        var now = self.start
        _ = machine.connect(now: now)
        for number in 1...10 {
            _ = machine.connectFailed(ConnectionID(number: UInt64(number)), because: lostError, now: now)
            now = try #require(machine.nextDeadline)
            _ = machine.timerFired(now: now)
        }
        _ = machine.connected(ConnectionID(number: 11), now: now)
        now = now + .seconds(10)
        _ = machine.connectionLost(ConnectionID(number: 11), because: lostError, now: now)
        #expect(try #require(machine.nextDeadline) - now <= .seconds(1))
    }

    @Test func waitsStayAtTheCap() {
        let backoff = Backoff(base: .seconds(2), cap: .seconds(64), jitter: 0, maximumRounds: 7)
        var machine = self.machine([serverA], backoff: backoff)
        _ = machine.connect(now: self.start)
        _ = machine.connected(ConnectionID(number: 1), now: self.start)
        _ = machine.connectionLost(ConnectionID(number: 1), because: lostError, now: self.start + .seconds(60))
        let waits = machine.waitsUntilItGivesUp(from: self.start + .seconds(60))
        #expect(waits == [2, 4, 8, 16, 32, 64, 64].map { .seconds($0) })
        #expect(machine.state.description == "closed")
    }

    @Test func finalErrorNamesTheReasonOfEachServer() throws {
        var machine = self.machine(backoff: Backoff(maximumRounds: 2))
        _ = machine.connect(now: self.start)
        var now = self.start
        var last: [Machine.Action] = []
        while let endpoint = machine.endpointBeingTried {
            last = machine.connectFailed(ConnectionID(number: machine.nextID - 1), because: refused(endpoint), now: now)
            if let timer = machine.nextDeadline {
                now = timer
                _ = machine.timerFired(now: now)
            }
        }
        #expect(last.texts.suffix(2) == ["offline connectionRefused", "report gave up noServerReachable"])
        guard case .report(.gaveUp(let error))? = last.last else { return }
        let causes = try #require(error.underlying as? UnreachableServers)
        #expect(causes.errors.compactMap(\.endpoint) == [serverA, serverB])
        #expect(error.message.contains("after 2 rounds") && error.message.contains("a:1 refused"))
        #expect(machine.timerFired(now: now + .hours(1)).isEmpty)
        #expect(machine.connect(now: now).texts.last == "open 5 a:1")
    }

    @Test func attemptsOfOneConnectAreLimitedAndNoLongerOnceReady() {
        var machine = self.machine([serverA], backoff: Backoff(jitter: 0))
        _ = machine.connect(attempts: 3, now: self.start)
        #expect(machine.waitsUntilItGivesUp(from: self.start) == [.seconds(1), .seconds(2)])
        #expect(machine.state.description == "closed")
        _ = machine.connect(attempts: 1, now: self.start)
        _ = machine.connected(ConnectionID(number: machine.nextID - 1), now: self.start)
        _ = machine.connectionLost(ConnectionID(number: machine.nextID - 1), because: lostError, now: self.start)
        #expect(machine.waitsUntilItGivesUp(from: self.start).count > 100)
    }

    @Test func disconnectStaysClosed() {
        var machine = self.machine()
        _ = machine.connect(now: self.start)
        _ = machine.connected(ConnectionID(number: 1), now: self.start)
        let actions = machine.disconnect(now: self.start).texts
        #expect(actions == ["lost 1 cancelled", "close 1", "offline cancelled", "report closed"])
        #expect(machine.connectionLost(ConnectionID(number: 1), because: lostError, now: self.start).isEmpty)
        #expect(machine.timerFired(now: self.start + .hours(1)).isEmpty)
        #expect(machine.disconnect(now: self.start).isEmpty)
    }

    @Test func attemptThatSucceedsAfterDisconnectIsClosed() {
        var machine = self.machine()
        _ = machine.connect(now: self.start)
        #expect(machine.disconnect(now: self.start).texts.first == "close 1")
        #expect(machine.connected(ConnectionID(number: 1), now: self.start).texts == ["close 1"])
        #expect(machine.connectFailed(ConnectionID(number: 1), because: lostError, now: self.start).isEmpty)
    }

    @Test func firstCallInAWaitPullsTheAttemptForwardAndLaterOnesChangeNothing() throws {
        var machine = self.machine([serverA], seed: 5)
        var now = self.start
        _ = machine.connect(now: now)
        for number in 1...3 {
            _ = machine.connectFailed(ConnectionID(number: UInt64(number)), because: lostError, now: now)
            now = try #require(machine.nextDeadline)
            _ = machine.timerFired(now: now)
        }
        _ = machine.connectFailed(ConnectionID(number: 4), because: lostError, now: now)
        _ = machine.reconnectSooner(now: now)
        let sooner = try #require(machine.nextDeadline)
        #expect(sooner <= now + .seconds(1))
        _ = machine.reconnectSooner(now: now)
        #expect(machine.nextDeadline == sooner)
        #expect(machine.timerFired(now: sooner).texts.last == "open 5 a:1")
    }

    /// Otherwise a polling app would attempt as often as it calls, and so would a hundred thousand of them at once.
    @Test func callsDoNotUndoTheBackoffOfALongOutage() throws {
        var machine = self.machine([serverA], seed: 5)
        var now = self.start
        _ = machine.connect(now: now)
        for number in 1...30 {
            _ = machine.connectFailed(ConnectionID(number: UInt64(number)), because: lostError, now: now)
            let deadline = try #require(machine.nextDeadline)
            _ = machine.reconnectSooner(now: now)
            // 1, 2, 4 and 8 s are below a quarter of the cap of 60 s.
            if number > 4 { #expect(machine.nextDeadline == deadline, "round \(number)") }
            now = try #require(machine.nextDeadline)
            _ = machine.timerFired(now: now)
        }
    }

    @Test func limitOfAttemptsIsForTheRoundsThatItWasAskedFor() throws {
        var machine = self.machine([serverA])
        _ = machine.connect(now: self.start)
        _ = machine.connected(ConnectionID(number: 1), now: self.start)
        // It has nothing to do, so it does not limit later attempts.
        #expect(machine.connect(attempts: 1, now: self.start).isEmpty)
        _ = machine.connectionLost(ConnectionID(number: 1), because: lostError, now: self.start)
        var now = try #require(machine.nextDeadline)
        _ = machine.timerFired(now: now)
        #expect(
            !machine.connectFailed(ConnectionID(number: 2), because: lostError, now: now).texts.contains {
                $0.contains("gave up")
            }
        )
        // Nor does another caller's request remove a limit.
        now = try #require(machine.nextDeadline)
        _ = machine.connect(attempts: 1, now: now)
        #expect(machine.connect(now: now).isEmpty)
        _ = machine.connectFailed(ConnectionID(number: 3), because: lostError, now: now)
        #expect(machine.nextDeadline == nil)
    }

    @Test func noServersIsAnErrorAndNotALoop() {
        var machine = self.machine([])
        let actions = machine.connect(now: self.start).texts
        #expect(actions == ["being made", "offline invalidArgument", "report gave up invalidArgument"])
        #expect(machine.nextDeadline == nil)
    }
}

/// The consequences of a connection's end, and links that may not overlap.
@Suite struct ConnectionEndTests {
    private let now = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    private func ready(_ settings: Machine.Settings = Machine.Settings()) -> Machine {
        var machine = Machine(
            servers: [serverA, serverB],
            settings: settings,
            generator: SeededGenerator(seed: 1)
        )
        _ = machine.connect(now: self.now)
        _ = machine.connected(ConnectionID(number: 1), now: self.now)
        return machine
    }

    @Test func connectionThatEndsAtOnceIsMadeAgainAtOnce() {
        var machine = self.ready()
        let actions = machine.connectionLost(
            ConnectionID(number: 1),
            because: lostError,
            verdict: EndVerdict(.atOnce),
            now: self.now
        )
        #expect(actions.deeds.prefix(2) == ["lost 1 connectionLost", "being made"])
        #expect(actions.contains { if case .open = $0 { true } else { false } })
    }

    @Test func connectionThatMayNeverBeMadeAgainIsGivenUp() {
        var machine = self.ready()
        let actions = machine.connectionLost(
            ConnectionID(number: 1),
            because: lostError,
            verdict: EndVerdict(.never),
            now: self.now
        )
        #expect(actions.texts.contains { $0.hasPrefix("report gave up") })
        guard case .closed = machine.state else {
            Issue.record("\(machine.state)")
            return
        }
        #expect(machine.nextDeadline == nil)
    }

    @Test func endThatIsNotTheServersFaultIsNotHeldAgainstIt() {
        for isFault in [true, false] {
            var machine = self.ready()
            let used = machine.current?.endpoint
            _ = machine.connectionLost(
                ConnectionID(number: 1),
                because: lostError,
                verdict: EndVerdict(.atOnce, isServersFault: isFault),
                now: self.now
            )
            #expect((machine.endpointBeingTried == used) == !isFault)
        }
    }

    @Test func linkThatMayNotOverlapIsClosedBeforeAnotherIsOpened() {
        var settings = Machine.Settings()
        settings.linksMayOverlap = false
        var machine = self.ready(settings)
        let actions = machine.switchServer(to: serverB, now: self.now)
        #expect(
            actions.deeds == ["go-away 1", "part 1 connectionLost", "being made", "open 2 \(serverB)"]
        )
        _ = machine.connected(ConnectionID(number: 2), now: self.now)
        #expect(machine.current?.endpoint == serverB)
    }
}
