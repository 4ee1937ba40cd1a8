// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketRPC
import HHSocketServer
import InMemoryLogging
import Logging
import NIOCore
import TestSupport
import Testing

/// The settings of `ServerTLS` other than its certificate, between our client and our server.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ServerTLSTests {
    private func client(_ server: Endpoint, _ change: (inout ClientTLS) throws -> Void = { _ in }) throws
        -> SocketClient
    {
        var tls = ClientTLS()
        tls.trust = try TestAuthority().trust
        try change(&tls)
        return SocketClient.connecting(to: server) { $0.socket.tls = tls }
    }

    private func echo(_ client: SocketClient) async throws {
        #expect(try await client.data(for: SocketRequest(type: 101, body: "hello")).string == "hello")
        await client.close()
    }

    /// Returns the error with which this client cannot connect, or is disconnected immediately.
    private func failure(_ client: SocketClient) async throws -> SocketError {
        let event = try await first(of: client.events, "a failure") {
            switch $0 {
            case .connectFailed, .disconnected: true
            default: false
            }
        }
        await client.close()
        switch event {
        case .connectFailed(let error), .disconnected(let error): return error
        default: throw Unexpected(description: "\(event)")
        }
    }

    private func reason(_ client: SocketClient) async throws -> TLSFailure.Reason? {
        (try await self.failure(client).underlying as? TLSFailure)?.reason
    }

    private func pin(_ name: TestCertificate.Name) throws -> PublicKeyPin {
        try PublicKeyPin(certificatePEM: TestCertificate(name).certificatePEM)
    }

    // MARK: Keys

    /// TLS libraries have them, but BoringSSL accepts none of these by default.
    @Test(arguments: [
        (TestCertificate.Name.serverEd25519, TestCertificate.Name.clientEd25519), (.serverP521, .clientP521),
        (.serverEd25519, .clientP521),
    ])
    func certificatesMayHaveKeysOfOtherKindsThanP256AndRSA(
        server: TestCertificate.Name,
        client: TestCertificate.Name
    ) async throws {
        let trust = try TestAuthority(.modern).trust
        var tls = ServerTLS(identity: try TestCertificate(server).identity)
        tls.clientCertificates = .required(trust)
        try await EchoServer.with(tls: tls) { server, _ in
            try await self.echo(
                self.client(server) {
                    $0.trust = trust
                    $0.identity = try TestCertificate(client).identity
                }
            )
        }
    }

    // MARK: Names

    @Test func clientsGetTheCertificateOfTheHostThatTheyName() async throws {
        var tls = ServerTLS(identity: try TestCertificate(.server).identity)
        tls.identitiesByHost = [
            "example.com": try TestCertificate(.serverNameOnly).identity,
            "DB.example": try TestCertificate(.serverDB).identity,
        ]
        try await EchoServer.with(tls: tls) { server, instance in
            let hosts: [(String?, TestCertificate.Name)] = [
                (nil, .server), ("localhost", .server), ("example.com", .serverNameOnly), ("db.example", .serverDB),
            ]
            for (host, certificate) in hosts {
                let pin = try self.pin(certificate)
                try await self.echo(
                    try self.client(server) {
                        $0.serverName = host
                        $0.pins = [pin]
                    }
                )
            }
            // For a host without a certificate the server sends the default one, which the client does not accept.
            #expect(try await self.reason(try self.client(server) { $0.serverName = "other.example" }) == .wrongHost)
            // Other certificates replace them, with other names.
            tls.identitiesByHost = ["other.example": try TestCertificate(.serverOtherName).identity]
            try instance.reloadTLS(tls)
            try await self.echo(try self.client(server) { $0.serverName = "other.example" })
            #expect(try await self.reason(try self.client(server) { $0.serverName = "example.com" }) == .wrongHost)
        }
    }

    // MARK: Protocols, suites, groups

    @Test func clientWithoutACommonProtocolIsNotified() async throws {
        var tls = ServerTLS(identity: try TestCertificate(.server).identity)
        tls.applicationProtocols = ["hhsocket.2", "hhsocket.1"]
        tls.requiresApplicationProtocol = true
        try await EchoServer.with(tls: tls) { server, instance in
            try await self.echo(try self.client(server) { $0.applicationProtocols = ["h2", "hhsocket.1"] })
            for (index, offered) in [[], ["h2"], ["hhsocket.10"]].enumerated() {
                let error = try await self.failure(try self.client(server) { $0.applicationProtocols = offered })
                #expect((error.underlying as? TLSFailure)?.reason == .noCommonProtocol)
                // Certificates with keys of other kinds lead to the same alert.
                let words = "the two ends have no version, cipher, protocol or kind of certificate in common: "
                #expect(error.message.contains(words), "\(error.message)")
                try await eventually("the count") { instance.statistics[.tlsFailures] > index }
            }
            #expect(instance.statistics[.connectionsAccepted] == 1)
            // By default these clients are served.
            tls.requiresApplicationProtocol = false
            try instance.reloadTLS(tls)
            try await self.echo(try self.client(server) { $0.applicationProtocols = ["h2"] })
        }
    }

    @Test func keysAreAgreedOnInTheGroupsThatAreGiven() async throws {
        var tls = ServerTLS(identity: try TestCertificate(.server).identity)
        tls.keyExchangeGroups = [.secp384r1]
        try await EchoServer.with(tls: tls) { server, instance in
            try await self.echo(try self.client(server))
            // A group that our clients do not offer.
            tls.keyExchangeGroups = [.secp521r1]
            try instance.reloadTLS(tls)
            #expect(try await self.reason(try self.client(server)) == .noCommonProtocol)
        }
    }

    // MARK: Revoked certificates

    @Test func revokedCertificatesAreRefused() async throws {
        var tls = ServerTLS(identity: try TestCertificate(.server).identity)
        tls.clientCertificates = .wanted(try TestAuthority(.revoking).trust)
        try await EchoServer.with(tls: tls) { server, instance in
            func client(_ name: TestCertificate.Name) throws -> SocketClient {
                let identity = try TestCertificate(name).identity
                return try self.client(server) { $0.identity = identity }
            }
            for name in [TestCertificate.Name.clientRevoked, .clientOfRevoking] {
                try await self.echo(try client(name))
            }
            tls.revocationLists = [.pem(try testRevocationList())]
            try instance.reloadTLS(tls)
            try await self.echo(try client(.clientOfRevoking))
            // A client without a certificate is accepted, since none could be revoked.
            try await self.echo(try self.client(server))
            let requests = instance.statistics[.requests]
            _ = try await self.failure(try client(.clientRevoked))
            try await eventually("the count") { instance.statistics[.clientCertificatesRevoked] >= 1 }
            #expect(instance.statistics[.tlsFailures] >= 1)
            #expect(instance.statistics[.requests] == requests)
            // The list does not replace the authority.
            let stranger = try client(.clientOfStrangers)
            #expect(try await self.reason(stranger) == .clientCertificateRejected)
        }
    }

    // MARK: Reloading

    @Test func reloadTakesOverTheTimeForHandshakesToo() async throws {
        var tls = ServerTLS(identity: try TestCertificate(.server).identity)
        tls.handshakeTimeout = .seconds(3_600)
        try await EchoServer.with(tls: tls) { server, instance in
            tls.handshakeTimeout = .milliseconds(50)
            try instance.reloadTLS(tls)
            let silent = SocketClient.connecting(to: server)
            _ = try await first(of: silent.events, "the end of the silence") {
                if case .disconnected = $0 { true } else { false }
            }
            await silent.close()
        }
    }

    @Test func changedFilesAreReloaded() async throws {
        let files = try TestServerFiles()
        var tls = ServerTLS(identity: TLSIdentity(certificateFile: files.certificate, keyFile: files.key))
        tls.fileCheckInterval = .milliseconds(1)
        let log = InMemoryLogHandler()
        var configuration = SocketServer.Configuration(tls: tls)
        configuration.logger = Logger(label: "test") { _ in log }
        let server = SocketServer(configuration: configuration, router: .echo)
        try await server.start()
        let address = try #require(server.address)
        let (old, new) = (try self.pin(.server), try self.pin(.serverRenewed))
        try await self.echo(try self.client(address) { $0.pins = [old] })

        let renewed = try TestCertificate(.serverRenewed)
        // The new key does not exist yet, or was not read yet.
        _ = try files.folder.write(renewed.certificatePEM, to: "server.pem")
        try await eventually("a complaint") {
            log.entries.contains { "\($0.message)" == "certificates cannot be reloaded" }
        }
        try await self.echo(try self.client(address) { $0.pins = [old] })
        _ = try files.folder.write(renewed.keyPEM, to: "server.key")
        try await eventually("the new certificate") {
            log.entries.contains { "\($0.message)" == "certificates were reloaded" }
        }
        try await self.echo(try self.client(address) { $0.pins = [new] })
        await server.shutdown(gracePeriod: .zero)
        // A later reload starts no thread.
        try server.reloadTLS()
    }
}
