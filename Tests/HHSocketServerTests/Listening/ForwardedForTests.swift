// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

@Suite struct ForwardedForTests {
    private let proxies: [IPNetwork]

    init() throws {
        self.proxies = [try IPNetwork("10.0.0.0/8"), try IPNetwork("2001:db8::/32")]
    }

    private func client(_ values: String...) -> String? {
        ForwardedFor(values, through: self.proxies).client.map { address in
            address.port == 0 ? address.ipAddress ?? "" : "\(address.ipAddress ?? "") \(address.port ?? -1)"
        }
    }

    @Test(arguments: [
        ("192.0.2.7", "192.0.2.7"), ("192.0.2.7:4711", "192.0.2.7 4711"), ("2001:db9::1", "2001:db9::1"),
        ("[2001:db9::1]", "2001:db9::1"), ("[2001:db9::1]:4711", "2001:db9::1 4711"), ("\t192.0.2.7 ", "192.0.2.7"),
        ("::ffff:192.0.2.7", "::ffff:192.0.2.7"),
        // The last address that is not a proxy, whatever precedes it.
        ("203.0.113.1, 192.0.2.7", "192.0.2.7"), ("203.0.113.1,192.0.2.7,10.0.0.1", "192.0.2.7"),
        ("192.0.2.7, 10.1.1.1:80, [2001:db8::5]:443, ::ffff:10.0.0.1", "192.0.2.7"),
        ("nonsense, 192.0.2.7", "192.0.2.7"),
        ("192.0.2.7, , 10.0.0.1 ,", "192.0.2.7"),
        // If all are proxies, the first of them.
        ("10.0.0.2, 10.0.0.1", "10.0.0.2"), ("10.0.0.2", "10.0.0.2"),
    ])
    func theLastThatIsNoProxyIsTheClient(value: String, client: String) {
        #expect(self.client(value) == client)
        #expect(ForwardedFor([value], through: self.proxies).malformed == nil)
    }

    @Test func severalFieldsAreOne() {
        #expect(self.client("203.0.113.1", "192.0.2.7", "10.0.0.1") == "192.0.2.7")
        #expect(self.client("192.0.2.7, 10.0.0.2", "", "10.0.0.1") == "192.0.2.7")
        #expect(self.client() == nil && self.client("") == nil && self.client(" , ,") == nil)
    }

    @Test(arguments: [
        "unknown", "_hidden", "192.0.2", "192.0.2.7:", "192.0.2.7:65536", "192.0.2.7:x", "192.0.2.7 192.0.2.8", "::1:",
        "[::1", "[::1]x", "[::1]:", "[::1]:65536", "[192.0.2.7]", "[192.0.2.7]:80", "[]", "[", "]", ":", "fe80::1%lo",
        "\"192.0.2.7\"", "for=192.0.2.7", "example.com", "192.0.2.7\0", "é", "192.0.2.7;192.0.2.8",
    ])
    func invalidAddressEndsTheList(element: String) throws {
        let alone = ForwardedFor([element], through: self.proxies)
        #expect(alone.client == nil && alone.malformed == element)
        // The proxies after it are trusted, but not the elements before it.
        let listed = ForwardedFor(["192.0.2.7, \(element), 10.0.0.1"], through: self.proxies)
        #expect(listed.client == (try SocketAddress(ipAddress: "10.0.0.1", port: 0)) && listed.malformed == element)
    }

    @Test func randomBytesTrapNothing() {
        var generator = SeededGenerator(seed: 40)
        let alphabet = Array("0123456789abcdef.:,[] %\t_x\u{301}")
        for _ in 0..<5_000 {
            let count = Int.random(in: 0...40, using: &generator)
            let value = String((0..<count).compactMap { _ in alphabet.randomElement(using: &generator) })
            _ = ForwardedFor([value], through: self.proxies)
        }
    }
}
