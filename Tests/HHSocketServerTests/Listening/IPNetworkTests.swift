// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Testing

@testable import HHSocketServer

@Suite struct IPNetworkTests {
    @Test(arguments: [
        ("10.0.0.0/8", "10.255.3.4", "11.0.0.0"), ("10.1.2.3", "10.1.2.3", "10.1.2.4"),
        ("0.0.0.0/0", "255.255.255.255", "::1"), ("192.0.2.128/25", "192.0.2.200", "192.0.2.127"),
        ("192.0.2.6/31", "192.0.2.7", "192.0.2.8"), ("::1", "::1", "::2"),
        ("2001:db8::/32", "2001:db8:1::1", "2001:db9::"),
        ("2001:db8::/127", "2001:db8::1", "2001:db8::2"), ("::/0", "fe80::1", "127.0.0.1"),
        // Addresses that an IPv6 socket reports.
        ("10.0.0.0/8", "::ffff:10.1.2.3", "::ffff:11.1.2.3"), ("::ffff:10.0.0.0/104", "10.1.2.3", "::10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3", "10.1.2.4"), ("::/0", "::1", "::ffff:127.0.0.1"),
        ("::ffff:0.0.0.0/96", "1.2.3.4", "::1"),
    ])
    func hasItsAddressesAndNoOthers(network: String, inside: String, outside: String) throws {
        let network = try IPNetwork(network)
        #expect(network.contains(try SocketAddress(ipAddress: inside, port: 80)))
        #expect(!network.contains(try SocketAddress(ipAddress: outside, port: 80)))
        #expect(!network.contains(try SocketAddress(unixDomainSocketPath: "/tmp/socket")))
        #expect(try IPNetwork(network.description) == network)
    }

    @Test(arguments: [
        ("10.0.0.0/8", "10.0.0.0/8", 8), ("10.1.2.3/32", "10.1.2.3", 32), ("2001:DB8:0::/32", "2001:db8::/32", 32),
        ("::1/128", "::1", 128), ("::ffff:10.0.0.0/104", "10.0.0.0/8", 8), ("::/0", "::/0", 0),
    ])
    func isWrittenInOneWay(text: String, description: String, length: Int) throws {
        let network = try IPNetwork(text)
        #expect(network.description == description)
        #expect(network.prefixLength == length)
    }

    @Test(arguments: [
        "", "/", "/8", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/+8", "10.0.0.0/08", "10.0.0.0/8/8",
        "10.0.0.0/8 ", " 10.0.0.0/8", "10.0.0/8", "10.0.0.256", "localhost", "::/129", "[::1]", "::1%lo",
        "fe80::1%1/64",
        "10.0.0.0\0", "10.0.0.0/99999999999999999999", "10.0.0.1/8", "2001:db8::1/64", "::ffff:10.0.0.0/8",
        "unix:/tmp/socket", "é",
    ])
    func anythingElseIsNoNetwork(text: String) {
        let error = #expect(throws: SocketError.self) { try IPNetwork(text) }
        #expect(error?.code == .invalidArgument)
        #expect(error?.message.hasPrefix("\"\(text)\" is not a network: ") == true)
    }

    @Test func noNetworksContainNoAddress() throws {
        #expect(![IPNetwork]().contains(try SocketAddress(ipAddress: "::1", port: 1)))
        #expect(![try IPNetwork("::/0"), try IPNetwork("0.0.0.0/0")].contains(nil as SocketAddress?))
    }
}
