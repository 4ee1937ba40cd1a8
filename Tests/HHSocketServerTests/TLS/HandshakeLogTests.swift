// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import InMemoryLogging
import TestSupport
import Testing

@testable import HHSocketServer

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct HandshakeLogTests {
    /// The log shows operators why clients cannot connect.
    @Test func whyAHandshakeHasFailedIsLogged() async throws {
        let log = InMemoryLogHandler()
        var configuration = SocketServer.Configuration(tls: ServerTLS(identity: try TestCertificate(.server).identity))
        configuration.logger = Logger(label: "test", factory: { _ in log })
        configuration.logger.logLevel = .debug
        @Sendable func failures() -> [InMemoryLogHandler.Entry] {
            log.entries.filter { $0.message == "a TLS handshake has failed" }
        }
        try await withServer(configuration, Router()) { server in
            // Plain HTTP, and a health check that only connects.
            let client = try await HostileClient.connect(to: server.address)
            await client.perform(.raw(Array("GET / HTTP/1.1\r\n\r\n".utf8)))
            try? await client.ended()
            try await eventually("the first line") { failures().count == 1 }
            let check = try await HostileClient.connect(to: server.address)
            await check.perform(.close)
            try await eventually("the second line") { failures().count == 2 }
            #expect(server.statistics[.tlsFailures] == 2)
        }
        let (first, second) = (failures()[0], failures()[1])
        #expect(first.level == .debug)
        #expect(first.metadata["remote"]?.description.contains("127.0.0.1") == true)
        #expect(first.metadata["reason"]?.description.contains("HTTP_REQUEST") == true, "\(first.metadata)")
        #expect(second.metadata["reason"]?.description != first.metadata["reason"]?.description)
    }
}
