// SPDX-License-Identifier: Apache-2.0
import NIOCore
import TestSupport
import Testing

@testable import HHSocket

/// The order of servers that are IP addresses.
@Suite struct ConnectionAddressFamilyTests {
    private let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)
    private static let six = Endpoint(host: "2001:db8::1", port: 6)
    private static let four = Endpoint(host: "192.0.2.1", port: 4)
    private static let name = Endpoint(host: "im.example", port: 1)

    private func machine(
        _ servers: [Endpoint],
        _ families: AddressFamilies,
        policy: ServerPolicy = ServerPolicy(),
        _ change: (inout Machine.Settings) -> Void = { _ in }
    ) -> Machine {
        var settings = Machine.Settings()
        settings.addressFamilies = families
        change(&settings)
        return Machine(servers: servers, policy: policy, settings: settings, generator: SeededGenerator(seed: 1))
    }

    private func id(_ number: UInt64) -> ConnectionID { ConnectionID(number: number) }

    /// The servers of a round in which all fail.
    private func round(_ machine: inout Machine) -> [String] {
        var opened: [String] = []
        var deeds = machine.connect(now: self.start)
        while true {
            let next = deeds.compactMap { deed -> (ConnectionID, Endpoint)? in
                if case .open(let id, let endpoint) = deed { (id, endpoint) } else { nil }
            }
            guard let (id, endpoint) = next.first else { return opened }
            opened.append(endpoint.host)
            deeds = machine.connectFailed(id, because: refused(endpoint), now: self.start)
        }
    }

    @Test(arguments: [
        (AddressFamilies.any, ["2001:db8::1", "192.0.2.1", "im.example"]),
        (.preferIPv4, ["192.0.2.1", "im.example", "2001:db8::1"]),
        (.preferIPv6, ["2001:db8::1", "im.example", "192.0.2.1"]),
        // The server of the other family stays in the list, and its attempt reports why it cannot be used.
        (.onlyIPv4, ["192.0.2.1", "im.example", "2001:db8::1"]),
    ])
    func addressesOfTheOtherFamilyComeBehindTheirEquals(families: AddressFamilies, order: [String]) {
        var machine = self.machine([Self.six, Self.four, Self.name], families)
        #expect(self.round(&machine) == order)
    }

    @Test func scoreCountsMoreThanTheFamily() {
        var generator = SeededGenerator(seed: 1)
        var list = ServerList([Self.four, Self.six], addressFamilies: .preferIPv4)
        #expect(list.round(now: self.start, using: &generator) == [Self.four, Self.six])
        list.failed(Self.four, now: self.start, using: &generator)
        #expect(list.round(now: self.start, using: &generator) == [Self.six, Self.four])
    }

    @Test func shuffledEqualsKeepTheFamiliesApart() {
        var generator = SeededGenerator(seed: 1)
        var policy = ServerPolicy()
        policy.shufflesEquals = true
        let servers = (1...4).flatMap {
            [Endpoint(host: "2001:db8::\($0)", port: 1), Endpoint(host: "192.0.2.\($0)", port: 1)]
        }
        let list = ServerList(servers, policy: policy, addressFamilies: .preferIPv6)
        var orders: Set<[Endpoint]> = []
        for _ in 0..<50 {
            let round = list.round(now: self.start, using: &generator)
            #expect(round.map { $0.host.contains(":") } == [true, true, true, true, false, false, false, false])
            orders.insert(round)
        }
        #expect(orders.count > 10)
    }

    @Test func serverThatTheUserAsksForComesFirst() {
        var generator = SeededGenerator(seed: 1)
        var list = ServerList([Self.six, Self.four, Self.name], addressFamilies: .preferIPv4)
        list.prefer(Self.six)
        #expect(list.round(now: self.start, using: &generator) == [Self.six, Self.four, Self.name])
        // Also after a resolver has found them again.
        list.replace(with: [Self.six, Self.four, Self.name], keepsStart: true)
        #expect(list.round(now: self.start, using: &generator) == [Self.six, Self.four, Self.name])
        list.passOver(Self.name)
        #expect(list.round(now: self.start, using: &generator) == [Self.four, Self.name, Self.six])
    }

    @Test func inARaceThePreferredFamilyStartsAndTheOtherFollowsAfterTheStagger() {
        var machine = self.machine([Self.six, Self.four], .preferIPv4) { $0.racing = RacingPolicy() }
        #expect(machine.connect(now: self.start).deeds == ["being made", "open 1 192.0.2.1:4"])
        let second = self.start + .milliseconds(2_500)
        #expect(machine.nextDeadline == second)
        #expect(machine.timerFired(now: second).deeds == ["open 2 [2001:db8::1]:6"])
        #expect(machine.connected(self.id(2), now: second).deeds == ["close 1", "ready 2 [2001:db8::1]:6"])
    }

    // MARK: Resolvers

    @Test func resolversServersOfAFamilyThatIsOffAreLeftOut() {
        var machine = self.machine([], .onlyIPv6) { $0.resolverTimeout = .seconds(10) }
        _ = machine.connect(now: self.start)
        let found = [Self.four, Self.six, Self.name, Endpoint(unixPath: "/tmp/s")]
        #expect(machine.resolved(self.id(1), .success(found), now: self.start).deeds == ["open 2 [2001:db8::1]:6"])
        #expect(machine.servers.endpoints == [Self.six, Self.name, Endpoint(unixPath: "/tmp/s")])
    }

    @Test func resolverThatFindsTheOtherFamilyAloneIsAnErrorThatNamesTheSetting() throws {
        var machine = self.machine([], .onlyIPv6) {
            $0.resolverTimeout = .seconds(10)
            $0.backoff.maximumRounds = 1
        }
        _ = machine.connect(now: self.start)
        #expect(machine.resolved(self.id(1), .success([Self.four]), now: self.start).deeds == ["offline hostNotFound"])
        let error = try #require(machine.lastError)
        #expect(error.code == .hostNotFound)
        #expect(
            error.message == """
                the resolver found IPv4 addresses only, and SocketConfiguration.addressFamilies is onlyIPv6; allow IPv4 \
                there, or see that it returns names or IPv6 addresses
                """
        )
    }

    @Test func resolverThatFindsTheOtherFamilyAloneKeepsTheServersFoundBefore() {
        var machine = self.machine([Self.six], .onlyIPv6) { $0.resolverTimeout = .seconds(10) }
        _ = machine.connect(now: self.start)
        #expect(
            machine.resolved(self.id(1), .success([Self.four]), now: self.start).deeds == ["open 2 [2001:db8::1]:6"]
        )
    }

    // MARK: Servers that others name

    @Test func serversThatAGoAwayNamesAreThoseOfAllowedFamiliesThePreferredOnesFirst() {
        var policy = ServerPolicy()
        policy.acceptsOtherEndpoints = true
        for (families, expected) in [
            (AddressFamilies.onlyIPv4, ["192.0.2.1"]), (.preferIPv4, ["192.0.2.1", "2001:db8::1"]),
            (.any, ["2001:db8::1", "192.0.2.1"]),
        ] {
            var machine = self.machine([Self.name], families, policy: policy)
            _ = machine.connect(now: self.start)
            _ = machine.connected(self.id(1), now: self.start)
            let news = GoAway(retryAfter: .seconds(300), endpoints: [Self.six, Self.four])
            _ = machine.goAway(self.id(1), news, isAnnounced: true, now: self.start)
            _ = machine.connectionLost(self.id(1), because: lostError, now: self.start)
            #expect(self.opened(&machine) == expected, "\(families)")
        }
    }

    /// The servers that are tried in the current round, in which all fail.
    private func opened(_ machine: inout Machine) -> [String] {
        var opened: [String] = []
        while let making = machine.making, case .racing(let race) = making.stage, let attempt = race.attempts.last {
            opened.append(attempt.endpoint.host)
            _ = machine.connectFailed(attempt.id, because: refused(attempt.endpoint), now: self.start)
        }
        return opened
    }
}
