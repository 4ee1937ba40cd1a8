// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketRPC
import HHSocketServer
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TestSupport
import Testing

/// TLS between our client and our server, with certificates of our own.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct TLSTests {
    /// Runs `body` with the address of a server with this certificate, and the server.
    private func withServer(
        _ certificate: TestCertificate,
        _ change: (inout ServerTLS) -> Void = { _ in },
        _ body: (Endpoint, SocketServer) async throws -> Void
    ) async throws {
        var tls = ServerTLS(identity: certificate.identity)
        change(&tls)
        try await EchoServer.with(tls: tls, body)
    }

    private func client(
        _ server: Endpoint,
        trusting authority: TestAuthority,
        _ change: (inout ClientTLS) -> Void = { _ in }
    ) -> SocketClient {
        var tls = ClientTLS()
        tls.trust = authority.trust
        change(&tls)
        return SocketClient.connecting(to: server) { $0.socket.tls = tls }
    }

    private func localhost(_ server: Endpoint) -> Endpoint { Endpoint(host: "localhost", port: server.port) }

    private func echo(_ client: SocketClient, _ text: String = "hello") async throws {
        let answer = try await client.data(for: SocketRequest(type: 101, body: text))
        #expect(answer.string == text)
    }

    /// Returns the failure with which this client cannot connect, or is rejected later.
    private func failure(_ client: SocketClient) async throws -> TLSFailure {
        let event = try await first(of: client.events, "a failure of TLS") {
            switch $0 {
            case .connectFailed(let error), .disconnected(let error): error.code == .tlsFailed
            default: false
            }
        }
        switch event {
        case .connectFailed(let error), .disconnected(let error):
            #expect(error.endpoint != nil)
            #expect(error.message.contains("\(try #require(error.endpoint))"))
            return try #require(error.underlying as? TLSFailure)
        default:
            throw Unexpected(description: "\(event)")
        }
    }

    // MARK: The server's certificate

    @Test func rightCertificateIsAcceptedByNameAndByAddress() async throws {
        let authority = try TestAuthority()
        try await self.withServer(try TestCertificate(.server)) { server, _ in
            for endpoint in [server, self.localhost(server)] {
                let client = self.client(endpoint, trusting: authority)
                try await self.echo(client)
                try await self.echo(client, String(repeating: "long ", count: 1 << 20))
                await client.close()
            }
        }
    }

    @Test func manyCallsInFlightAndPushesAreAnsweredOverTLS() async throws {
        let authority = try TestAuthority()
        try await self.withServer(try TestCertificate(.server)) { endpoint, server in
            let client = self.client(endpoint, trusting: authority)
            let pushes = client.pushes(ofType: 2001)
            try await withThrowingTaskGroup { group in
                for number in 0..<500 { group.addTask { try await self.echo(client, "call \(number)") } }
                try await group.waitForAll()
            }
            #expect(await server.push(type: 2001, body: ByteBuffer(string: "news")) == 1)
            #expect(try await first(of: pushes, "the push").string == "news")
        }
    }

    @Test func subscriberHoldsUpReadingOverTLSAndLosesNothing() async throws {
        let authority = try TestAuthority()
        try await self.withServer(try TestCertificate(.server)) { endpoint, server in
            let client = self.client(endpoint, trusting: authority)
            let pushes = client.pushes(ofType: 2001, buffering: .suspendReading(4))
            try await self.echo(client)
            // Twice the length of one read.
            for number in 0..<64 {
                var body = ByteBuffer(integer: number)
                body.writeRepeatingByte(7, count: 32 << 10)
                #expect(await server.push(type: 2001, body: body) == 1)
            }
            try await eventually("the limit") { client.statistics.pushes >= 4 }
            let error = await #expect(throws: SocketError.self) {
                try await client.data(for: SocketRequest(type: 101, timeout: .milliseconds(200)))
            }
            #expect(error?.code == .timeout)
            #expect(client.statistics.pushes < 64)
            let numbers = try await withDeadline("the pushes") {
                var numbers: [Int?] = []
                for await push in pushes {
                    numbers.append(push.body.getInteger(at: push.body.readerIndex))
                    if numbers.count == 64 { break }
                }
                return numbers
            }
            #expect(numbers == Array(0..<64))
            try await self.echo(client)
        }
    }

    @Test func expiredCertificateIsRejected() async throws {
        let authority = try TestAuthority()
        try await self.withServer(try TestCertificate(.serverExpired)) { server, instance in
            let failure = try await self.failure(self.client(server, trusting: authority))
            #expect(failure.reason == .outOfDate)
            #expect(failure.description.contains("expired on 20"))
            #expect(instance.statistics[.connectionsAccepted] == 0)
        }
    }

    @Test func certificateOfAnotherHostIsRejected() async throws {
        let authority = try TestAuthority()
        try await self.withServer(try TestCertificate(.serverNameOnly)) { server, _ in
            for endpoint in [server, self.localhost(server)] {
                #expect(try await self.failure(self.client(endpoint, trusting: authority)).reason == .wrongHost)
            }
            // With the name of its certificate the server is accepted.
            let client = self.client(server, trusting: authority) { $0.serverName = "example.com" }
            try await self.echo(client)
        }
    }

    /// NIOSSL alone would accept it: an attacker who forges the DNS can have a certificate for their own address.
    @Test func certificateForTheAddressIsNotAcceptedForTheName() async throws {
        let authority = try TestAuthority()
        try await self.withServer(try TestCertificate(.serverOtherName)) { server, instance in
            // This client asks only for the address.
            try await self.echo(self.client(server, trusting: authority))
            let requests = instance.statistics[.requests]
            let byName = self.client(self.localhost(server), trusting: authority)
            #expect(try await self.failure(byName).reason == .wrongHost)
            let named = self.client(server, trusting: authority) { $0.serverName = "example.com" }
            #expect(try await self.failure(named).reason == .wrongHost)
            #expect(instance.statistics[.requests] == requests)
        }
    }

    @Test func unknownAuthorityIsNotTrusted() async throws {
        let other = try TestAuthority(.impostor)
        try await self.withServer(try TestCertificate(.server)) { server, instance in
            #expect(try await self.failure(self.client(server, trusting: other)).reason == .notTrusted)
            let system = SocketClient.connecting(to: server) { $0.socket.tls = ClientTLS() }
            #expect(try await self.failure(system).reason == .notTrusted)
            #expect(instance.statistics[.requests] == 0)
            // Unless verification is disabled explicitly.
            let client = self.client(server, trusting: other) { $0.insecurelySkipsVerification = true }
            try await self.echo(client)
        }
    }

    // MARK: Pins

    @Test func pinsAreCheckedOnTopOfVerification() async throws {
        let authority = try TestAuthority()
        let certificate = try TestCertificate(.server)
        let other = try TestCertificate(.serverRenewed)
        let pin = try PublicKeyPin(certificatePEM: certificate.certificatePEM)
        let wrong = try PublicKeyPin(certificatePEM: other.certificatePEM)
        try await self.withServer(certificate) { server, instance in
            try await self.echo(self.client(server, trusting: authority) { $0.pins = [pin] })
            // The second pin is a spare for when the first is replaced.
            try await self.echo(self.client(server, trusting: authority) { $0.pins = [wrong, pin] })
            let requests = instance.statistics[.requests]

            let pinned = self.client(server, trusting: authority) { $0.pins = [wrong] }
            let call = pinned.dataTask(with: SocketRequest(type: 101, body: "secret"))
            call.resume()
            let failure = try await self.failure(pinned)
            #expect(failure.reason == .pinMismatch)
            #expect(failure.description.contains(pin.base64))
            await pinned.close()
            // Nothing was sent.
            #expect(instance.statistics[.requests] == requests)

            // A pin does not replace verification.
            let unknown = self.client(server, trusting: try TestAuthority(.impostor)) { $0.pins = [pin] }
            #expect(try await self.failure(unknown).reason == .notTrusted)
            let unverified = self.client(server, trusting: authority) {
                $0.insecurelySkipsVerification = true
                $0.pins = [wrong]
            }
            #expect(try await self.failure(unverified).reason == .pinMismatch)
        }
    }

    @Test func pinStaysWhenACertificateIsRenewedWithItsKey() throws {
        let server = try TestCertificate(.server)
        let old = try PublicKeyPin(certificatePEM: server.certificatePEM)
        let new = try PublicKeyPin(certificatePEM: try TestCertificate(.serverSameKey).certificatePEM)
        #expect(old == new)
        // By openssl: the SHA-256 of the key's SubjectPublicKeyInfo.
        #expect(old.base64 == server.pin)
        #expect(try PublicKeyPin(base64: old.base64) == old)
        #expect(try PublicKeyPin(base64: old.description) == old)
        for text in ["", "sha256/", "no base64!", Data([1, 2, 3]).base64EncodedString()] {
            #expect(throws: SocketError.self) { try PublicKeyPin(base64: text) }
        }
    }

    // MARK: The client's certificate

    @Test(arguments: [true, false])
    func certificateOfTheRightAuthorityLetsAClientIn(isRequired: Bool) async throws {
        let authority = try TestAuthority()
        let clients = try TestAuthority(.clients)
        let certificate = try TestCertificate(.clientOfClients)
        try await self.withServer(
            try TestCertificate(.server),
            { $0.clientCertificates = isRequired ? .required(clients.trust) : .wanted(clients.trust) }
        ) { server, instance in
            try await self.echo(self.client(server, trusting: authority) { $0.identity = certificate.identity })
            guard !isRequired else { return }
            try await self.echo(self.client(server, trusting: authority))
        }
    }

    @Test func handlersSeeTheClientsCertificate() async throws {
        let authority = try TestAuthority()
        let certificate = try TestCertificate(.client)
        var tls = ServerTLS(identity: try TestCertificate(.server).identity)
        tls.clientCertificates = .wanted(authority.trust)
        var configuration = SocketServer.Configuration()
        configuration.listeners = [ServerListener(tls: tls)]
        var router = Router()
        router.handleSynchronously(101) { _, context in
            context.session.peerCertificate.map { ByteBuffer(bytes: $0) } ?? ByteBuffer(string: "none")
        }
        let server = SocketServer(configuration: configuration, router: router)
        try await server.start()
        let address = try #require(server.address)
        let known = self.client(address, trusting: authority) { $0.identity = certificate.identity }
        let shown = try await known.data(for: SocketRequest(type: 101)).body
        #expect(Data(shown.readableBytesView).base64EncodedString() == certificate.certificateBase64)
        let unknown = self.client(address, trusting: authority)
        #expect(try await unknown.data(for: SocketRequest(type: 101)).string == "none")
        for client in [known, unknown] { await client.close() }
        await server.shutdown(gracePeriod: .zero)
    }

    @Test func aClientMayBeKnownByItsCertificate() async throws {
        let authority = try TestAuthority()
        let certificate = try TestCertificate(.client)
        var tls = ServerTLS(identity: try TestCertificate(.server).identity)
        tls.clientCertificates = .wanted(authority.trust)
        var configuration = SocketServer.Configuration()
        configuration.listeners = [ServerListener(tls: tls)]
        let der = try #require(Data(base64Encoded: certificate.certificateBase64))
        let fingerprint = SHA256.hash(of: [UInt8](der)).map { byte in
            (byte < 16 ? "0" : "") + String(byte, radix: 16)
        }.joined()
        configuration.connections.admit = { client in
            client.certificateFingerprint == fingerprint ? .admitAs("the device") : .admit
        }
        var router = Router()
        router.use(AuthenticationMiddleware())
        router.handleSynchronously(101) { _, context in ByteBuffer(string: context.session.identity ?? "nobody") }
        let server = SocketServer(configuration: configuration, router: router)
        try await server.start()
        let address = try #require(server.address)
        let known = self.client(address, trusting: authority) { $0.identity = certificate.identity }
        #expect(try await known.data(for: SocketRequest(type: 101)).string == "the device")
        let unknown = self.client(address, trusting: authority)
        let error = await #expect(throws: SocketError.self) { try await unknown.data(for: SocketRequest(type: 101)) }
        #expect(error?.code == .noPermission)
        for client in [known, unknown] { await client.close() }
        await server.shutdown(gracePeriod: .zero)
    }

    /// In TLS 1.3 the client is notified after its side of the handshake has ended.
    @Test func clientWithoutACertificateIsNotifiedAndNoTaskIsLost() async throws {
        let authority = try TestAuthority()
        try await self.withServer(
            try TestCertificate(.server),
            { $0.clientCertificates = .required(authority.trust) }
        ) { server, instance in
            let client = self.client(server, trusting: authority)
            let error = await #expect(throws: SocketError.self) { try await self.echo(client) }
            #expect(error?.code == .tlsFailed, "\(String(describing: error))")
            #expect((error?.underlying as? TLSFailure)?.reason == .clientCertificateRequired)
            #expect(try await self.failure(client).reason == .clientCertificateRequired)
            #expect(instance.statistics[.requests] == 0)
            try await eventually("the server's count") { instance.statistics[.tlsFailures] >= 1 }
        }
    }

    @Test func clientWithAnExpiredOrUnknownCertificateIsNotified() async throws {
        let authority = try TestAuthority()
        let expired = try TestCertificate(.clientExpired)
        let stranger = try TestCertificate(.clientOfStrangers)
        for isRequired in [true, false] {
            try await self.withServer(
                try TestCertificate(.server),
                { $0.clientCertificates = isRequired ? .required(authority.trust) : .wanted(authority.trust) }
            ) { server, _ in
                for certificate in [expired, stranger] {
                    let client = self.client(server, trusting: authority) { $0.identity = certificate.identity }
                    let failure = try await self.failure(client)
                    #expect(failure.reason == .clientCertificateRejected, "\(failure)")
                }
            }
        }
    }

    // MARK: Reloading

    @Test func serverThatReloadsServesOnAndShowsTheNewCertificate() async throws {
        let authority = try TestAuthority()
        let (old, new) = (try TestCertificate(.server), try TestCertificate(.serverRenewed))
        let newPin = try PublicKeyPin(certificatePEM: new.certificatePEM)
        try await self.withServer(old) { endpoint, server in
            let before = self.client(endpoint, trusting: authority)
            let stop = NIOLockedValueBox(false)
            let load = Task {
                var calls = 0
                while !stop.withLockedValue({ $0 }) {
                    try await self.echo(before, "call \(calls)")
                    calls += 1
                }
                return calls
            }
            // New connections are made throughout, while certificates change.
            for round in 0..<10 {
                try server.reloadTLS(ServerTLS(identity: (round % 2 == 0 ? new : old).identity))
                let client = self.client(endpoint, trusting: authority)
                try await self.echo(client)
                await client.close()
            }
            try server.reloadTLS(ServerTLS(identity: new.identity))
            try await self.echo(self.client(endpoint, trusting: authority) { $0.pins = [newPin] })
            // An unusable identity changes nothing.
            let mixed = TLSIdentity(certificatePEM: new.certificatePEM, keyPEM: old.keyPEM)
            #expect(throws: SocketError.self) { try server.reloadTLS(ServerTLS(identity: mixed)) }
            #expect(throws: SocketError.self) {
                try server.reloadTLS(ServerTLS(identity: TLSIdentity(certificateFile: "/nowhere", keyFile: "/nowhere")))
            }
            try await self.echo(self.client(endpoint, trusting: authority) { $0.pins = [newPin] })
            stop.withLockedValue { $0 = true }
            #expect(try await load.value > 0)
        }
    }

    // MARK: One end without TLS

    @Test func plainClientOfATLSPortFailsInTime() async throws {
        try await self.withServer(try TestCertificate(.server), { $0.handshakeTimeout = .milliseconds(200) }) {
            server,
            instance in
            let client = SocketClient.connecting(to: server) { $0.timeout = .seconds(60) }
            let error = await #expect(throws: SocketError.self) { try await self.echo(client) }
            #expect([.connectionLost, .protocolViolation].contains(error?.code), "\(String(describing: error))")
            // A client that sends nothing does not stay forever.
            let silent = SocketClient.connecting(to: server)
            _ = try await first(of: silent.events, "the end of the silence") {
                if case .disconnected = $0 { true } else { false }
            }
            try await eventually("the count") { instance.statistics[.tlsFailures] >= 2 }
            #expect(instance.statistics[.connectionsAccepted] == 0)
        }
    }

    @Test func clientOfAPlainPortFailsInTime() async throws {
        let server = SocketServer(router: .echo)
        try await server.start()
        let address = try #require(server.address)
        // The timeout also covers the connection before TLS.
        let error = try await withGrowingTimeout { timeout -> SocketError in
            let (client, events) = SocketClient.connectingWithEvents(to: address) {
                $0.socket.tls = ClientTLS()
                $0.socket.connectTimeout = max(timeout, .seconds(1))
            }
            let event = try await first(of: events, "the failure") {
                if case .connectFailed = $0 { true } else { false }
            }
            await client.close()
            guard case .connectFailed(let error) = event else { throw Unexpected(description: "\(event)") }
            return error
        } until: {
            $0.message.contains("TLS")
        }
        #expect([.tlsFailed, .connectTimeout].contains(error.code), "\(error)")
        #expect(error.message.contains("TLS"), "\(error)")
        await server.shutdown(gracePeriod: .zero)
    }

    @Test func unreadableFileIsReportedAtOnce() async throws {
        let authority = try TestAuthority()
        let server = SocketServer(
            configuration: .init(
                tls: ServerTLS(identity: TLSIdentity(certificateFile: "/nowhere.pem", keyFile: "/key"))
            ),
            router: .echo
        )
        let error = await #expect(throws: SocketError.self) { try await server.start() }
        #expect(error?.code == .invalidArgument)
        #expect(error?.message.contains("/nowhere.pem") == true)

        for (wrong, word) in [
            ({ (tls: inout ClientTLS) in tls.trust = .pem("nothing") }, "certificate"),
            ({ $0.trust = .file("/nowhere.pem") }, "/nowhere.pem"),
            ({ $0.identity = TLSIdentity(certificatePEM: authority.pem, keyPEM: "nothing") }, "private key"),
            ({ $0.serverName = "127.0.0.1" }, "serverName"),
            ({ $0.serverName = "" }, "serverName"),
        ] as [((inout ClientTLS) -> Void, String)] {
            let client = self.client(Endpoint(host: "127.0.0.1", port: 1), trusting: authority, wrong)
            let event = try await first(of: client.events, "the failure") {
                if case .connectFailed = $0 { true } else { false }
            }
            guard case .connectFailed(let failure) = event else { return }
            #expect(failure.code == .invalidArgument)
            #expect(failure.message.contains(word), "\(failure.message)")
        }
    }

    @Test func shutdownDoesNotWaitForHandshakes() async throws {
        try await self.withServer(try TestCertificate(.server)) { endpoint, server in
            let silent = SocketClient.connecting(to: endpoint)
            _ = try await first(of: silent.events, "the connection") { if case .connected = $0 { true } else { false } }
            await server.shutdown(gracePeriod: .seconds(60))
            _ = try await eventually("the loss") { if case .ready = silent.state { false } else { true } }
        }
    }
}
