// SPDX-License-Identifier: Apache-2.0
import Testing

@testable import HHSocket

@Suite struct ServersOnThisMachineTests {
    @Test(arguments: [
        "127.0.0.1", "127.255.0.9", "::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1", "localhost", "LocalHost",
        "im1.localhost", "0.0.0.0", "::",
    ])
    func areKnownByTheirHost(host: String) {
        #expect(Endpoint(host: host, port: 1).isOnThisMachine)
    }

    @Test func soAreUnixDomainSockets() {
        #expect(Endpoint(unixPath: "/tmp/s").isOnThisMachine)
    }

    @Test(arguments: [
        "192.0.2.1", "128.0.0.1", "12.7.0.1", "::2", "127.example.com", "127.0.0.1.example.com",
        "localhost.example.com", "notlocalhost", "", "::ffff:10.0.0.1",
    ])
    func othersAreNot(host: String) {
        #expect(!Endpoint(host: host, port: 1).isOnThisMachine)
    }
}
