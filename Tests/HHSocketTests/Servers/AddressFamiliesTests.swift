// SPDX-License-Identifier: Apache-2.0
import Testing

@testable import HHSocket

@Suite struct AddressFamiliesTests {
    private static let addresses = ["2001:db8::1", "2001:db8::2", "fe80::1%eth0", "192.0.2.1", "192.0.2.2"]

    @Test(arguments: [
        (AddressFamilies.any, ["2001:db8::1", "192.0.2.1", "2001:db8::2", "192.0.2.2", "fe80::1%eth0"]),
        (.preferIPv4, ["192.0.2.1", "2001:db8::1", "192.0.2.2", "2001:db8::2", "fe80::1%eth0"]),
        (.preferIPv6, ["2001:db8::1", "192.0.2.1", "2001:db8::2", "192.0.2.2", "fe80::1%eth0"]),
        (.onlyIPv4, ["192.0.2.1", "192.0.2.2"]),
        (.onlyIPv6, ["2001:db8::1", "2001:db8::2", "fe80::1%eth0"]),
    ])
    func addressesOfANameAlternateBeginningWithThePreferredFamily(families: AddressFamilies, order: [String]) {
        #expect(families.order(Self.addresses) == order)
        #expect(families.order([]) == [])
    }

    @Test func familyThatIsMissingDoesNotAffectTheOther() {
        #expect(AddressFamilies.preferIPv6.order(["192.0.2.1", "192.0.2.2"]) == ["192.0.2.1", "192.0.2.2"])
        #expect(AddressFamilies.preferIPv4.order(["::1"]) == ["::1"])
        #expect(AddressFamilies.onlyIPv6.order(["192.0.2.1"]) == [])
    }

    @Test(
        arguments: [
            ("192.0.2.1", AddressFamily.ipv4), ("2001:db8::1", .ipv6), ("::1", .ipv6), ("::", .ipv6),
            // Such a connection uses IPv4 packets.
            ("::ffff:192.0.2.1", .ipv4), ("::fffe:192.0.2.1", .ipv6), ("example.com", nil), ("127.1", nil), ("", nil),
        ] as [(String, AddressFamily?)]
    )
    func familyIsThatOfTheHostIfItIsAnAddress(host: String, family: AddressFamily?) {
        let endpoint = Endpoint(host: host, port: 7_000)
        #expect(AddressFamily(endpoint) == family)
        #expect(AddressFamilies.onlyIPv4.allow(endpoint) == (family != .ipv6))
        #expect(AddressFamilies.onlyIPv6.allow(endpoint) == (family != .ipv4))
        #expect(AddressFamilies.preferIPv4.putOff(endpoint) == (family == .ipv6))
        #expect(AddressFamilies.preferIPv6.putOff(endpoint) == (family == .ipv4))
        for families in [AddressFamilies.any, .preferIPv4, .preferIPv6] { #expect(families.allow(endpoint)) }
        #expect(!AddressFamilies.any.putOff(endpoint))
    }

    @Test func unixDomainSocketsAndNamesOfURLsHaveNone() throws {
        #expect(AddressFamily(Endpoint(unixPath: "/tmp/s")) == nil)
        #expect(try AddressFamily(Endpoint(url: "ws://example.com/")) == nil)
        #expect(try AddressFamily(Endpoint(url: "ws://[::1]:7001/")) == .ipv6)
    }

    @Test func familyThatIsOffIsNamedWithItsSettingAndTheWayOut() throws {
        let server = Endpoint(host: "::1", port: 7_000)
        let error = #expect(throws: SocketError.self) { try AddressFamilies.onlyIPv4.check(server, through: nil) }
        #expect(error?.code == .invalidArgument)
        #expect(
            error?.message == """
                cannot connect to [::1]:7000: this is an IPv6 address, and SocketConfiguration.addressFamilies is \
                onlyIPv4; allow IPv6 there, or give a host name or an IPv4 address
                """
        )
        try AddressFamilies.preferIPv4.check(server, through: nil)
        try AddressFamilies.onlyIPv6.check(server, through: nil)
    }

    @Test func behindAProxyItsAddressCounts() throws {
        let server = Endpoint(host: "::1", port: 7_000)
        try AddressFamilies.onlyIPv4.check(server, through: .http(host: "192.0.2.1"))
        try AddressFamilies.onlyIPv4.check(server, through: .socks5(host: "proxy.example"))
        let error = #expect(throws: SocketError.self) {
            try AddressFamilies.onlyIPv6.check(server, through: .socks5(host: "192.0.2.1"))
        }
        #expect(
            error?.message == """
                cannot connect to [::1]:7000 through socks5://192.0.2.1:1080: the proxy's is an IPv4 address, and \
                SocketConfiguration.addressFamilies is onlyIPv6; allow IPv4 there, or give a host name or an IPv6 address
                """
        )
        var configuration = SocketConfiguration(servers: [server])
        configuration.addressFamilies = .onlyIPv4
        #expect(configuration.serverAddressFamilies == .onlyIPv4)
        configuration.proxy = .http(host: "192.0.2.1")
        #expect(configuration.serverAddressFamilies == .any)
    }

    @Test func systemFindsAddressesOfTheAllowedFamilyAlone() async throws {
        #expect(try await AddressLookup.system.addresses(of: "127.0.0.1", .onlyIPv4) == ["127.0.0.1"])
        #expect(try await AddressLookup.system.addresses(of: "::1", .onlyIPv6) == ["::1"])
        for (host, families) in [("127.0.0.1", AddressFamilies.onlyIPv6), ("::1", .onlyIPv4)] {
            let error = await #expect(throws: AddressLookupError.self) {
                try await AddressLookup.system.addresses(of: host, families)
            }
            let only = try #require(families.only)
            let text = try #require(error?.description)
            #expect(text.hasPrefix("\(host) has no \(only) address ("), "\(text)")
            #expect(text.contains("SocketConfiguration.addressFamilies is \(families.rawValue)"))
            #expect(text.hasSuffix("or allow \(only.other) there"))
        }
    }

    @Test func resolverOfTheDNSAsksForTheAllowedFamilyAlone() async throws {
        let resolver = ServerResolver.dns(host: "127.0.0.1", port: 7_000)
        #expect(try await resolver.resolve(.onlyIPv4) == [Endpoint(host: "127.0.0.1", port: 7_000)])
        let error = await #expect(throws: SocketError.self) { try await resolver.resolve(.onlyIPv6) }
        #expect(error?.code == .hostNotFound)
        #expect(error?.message.contains("SocketConfiguration.addressFamilies is onlyIPv6") == true)
    }
}
