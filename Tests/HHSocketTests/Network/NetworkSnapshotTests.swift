// SPDX-License-Identifier: Apache-2.0
import Testing

@testable import HHSocket

/// The paths derived from the system's network interfaces.
@Suite struct NetworkSnapshotTests {
    private let loopback = NetworkSnapshot.Interface(name: "lo", isLoopback: true, addresses: ["127.0.0.1", "::1"])
    private let ethernet = NetworkSnapshot.Interface(name: "eth0", addresses: ["192.0.2.2", "fe80::1"])

    private func path(
        _ interfaces: NetworkSnapshot.Interface...,
        by waysOut: NetworkSnapshot.WayOut...
    ) -> NetworkPath {
        NetworkSnapshot(interfaces: interfaces, waysOut: waysOut).path
    }

    @Test func interfaceWithACarrierAndAnAddressIsANetwork() {
        #expect(self.path(self.loopback, self.ethernet).isReachable)
        // An isolated network without a router.
        #expect(self.path(self.ethernet).name == "eth0")
    }

    @Test func interfaceWithoutReachIsNoNetwork() {
        #expect(!self.path().isReachable)
        #expect(!self.path(self.loopback).isReachable)
        var interface = self.ethernet
        interface.isUp = false
        #expect(!self.path(self.loopback, interface).isReachable)
        interface = self.ethernet
        interface.isRunning = false
        #expect(!self.path(interface).isReachable)
        interface = self.ethernet
        interface.addresses = []
        #expect(!self.path(interface).isReachable)
    }

    @Test(arguments: [
        ("fe80::1", false), ("feb0::1", false), ("fd00::2", true), ("2001:db8::1", true), ("fec0::1", true),
        ("169.254.1.1", true), ("10.0.0.1", true),
    ])
    func addressOfTheLinkIsNotEnough(address: String, isEnough: Bool) {
        #expect(self.path(.init(name: "eth0", addresses: [address])).isReachable == isEnough)
    }

    @Test func pathsWithoutANetworkAreOneAndTheSame() {
        var down = self.ethernet
        down.isUp = false
        #expect(self.path(self.loopback) == self.path(down, by: .init(interface: "eth0")))
        #expect(self.path(self.loopback).name == nil)
    }

    @Test func anotherInterfaceAddressOrRouterIsAnotherPath() {
        let way = NetworkSnapshot.WayOut(interface: "eth0", router: "192.0.2.1")
        let before = self.path(self.loopback, self.ethernet, by: way)
        var other = self.ethernet
        other.addresses = ["192.0.2.3"]
        let tunnel = NetworkSnapshot.Interface(name: "tun0", addresses: ["10.8.0.2"])
        for path in [
            self.path(self.loopback, other, by: way),
            self.path(self.loopback, self.ethernet),
            self.path(self.loopback, self.ethernet, by: .init(interface: "eth0", router: "192.0.2.9")),
            self.path(self.loopback, self.ethernet, tunnel, by: way),
            self.path(self.loopback, self.ethernet, by: way, .init(interface: "eth0", router: "fe80::9")),
        ] {
            #expect(path != before)
            #expect(path.isReachable)
        }
    }

    @Test func temporaryAddressIsANetworkButNoneMakesAnotherPath() {
        var interface = self.ethernet
        let before = self.path(interface)
        for address in ["2001:db8::1234", "2001:db8::5678"] {
            interface.temporaryAddresses = [address]
            #expect(self.path(interface) == before)
        }
        interface.addresses = ["fe80::1"]
        #expect(self.path(interface).isReachable)
        interface.temporaryAddresses = ["fe80::2"]
        #expect(!self.path(interface).isReachable)
    }

    @Test func orderAndWhatIsNoWayOutDoNotMatter() {
        let way = NetworkSnapshot.WayOut(interface: "eth0", router: "192.0.2.1")
        let before = self.path(self.loopback, self.ethernet, by: way)
        var reversed = self.ethernet
        reversed.addresses.reverse()
        // For example the host's end of a container's cable, and a bridge without members.
        let cable = NetworkSnapshot.Interface(name: "veth1", addresses: ["fe80::5"])
        let bridge = NetworkSnapshot.Interface(name: "br0", isRunning: false, addresses: ["172.17.0.1"])
        #expect(self.path(bridge, cable, reversed, self.loopback, by: way) == before)
    }

    @Test func nameHasTheRouterSoThatOneNATIsDistinguishedFromAnother() {
        let way = NetworkSnapshot.WayOut(interface: "eth0", router: "192.0.2.1")
        #expect(self.path(self.ethernet, by: way).name == "eth0 via 192.0.2.1")
        #expect(self.path(self.ethernet, by: .init(interface: "wg0")).name == "wg0")
    }

    @Test func addressesThatComeAndGoByThemselvesAreKnown() {
        let table = IPv6AddressTable(
            """
            fd000000000000000000000000000002 04 40 00 82     eth0
            fd000000000000000000000000000003 04 40 00 01     eth0
            fd000000000000000000000000000004 04 40 00 c0     eth0
            fd000000000000000000000000000005 04 40 00 c8     eth0
            fd000000000000000000000000000006 04 40 00 20     eth0
            00000000000000000000000000000001 01 80 10 80       lo
            nonsense

            fd000000000000000000000000000007 04 40 00 zz     eth0
            """
        )
        func use(_ last: UInt8, _ interface: String = "eth0") -> IPv6AddressTable.Use {
            table.use(of: [0xFD] + [UInt8](repeating: 0, count: 14) + [last], on: interface)
        }
        #expect(use(2) == .lasting)
        #expect(use(3) == .temporary)
        #expect(use(4) == .unusable, "tentative")
        #expect(use(5) == .unusable, "another machine has it")
        #expect(use(6) == .lasting, "deprecated, and still used")
        #expect(use(7) == .lasting, "unknown")
        #expect(use(3, "eth1") == .lasting, "unknown there")
        #expect(table.use(of: [UInt8](repeating: 0, count: 15) + [1], on: "lo") == .lasting)
    }

    #if os(Linux)
    @Test func thisMachineHasALoopbackInterface() throws {
        let snapshot = try #require(NetworkSnapshot.now())
        #expect(snapshot.interfaces.contains { $0.isLoopback && $0.name == "lo" })
    }

    /// Other tests, and other programs, may change the machine's interfaces between two readings.
    @Test func readingAgainGivesTheSame() throws {
        let agreed = try (0..<100).contains { _ in
            try #require(NetworkSnapshot.now()) == #require(NetworkSnapshot.now())
        }
        #expect(agreed)
    }
    #endif
}
