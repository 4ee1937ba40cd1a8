// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocket

/// Connections that are left because they make no progress, and those that have proved useful.
@Suite struct ConnectionReplacementTests {
    private let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)
    private let first = ConnectionID(number: 1)
    private let second = ConnectionID(number: 2)

    private func readyMachine(_ servers: [Endpoint] = [serverA], seed: UInt64 = 1) -> Machine {
        var machine = Machine(servers: servers, generator: SeededGenerator(seed: seed))
        _ = machine.connect(now: self.start)
        _ = machine.connected(self.first, now: self.start)
        return machine
    }

    @Test func oneIsLeftForANewOneToTheSameServerIfThereIsNoOther() {
        var machine = self.readyMachine()
        #expect(machine.replace(self.first, now: self.start).deeds == ["open 2 a:1"])
        // Calls continue until there is another connection.
        #expect(machine.isReady)
        #expect(machine.connected(self.second, now: self.start).deeds == ["ready 2 a:1", "drain 1"])
    }

    @Test func anotherServerIsAskedFirstAndThePresentOneNext() {
        var machine = self.readyMachine([serverA, serverB])
        #expect(machine.replace(self.first, now: self.start).deeds == ["open 2 b:2"])
        #expect(machine.connectFailed(self.second, because: refused(serverB), now: self.start).deeds == ["open 3 a:1"])
    }

    @Test func oneThatCannotBeReplacedStays() {
        var machine = self.readyMachine()
        _ = machine.replace(self.first, now: self.start)
        let actions = machine.connectFailed(self.second, because: refused(serverA), now: self.start)
        #expect(actions.texts.last == "report switch failed connectionRefused")
        #expect(machine.current?.id == self.first)
    }

    @Test func oneThatIsNotReadyAnyMoreOrLeftAlreadyIsNotLeftAgain() {
        var machine = self.readyMachine()
        #expect(machine.replace(self.second, now: self.start).deeds.isEmpty)
        _ = machine.replace(self.first, now: self.start)
        #expect(machine.replace(self.first, now: self.start).deeds.isEmpty)
        _ = machine.connected(self.second, now: self.start)
        #expect(machine.replace(self.first, now: self.start).deeds.isEmpty)
    }

    /// The time at which a connection proves useful: before its loss or after.
    private enum Proof { case before, after }

    /// The waits of a connection that is repeatedly lost as soon as it is ready.
    private func waits(_ count: Int, proves: Proof?) throws -> [TimeAmount] {
        var machine = self.readyMachine(seed: 3)
        var now = self.start
        var waits: [TimeAmount] = []
        for number in 1...UInt64(count) {
            let id = ConnectionID(number: number)
            if proves == .before { _ = machine.connectionIsProved(id, now: now) }
            _ = machine.connectionLost(id, because: lostError, now: now)
            if proves == .after { _ = machine.connectionIsProved(id, now: now) }
            let timer = try #require(machine.nextDeadline)
            waits.append(timer - now)
            now = timer
            _ = machine.timerFired(now: now)
            _ = machine.connected(ConnectionID(number: number + 1), now: now)
        }
        return waits
    }

    @Test func oneThatHasBeenOfUseHasTheBackoffStartOver() throws {
        #expect(try self.waits(30, proves: .before).allSatisfy { $0 <= .seconds(1) })
        #expect(try self.waits(30, proves: .after).allSatisfy { $0 <= .seconds(1) })
        #expect(try self.waits(30, proves: nil).contains { $0 > .seconds(10) })
    }

    @Test func reportsAboutOtherConnectionsAreIgnored() throws {
        var machine = self.readyMachine()
        _ = machine.connectionIsProved(self.second, now: self.start)
        #expect(machine.current?.isProved == false)
        _ = machine.connectionIsProved(self.first, now: self.start)
        #expect(machine.current?.isProved == true)
    }

    @Test func resolverThatNamesTheSameServersDoesNotBringBackTheOneThatIsLeft() throws {
        var settings = Machine.Settings()
        settings.resolverTimeout = .seconds(10)
        var machine = Machine(servers: [], settings: settings, generator: SeededGenerator(seed: 1))
        let servers = [serverA, serverB]
        #expect(machine.connect(now: self.start).deeds == ["being made", "resolve 1"])
        #expect(machine.resolved(self.first, .success(servers), now: self.start).deeds == ["open 2 a:1"])
        _ = machine.connected(self.second, now: self.start)
        #expect(machine.replace(self.second, now: self.start).deeds == ["resolve 3"])
        let third = ConnectionID(number: 3)
        #expect(machine.resolved(third, .success(servers), now: self.start).deeds == ["open 4 b:2"])
    }

    @Test func resolverThatNamesTheSameServersDoesNotReplaceTheOneThatIsToBeTriedAgain() throws {
        var settings = Machine.Settings()
        settings.resolverTimeout = .seconds(10)
        settings.handshake = LinkHandshake(timeout: .seconds(5), failure: "late")
        var machine = Machine(servers: [], settings: settings, generator: SeededGenerator(seed: 1))
        _ = machine.connect(now: self.start)
        let found = machine.resolved(self.first, .success([serverB, serverA]), now: self.start)
        #expect(found.deeds == ["open 2 b:2"])
        _ = machine.connected(self.second, now: self.start)
        let error = SocketError(.handshakeRefused, message: "no token", endpoint: serverB)
        let refused = machine.handshakeFailed(self.second, because: error, remedy: .trySameServer, now: self.start)
        #expect(refused.texts.last == "report waiting")
        let now = try #require(machine.nextDeadline)
        #expect(machine.timerFired(now: now).deeds.last == "resolve 3")
        // In another order.
        let again = machine.resolved(ConnectionID(number: 3), .success([serverA, serverB]), now: now)
        #expect(again.deeds == ["open 4 b:2"])
    }
}
