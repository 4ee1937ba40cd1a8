// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocket

/// Races, the gate, the resolver, switches, the network and the app's life.
@Suite struct ConnectionMakingTests {
    let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    private func machine(
        _ servers: [Endpoint] = [serverA, serverB, serverC],
        seed: UInt64 = 1,
        _ change: (inout Machine.Settings) -> Void = { _ in }
    ) -> Machine {
        var settings = Machine.Settings()
        change(&settings)
        return Machine(servers: servers, settings: settings, generator: SeededGenerator(seed: seed))
    }

    private func id(_ number: UInt64) -> ConnectionID { ConnectionID(number: number) }

    private func ready(_ servers: [Endpoint] = [serverA, serverB, serverC]) -> Machine {
        var machine = self.machine(servers)
        _ = machine.connect(now: self.start)
        _ = machine.connected(self.id(1), now: self.start)
        return machine
    }

    // MARK: What is remembered

    @Test func errorsDoNotGrowWithEachTripToTheBackground() throws {
        var machine = self.machine([serverA]) { $0.background = .failTasks }
        _ = machine.connect(now: self.start)
        for number in 1...100 {
            _ = machine.connected(self.id(UInt64(number)), now: self.start)
            let id = try #require(machine.current?.id)
            #expect(id == self.id(UInt64(number)))
            // A loss in between, which causes the error of the next period in the background.
            _ = machine.didEnterBackground(now: self.start)
            #expect(machine.current == nil)
            _ = machine.willEnterForeground(now: self.start)
        }
        _ = machine.connectFailed(self.id(101), because: refused(serverA), now: self.start)
        _ = machine.didEnterBackground(now: self.start)
        var depth = 0
        var error: (any Error)? = machine.lastError
        while let next = error as? SocketError {
            depth += 1
            error = next.underlying
        }
        #expect(depth <= 2)
    }

    @Test func errorsOfServersThatTheResolverNamesNoMoreAreForgotten() {
        var machine = self.machine([]) { $0.resolverTimeout = .seconds(10) }
        _ = machine.connect(now: self.start)
        var now = self.start
        var id: UInt64 = 1
        for round in 0..<50 {
            let endpoint = Endpoint(host: "rotating", port: 1 + round)
            _ = machine.resolved(self.id(id), .success([endpoint]), now: now)
            _ = machine.connectFailed(self.id(id + 1), because: refused(endpoint), now: now)
            id += 2
            guard let timer = machine.nextDeadline else { break }
            now = timer
            _ = machine.timerFired(now: now)
        }
        #expect(machine.attempts == 50)
        #expect(machine.lastErrors.count == 1)
    }

    // MARK: Races

    @Test func raceStartsOneMoreAttemptAfterEachStaggerAndTheFirstConnectedWins() {
        var machine = self.machine { $0.racing = RacingPolicy(maximumAttempts: 2) }
        #expect(machine.connect(now: self.start).deeds == ["being made", "open 1 a:1"])
        #expect(machine.nextDeadline == self.start + .milliseconds(2_500))
        let second = self.start + .milliseconds(2_500)
        #expect(machine.timerFired(now: second).deeds == ["open 2 b:2"])
        #expect(machine.nextDeadline == nil, "two at once, and no more")
        #expect(machine.connectFailed(self.id(1), because: refused(serverA), now: second).deeds == ["open 3 c:3"])
        #expect(machine.connected(self.id(3), now: second).deeds == ["close 2", "ready 3 c:3"])
        #expect(machine.connected(self.id(2), now: second).deeds == ["close 2"])
    }

    @Test func raceThatEveryoneLosesWaits() {
        var machine = self.machine([serverA, serverB]) { $0.racing = RacingPolicy() }
        _ = machine.connect(now: self.start)
        _ = machine.timerFired(now: self.start + .milliseconds(2_500))
        #expect(machine.connectFailed(self.id(2), because: refused(serverB), now: self.start).deeds == [])
        #expect(
            machine.connectFailed(self.id(1), because: refused(serverA), now: self.start).deeds == [
                "offline connectionRefused"
            ]
        )
    }

    // MARK: The gate

    @Test func nothingIsReadyBeforeTheGateReturnsAndItRunsAtEveryReconnect() throws {
        var machine = self.machine { $0.handshake = LinkHandshake(timeout: .seconds(5), failure: "late") }
        _ = machine.connect(now: self.start)
        let actions = machine.connected(self.id(1), now: self.start).texts
        #expect(actions == ["report handshaking with a:1", "shake hands 1, attempt 1"])
        #expect(machine.state.description == "handshaking with a:1")
        #expect(machine.handshakeSucceeded(self.id(1), now: self.start).deeds == ["ready 1 a:1"])
        _ = machine.connectionLost(self.id(1), because: lostError, now: self.start)
        _ = machine.timerFired(now: try #require(machine.nextDeadline))
        #expect(machine.connected(self.id(2), now: self.start).deeds.first?.hasPrefix("shake hands 2") == true)
    }

    @Test func gateThatTakesTooLongIsAFailureOfTheServer() {
        var machine = self.machine { $0.handshake = LinkHandshake(timeout: .seconds(5), failure: "late") }
        _ = machine.connect(now: self.start)
        _ = machine.connected(self.id(1), now: self.start)
        #expect(machine.nextDeadline == self.start + .seconds(5))
        let actions = machine.timerFired(now: self.start + .seconds(5))
        #expect(actions.deeds == ["close 1", "open 2 b:2"])
        #expect(actions.texts.contains("report connect failed handshakeTimeout"))
        #expect(machine.handshakeSucceeded(self.id(1), now: self.start).isEmpty)
    }

    @Test func refusalSaysWhereToTryNext() throws {
        let error = SocketError(.handshakeRefused, message: "no", endpoint: serverA)
        func refuse(_ remedy: HandshakeRefusal.Remedy) -> (Machine, [String]) {
            var machine = self.machine { $0.handshake = LinkHandshake(timeout: .seconds(5), failure: "late") }
            _ = machine.connect(now: self.start)
            _ = machine.connected(self.id(1), now: self.start)
            let actions = machine.handshakeFailed(self.id(1), because: error, remedy: remedy, now: self.start)
            return (machine, actions.texts)
        }
        #expect(refuse(.tryAnotherServer).1.last == "open 2 b:2")
        var (machine, actions) = refuse(.trySameServer)
        #expect(actions.suffix(2) == ["offline handshakeRefused", "report waiting"])
        #expect(machine.timerFired(now: try #require(machine.nextDeadline)).texts.last == "open 2 a:1")
        (machine, actions) = refuse(.stop)
        #expect(actions.last == "report gave up handshakeRefused")
        #expect(machine.nextDeadline == nil)
    }

    @Test func connectionLostDuringTheHandshakeContinuesWithTheNextServer() {
        var machine = self.machine { $0.handshake = LinkHandshake(timeout: .seconds(5), failure: "late") }
        _ = machine.connect(now: self.start)
        _ = machine.connected(self.id(1), now: self.start)
        #expect(
            machine.connectionLost(self.id(1), because: lostError, now: self.start).deeds == ["close 1", "open 2 b:2"]
        )
    }

    // MARK: The resolver

    @Test func resolverIsAskedBeforeEachRoundAndAfterItsFailureTheServersAreKnown() throws {
        var machine = self.machine([serverA]) { $0.resolverTimeout = .seconds(10) }
        #expect(machine.connect(now: self.start).deeds == ["being made", "resolve 1"])
        #expect(machine.state.description == "looking for servers")
        #expect(machine.resolved(self.id(1), .success([serverB]), now: self.start).deeds == ["open 2 b:2"])
        _ = machine.connectFailed(self.id(2), because: refused(serverB), now: self.start)
        #expect(machine.timerFired(now: try #require(machine.nextDeadline)).deeds == ["being made", "resolve 3"])
        let failed = machine.resolved(self.id(3), .failure(lostError), now: self.start)
        #expect(failed.deeds == ["open 4 b:2"])
    }

    @Test func resolverThatFindsNothingIsAFailedRound() {
        var machine = self.machine([]) { $0.resolverTimeout = .seconds(10) }
        _ = machine.connect(now: self.start)
        #expect(machine.resolved(self.id(1), .success([]), now: self.start).deeds == ["offline hostNotFound"])
        #expect(machine.nextDeadline != nil)
    }

    @Test func resolverThatDoesNotAnswerTimesOut() {
        var machine = self.machine([serverA]) { $0.resolverTimeout = .seconds(10) }
        _ = machine.connect(now: self.start)
        #expect(machine.timerFired(now: self.start + .seconds(10)).deeds == ["open 2 a:1"])
        #expect(machine.resolved(self.id(1), .success([serverC]), now: self.start).isEmpty)
    }

    // MARK: Switches

    @Test func switchMakesTheNewConnectionBeforeTheOldOneDrains() {
        var machine = self.ready()
        #expect(machine.switchServer(to: nil, now: self.start).deeds == ["open 2 b:2"])
        #expect(machine.state.description == "ready, a:1")
        #expect(
            machine.connected(self.id(2), now: self.start).texts == [
                "ready 2 b:2", "drain 1", "report switched from a:1 to b:2",
            ]
        )
        #expect(
            machine.connectionLost(self.id(1), because: lostError, now: self.start).texts == ["lost 1 connectionLost"]
        )
        #expect(machine.state.description == "ready, b:2")
        let new = Endpoint(host: "new", port: 9)
        #expect(machine.switchServer(to: new, now: self.start).deeds == ["open 3 new:9"])
        #expect(machine.switchServer(to: serverB, now: self.start).deeds == ["close 3"])
    }

    @Test func switchThatReachesNoServerKeepsTheConnection() {
        var machine = self.ready()
        _ = machine.switchServer(to: serverB, now: self.start)
        let failed = machine.connectFailed(self.id(2), because: refused(serverB), now: self.start).texts
        #expect(failed == ["report connect failed connectionRefused", "report switch failed connectionRefused"])
        #expect(machine.state.description == "ready, a:1")
        #expect(machine.nextDeadline == nil)
    }

    @Test func lossDuringASwitchContinuesWithWhatIsBeingMade() {
        var machine = self.ready()
        _ = machine.switchServer(to: nil, now: self.start)
        #expect(
            machine.connectionLost(self.id(1), because: lostError, now: self.start).deeds == [
                "lost 1 connectionLost", "being made",
            ]
        )
        #expect(machine.connected(self.id(2), now: self.start).deeds == ["ready 2 b:2"])
    }

    @Test func disconnectEndsEverything() {
        var machine = self.ready()
        _ = machine.switchServer(to: nil, now: self.start)
        _ = machine.connected(self.id(2), now: self.start)
        _ = machine.switchServer(to: nil, now: self.start)
        #expect(
            machine.disconnect(now: self.start).deeds == [
                "close 3", "lost 2 cancelled", "close 2", "offline cancelled", "lost 1 cancelled", "close 1",
            ]
        )
    }

    @Test func listThatLacksThePresentServerCausesASwitch() {
        var machine = self.ready()
        #expect(machine.replaceServers(with: [serverA, serverC], now: self.start).isEmpty)
        #expect(machine.replaceServers(with: [serverC], now: self.start).deeds == ["open 2 c:3"])
        #expect(machine.connected(self.id(2), now: self.start).deeds == ["ready 2 c:3", "drain 1"])
    }

    @Test func listThatLacksTheServerBeingTriedGivesThatAttemptUp() {
        var machine = self.machine()
        _ = machine.connect(now: self.start)
        #expect(machine.replaceServers(with: [serverA, serverB], now: self.start).isEmpty)
        #expect(machine.replaceServers(with: [serverB], now: self.start).deeds == ["close 1", "open 2 b:2"])
    }

    // MARK: The network

    @Test func withoutANetworkNothingIsAttemptedAndWithOneWithinASecond() throws {
        var machine = self.machine()
        _ = machine.connect(now: self.start)
        let gone = machine.networkChanged(isReachable: false, now: self.start)
        #expect(gone.deeds == ["close 1", "offline networkUnreachable"])
        #expect(machine.nextDeadline == nil)
        #expect(machine.networkChanged(isReachable: false, now: self.start).isEmpty)
        let back = machine.networkChanged(isReachable: true, now: self.start)
        #expect(back.deeds == ["being made", "put off"])
        let time = try #require(machine.nextDeadline)
        #expect(time > self.start && time <= self.start + .seconds(1))
        #expect(machine.timerFired(now: time).deeds.last == "open 2 a:1")
    }

    @Test func callGetsAConnectionAtOnceWhenTheNetworkIsBack() {
        var machine = self.machine()
        _ = machine.connect(now: self.start)
        _ = machine.networkChanged(isReachable: false, now: self.start)
        _ = machine.networkChanged(isReachable: true, now: self.start)
        #expect(machine.reconnectSooner(now: self.start).deeds == ["being made", "open 2 a:1"])
    }

    /// All clients of a network notice its return in the same moment.
    @Test func clientsOfANetworkThatReturnsConnectAtDifferentTimes() {
        let times = (1...100).map { (seed: UInt64) in
            var machine = self.machine(seed: seed)
            _ = machine.connect(now: self.start)
            _ = machine.networkChanged(isReachable: false, now: self.start)
            _ = machine.networkChanged(isReachable: true, now: self.start)
            return machine.nextDeadline
        }
        #expect(Set(times).count > 90)
    }

    /// Those that are in the middle of an attempt notice it in the same moment, too.
    @Test func clientsWhoseNetworkChangesWhileTheyTryConnectAtDifferentTimes() throws {
        let times = try (1...100).map { (seed: UInt64) in
            var machine = self.machine(seed: seed)
            _ = machine.connect(now: self.start)
            let changed = machine.networkChanged(isReachable: true, now: self.start)
            #expect(changed.deeds == ["close 1", "being made", "put off"])
            let time = try #require(machine.nextDeadline)
            #expect(time >= self.start && time <= self.start + .seconds(1))
            return time
        }
        #expect(Set(times).count > 90)
    }

    /// A network that changes five times a second neither makes as many attempts nor keeps the client from one.
    @Test func networkThatChangesAgainAndAgainIsTriedOnceASecond() throws {
        var machine = self.machine()
        _ = machine.connect(now: self.start)
        var now = self.start
        var attempts = 0
        for _ in 0..<100 {
            var deeds = machine.networkChanged(isReachable: true, now: now).deeds
            let next = now + .milliseconds(200)
            while let time = machine.nextDeadline, time < next { deeds += machine.timerFired(now: time).deeds }
            attempts += deeds.count { $0.hasPrefix("open ") }
            now = next
        }
        #expect((20...60).contains(attempts), "\(attempts)")
    }

    @Test func callThatWaitsGetsItsAttemptAtOnceOnTheNewPath() {
        var machine = self.machine()
        _ = machine.connect(now: self.start)
        _ = machine.networkChanged(isReachable: true, now: self.start)
        #expect(machine.reconnectSooner(now: self.start).deeds == ["being made", "open 2 a:1"])
    }

    @Test func serverThatTheUserRequestedIsTriedAtOnceOnTheNewPath() {
        var machine = self.machine([serverA, serverB])
        _ = machine.connect(now: self.start)
        _ = machine.switchServer(to: serverB, now: self.start)
        let changed = machine.networkChanged(isReachable: true, now: self.start)
        #expect(changed.deeds == ["close 2", "open 3 b:2"])
    }

    /// Monitors may be wrong.
    @Test func userWhoAsksGetsOneRoundOfAttemptsWithoutANetworkToo() {
        var machine = self.machine([serverA, serverB])
        _ = machine.connect(now: self.start)
        _ = machine.networkChanged(isReachable: false, now: self.start)
        #expect(machine.connect(now: self.start).deeds == ["being made", "open 2 a:1"])
        #expect(machine.connect(now: self.start).isEmpty)
        #expect(machine.connectFailed(self.id(2), because: refused(serverA), now: self.start).deeds == ["open 3 b:2"])
        let over = machine.connectFailed(self.id(3), because: refused(serverB), now: self.start)
        #expect(over.deeds == ["offline networkUnreachable"])
        #expect(machine.nextDeadline == nil)
        // The second time the monitor was wrong.
        #expect(machine.connect(now: self.start).deeds.last == "open 4 a:1")
        _ = machine.connected(self.id(4), now: self.start)
        let lost = machine.connectionLost(self.id(4), because: lostError, now: self.start)
        #expect(lost.deeds == ["lost 4 connectionLost", "offline networkUnreachable"])
    }

    @Test func newPathProbesALiveConnectionAndADeadOneIsReplacedWithoutBackOff() {
        var machine = self.ready()
        #expect(machine.networkChanged(isReachable: true, now: self.start).deeds == ["probe 1"])
        let lost = machine.connectionLost(self.id(1), because: lostError, now: self.start)
        #expect(lost.deeds == ["lost 1 connectionLost", "being made", "put off"])
        #expect(machine.nextDeadline.map { $0 <= self.start + .seconds(1) } == true)
        #expect(machine.reconnectSooner(now: self.start).deeds == ["being made", "open 2 a:1"])
    }

    @Test func connectionThatProvedAliveWaitsAgainWhenItIsLost() {
        var machine = self.ready()
        _ = machine.networkChanged(isReachable: true, now: self.start)
        machine.connectionIsAlive(self.id(1))
        let lost = machine.connectionLost(self.id(1), because: lostError, now: self.start)
        #expect(lost.deeds == ["lost 1 connectionLost", "offline connectionLost"])
    }

    private let local = Endpoint(host: "127.0.0.1", port: 9)

    @Test func serverOnThisMachineNeedsNoNetwork() {
        var machine = self.machine([serverA, self.local])
        _ = machine.connect(now: self.start)
        #expect(machine.networkChanged(isReachable: false, now: self.start).texts == ["report the network was lost"])
        // The other server fails because of the network, and is not penalised.
        for _ in 0..<3 {
            let next = machine.connectFailed(
                ConnectionID(number: machine.nextID - 1),
                because: refused(serverA),
                now: self.start
            )
            #expect(next.deeds == ["open \(machine.nextID - 1) 127.0.0.1:9"])
            _ = machine.connected(ConnectionID(number: machine.nextID - 1), now: self.start)
            _ = machine.connectionLost(ConnectionID(number: machine.nextID - 1), because: lostError, now: self.start)
            _ = machine.timerFired(now: self.start + .seconds(60))
        }
        #expect(!machine.servers.isBanned(serverA, now: self.start + .seconds(60)))
    }

    @Test func behindAProxyItIsTheProxyThatNeedsANetwork() {
        let socket = Endpoint(unixPath: "/tmp/s")
        for (proxy, servers, isHeld) in [
            (Endpoint(host: "proxy.example", port: 1), [self.local], true),
            (Endpoint(host: "proxy.example", port: 1), [self.local, socket], false),
            (Endpoint(host: "localhost", port: 1), [serverA], false),
        ] {
            var settings = Machine.Settings()
            settings.proxy = proxy
            var machine = Machine(servers: servers, settings: settings, generator: SeededGenerator(seed: 1))
            _ = machine.connect(now: self.start)
            let deeds = machine.networkChanged(isReachable: false, now: self.start).deeds
            #expect(deeds == (isHeld ? ["close 1", "offline networkUnreachable"] : []), "\(deeds)")
        }
    }

    @Test func networkThatIsGoneDoesNotAffectAConnectionOnThisMachine() {
        var machine = self.machine([self.local])
        _ = machine.connect(now: self.start)
        _ = machine.connected(self.id(1), now: self.start)
        #expect(machine.networkChanged(isReachable: false, now: self.start).deeds == [])
        let lost = machine.connectionLost(self.id(1), because: lostError, now: self.start)
        #expect(lost.deeds == ["lost 1 connectionLost", "offline connectionLost"])
        #expect(machine.nextDeadline != nil)
    }

    @Test func firstPathChangesNothingUnlessThereIsNoNetwork() {
        var machine = self.machine()
        _ = machine.connect(now: self.start)
        #expect(machine.networkIsKnown(isReachable: true, now: self.start).isEmpty)
        _ = machine.connected(self.id(1), now: self.start)
        #expect(machine.networkIsKnown(isReachable: true, now: self.start).isEmpty)

        machine = self.machine()
        _ = machine.connect(now: self.start)
        // The user has asked for a connection, which is tried once.
        let none = machine.networkIsKnown(isReachable: false, now: self.start)
        #expect(none.texts == ["report the network was lost"])
        #expect(machine.connectFailed(self.id(1), because: refused(serverA), now: self.start).deeds == ["open 2 b:2"])
        _ = machine.connectFailed(self.id(2), because: refused(serverB), now: self.start)
        let over = machine.connectFailed(self.id(3), because: refused(serverC), now: self.start)
        #expect(over.deeds == ["offline networkUnreachable"])
        // The earlier report takes precedence.
        #expect(machine.networkIsKnown(isReachable: true, now: self.start).isEmpty)
        #expect(machine.nextDeadline == nil)

        machine = self.machine([self.local])
        _ = machine.connect(now: self.start)
        #expect(machine.networkIsKnown(isReachable: false, now: self.start).isEmpty)
    }

    @Test func whetherANetworkIsNeededFollowsTheList() {
        var machine = self.machine()
        _ = machine.connect(now: self.start)
        let gone = machine.networkChanged(isReachable: false, now: self.start)
        #expect(gone.deeds == ["close 1", "offline networkUnreachable"])
        #expect(machine.replaceServers(with: [serverB], now: self.start).isEmpty)
        #expect(
            machine.replaceServers(with: [serverB, self.local], now: self.start).deeds == ["being made", "open 2 b:2"]
        )
        #expect(
            machine.replaceServers(with: [serverB], now: self.start).deeds == ["close 2", "offline networkUnreachable"]
        )
        #expect(machine.switchServer(to: serverC, now: self.start).isEmpty)
        #expect(machine.switchServer(to: self.local, now: self.start).deeds == ["being made", "open 3 127.0.0.1:9"])
        // A wait ends when its reason does.
        _ = machine.connectFailed(self.id(3), because: refused(self.local), now: self.start)
        while let endpoint = machine.endpointBeingTried {
            _ = machine.connectFailed(
                ConnectionID(number: machine.nextID - 1),
                because: refused(endpoint),
                now: self.start
            )
        }
        #expect(machine.nextDeadline != nil)
        #expect(machine.replaceServers(with: [serverA], now: self.start).isEmpty)
        #expect(machine.nextDeadline == nil)
        let back = machine.networkChanged(isReachable: true, now: self.start)
        #expect(back.deeds.prefix(1) == ["being made"])
    }

    @Test func resolverIsNotAskedWithoutANetworkAndItsAnswerMayEndTheAttempts() {
        var machine = self.machine([]) { $0.resolverTimeout = .seconds(10) }
        _ = machine.connect(now: self.start)
        let gone = machine.networkChanged(isReachable: false, now: self.start)
        #expect(gone.deeds.last == "offline networkUnreachable")
        #expect(machine.nextDeadline == nil)
        // Unless the user requests a connection, until the attempts have failed.
        #expect(machine.connect(now: self.start).deeds == ["being made", "resolve 2"])
        let answer = machine.resolved(self.id(2), .success([serverA]), now: self.start)
        #expect(answer.deeds == ["open 3 a:1"])
        #expect(
            machine.connectFailed(self.id(3), because: refused(serverA), now: self.start).deeds
                == ["offline networkUnreachable"]
        )

        machine = self.machine([self.local]) { $0.resolverTimeout = .seconds(10) }
        #expect(machine.connect(now: self.start).deeds == ["being made", "resolve 1"])
        _ = machine.networkChanged(isReachable: false, now: self.start)
        let found = machine.resolved(self.id(1), .success([serverA]), now: self.start)
        #expect(found.deeds == ["offline networkUnreachable"])
        #expect(machine.nextDeadline == nil)
    }

    // MARK: The app's life

    @Test func backgroundStopsPingsAndAttemptsAndForegroundProbes() {
        var machine = self.ready()
        #expect(machine.didEnterBackground(now: self.start).deeds == ["inactive", "pause 1"])
        #expect(machine.willEnterForeground(now: self.start).deeds == ["active", "resume 1", "probe 1"])
        _ = machine.didEnterBackground(now: self.start)
        let lost = machine.connectionLost(self.id(1), because: lostError, now: self.start)
        #expect(lost.deeds == ["lost 1 connectionLost", "offline notConnected"])
        #expect(machine.nextDeadline == nil)
        let back = machine.willEnterForeground(now: self.start)
        #expect(back.deeds == ["active", "being made", "open 2 a:1"])
    }

    @Test func backgroundMayFailTheTasksAndSaysWhy() {
        var machine = self.machine { $0.background = .failTasks }
        _ = machine.connect(now: self.start)
        _ = machine.connected(self.id(1), now: self.start)
        let actions = machine.didEnterBackground(now: self.start)
        #expect(actions.deeds == ["inactive", "lost 1 connectionLost", "close 1", "offline notConnected"])
        let cause = actions.compactMap { if case .lost(_, let error) = $0 { error.message } else { nil } }.first
        #expect(cause?.contains("in the background") == true)
    }

    @Test func backgroundMayChangeNothing() {
        var machine = self.machine { $0.background = .keepConnected }
        _ = machine.connect(now: self.start)
        #expect(machine.didEnterBackground(now: self.start).deeds == ["inactive"])
        #expect(machine.connected(self.id(1), now: self.start).deeds == ["ready 1 a:1"])
    }
}
