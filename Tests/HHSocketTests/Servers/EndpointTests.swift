// SPDX-License-Identifier: Apache-2.0
import Testing

@testable import HHSocket
@testable import HHSocketLink

@Suite struct EndpointTests {
    @Test func addressesOfANameKeepIt() async throws {
        let found = try await ServerResolver.dns(host: "localhost", port: 7_000).resolve(.any)
        #expect(!found.isEmpty)
        #expect(found.allSatisfy { $0.serverName == "localhost" && $0.host != "localhost" })
    }

    @Test(arguments: [
        ("127.0.0.1:7000", "127.0.0.1", 7000), ("im1.example.com:1", "im1.example.com", 1),
        ("[::1]:65535", "::1", 65_535), ("localhost:40000", "localhost", 40_000), ("my_host-1:1", "my_host-1", 1),
        ("[fe80::1%eth0]:1", "fe80::1%eth0", 1), ("bücher.example:1", "bücher.example", 1), ("例え.jp.:1", "例え.jp.", 1),
    ])
    func readsHostAndPort(text: String, host: String, port: Int) {
        #expect(Endpoint(text) == Endpoint(host: host, port: port))
        #expect(Endpoint(text)?.description == text)
    }

    @Test(arguments: [
        "", ":", "host", "host:", ":7000", "host:0", "host:65536", "host:-1", "host:+1", "host:7a", "host: 7",
        "::1:7000", "[]:7000", "host:99999999999999999999",
        // A host with what no host has: blanks, users, schemes and paths, and what is not seen.
        " host:1", "ho st:1", "host :1", "\thost:1", "host\n:1", "user@host:1", "user:secret@host:1", "http//host:1",
        "host/path:1", "host?:1", "host#:1", "ho,st:1", "\"host\":1", "host\\:1", "[::1 ]:1", "[::1:1", "::1]:1",
        "h%1:1",
        "ho\u{200B}st:1", "\u{FEFF}host:1", "ho\u{A0}st:1", "ho\u{2028}st:1", "host\u{0}:1",
    ])
    func refusesWhatIsNoEndpoint(text: String) {
        #expect(Endpoint(text) == nil)
    }
}
