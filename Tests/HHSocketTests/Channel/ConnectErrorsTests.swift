// SPDX-License-Identifier: Apache-2.0
import NIOCore
import Testing

@testable import HHSocket

#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

/// The words for errors of the system.
@Suite struct ConnectErrorsTests {
    private let port = Endpoint(host: "db", port: 7_000)
    private let path = Endpoint(unixPath: "/run/db.sock")

    private func error(_ endpoint: Endpoint, _ errno: CInt, proxy: Proxy? = nil) -> SocketError {
        .connecting(
            to: endpoint,
            through: proxy,
            .connecting,
            failedWith: IOError(errnoCode: errno, reason: "connect"),
            timeout: .seconds(10)
        )
    }

    @Test func refusalNamesWhereNothingListens() {
        let byPort = self.error(self.port, ECONNREFUSED)
        #expect(byPort.code == .connectionRefused)
        #expect(
            byPort.message == "cannot connect to db:7000: connection refused; nothing listens on this port",
            "\(byPort.message)"
        )
        // The file of a server that has ended.
        let byPath = self.error(self.path, ECONNREFUSED)
        #expect(byPath.code == .connectionRefused)
        #expect(byPath.message.hasSuffix(": connection refused; nothing listens at this path"), "\(byPath.message)")
        // It is the proxy's port.
        let byProxy = self.error(self.path, ECONNREFUSED, proxy: .socks5(host: "proxy", port: 1_080))
        #expect(byProxy.message.hasSuffix("nothing listens on this port"), "\(byProxy.message)")
    }

    @Test func missingSocketFileIsARefusal() {
        let error = self.error(self.path, ENOENT)
        #expect(error.code == .connectionRefused)
        #expect(error.message.contains("there is no such socket"), "\(error.message)")
    }
}
