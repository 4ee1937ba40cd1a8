// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketRPC
import HHSocketServer
import NIOCore
import TestSupport
import Testing

/// Certificates of a client that appear, disappear and change while it runs.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ClientTLSReloadTests {
    private func client(
        _ server: Endpoint,
        trusting file: String,
        _ change: (inout SocketClient.Configuration) -> Void = { _ in }
    ) -> SocketClient {
        var tls = ClientTLS()
        tls.trust = .file(file)
        return SocketClient.connecting(to: server) {
            $0.socket.tls = tls
            $0.waitsForConnectivity = true
            change(&$0)
        }
    }

    private func expectEcho(_ client: SocketClient) async throws {
        #expect(try await client.data(for: SocketRequest(type: 101, body: "x")).string == "x")
    }

    private func withServer(
        _ certificate: TestCertificate.Name = .server,
        _ body: (Endpoint) async throws -> Void
    ) async throws {
        try await EchoServer.with(tls: ServerTLS(identity: TestCertificate(certificate).identity)) { server, _ in
            try await body(server)
        }
    }

    @Test func aMissingFileIsReadByALaterAttempt() async throws {
        let folder = try TemporaryFolder()
        let authority = try TestAuthority()
        try await self.withServer { server in
            let client = self.client(server, trusting: folder.file("authority.pem"))
            let event = try await first(of: client.events, "the failure") {
                if case .connectFailed = $0 { true } else { false }
            }
            guard case .connectFailed(let error) = event else { return }
            #expect(error.code == .invalidArgument)
            #expect(error.endpoint == server)
            #expect(error.message.contains("authority.pem"))
            _ = try folder.write(authority.pem, to: "authority.pem")
            try await self.expectEcho(client)
        }
    }

    @Test func newFilesAreUsedAfterAReload() async throws {
        let folder = try TemporaryFolder()
        let file = try folder.write(TestAuthority(.strangers).pem, to: "authority.pem")
        try await self.withServer { server in
            let client = self.client(server, trusting: file)
            _ = try await first(of: client.events, "the refusal") {
                if case .connectFailed(let error) = $0 { error.code == .tlsFailed } else { false }
            }
            _ = try folder.write(TestAuthority().pem, to: "authority.pem")
            try client.reloadTLS()
            try await self.expectEcho(client)
            // A file that cannot be read changes nothing.
            try FileManager.default.removeItem(atPath: file)
            #expect(throws: SocketError.self) { try client.reloadTLS() }
            client.disconnect()
            client.connect()
            try await self.expectEcho(client)
        }
    }

    @Test func withoutTLSThereIsNothingToReload() async throws {
        let client = SocketClient(configuration: .init(servers: []))
        let error = #expect(throws: SocketError.self) { try client.reloadTLS() }
        #expect(error?.code == .invalidArgument)
    }

    /// For example with a resolver, which finds addresses by a name.
    @Test func theCertificateOfAnAddressThatWasFoundByANameMustHaveThatName() async throws {
        let folder = try TemporaryFolder()
        let file = try folder.write(TestAuthority().pem, to: "authority.pem")
        try await self.withServer(.serverDB) { server in
            let named = Endpoint(host: server.host, port: server.port, serverName: "db.example")
            try await self.expectEcho(self.client(named, trusting: file))
            let other = Endpoint(host: server.host, port: server.port, serverName: "other.example")
            for endpoint in [server, other] {
                let client = self.client(endpoint, trusting: file)
                _ = try await first(of: client.events, "the refusal") {
                    if case .connectFailed(let error) = $0 { error.code == .tlsFailed } else { false }
                }
            }
        }
    }
}
