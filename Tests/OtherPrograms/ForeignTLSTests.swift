// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketRPC
import HHSocketServer
import HHSocketTesting
import TestSupport
import Testing

/// Our TLS with that of OpenSSL: Python's `ssl`, `openssl s_server` and `openssl s_client`.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ForeignTLSTests {
    private static let openssl: URL? = ["/usr/bin/openssl", "/opt/homebrew/bin/openssl", "/usr/local/bin/openssl"]
        .first { FileManager.default.isExecutableFile(atPath: $0) }
        .map { URL(fileURLWithPath: $0) }

    private let files: TestServerFiles

    init() throws {
        self.files = try TestServerFiles()
    }

    private var tls: ClientTLS {
        var tls = ClientTLS()
        tls.trust = self.files.authority.trust
        return tls
    }

    private func calls(_ client: SocketClient) async throws {
        let long = String(repeating: "long ", count: 1 << 20)
        #expect(try await client.data(for: SocketRequest(type: 101, body: long)).string == long)
        try await withThrowingTaskGroup { group in
            for number in 0..<200 {
                group.addTask {
                    let answer = try await client.data(for: SocketRequest(type: 101, body: "call \(number)"))
                    #expect(answer.string == "call \(number)")
                }
            }
            try await group.waitForAll()
        }
        await client.close()
    }

    // MARK: Python

    @Test(.enabled(if: Python.isInstalled, Comment(rawValue: Python.howToGetIt)))
    func ourClientSpeaksToPythonsTLS() async throws {
        try await EchoServer.with(tls: nil) { server, _ in
            let relay = try Python.tlsRelay(["in", "\(server.port)", self.files.certificate, self.files.key])
            let address = try #require(try await relay.lines().first?.split(separator: " ").last.map(String.init))
            let endpoint = try #require(Endpoint(address))
            try await self.calls(SocketClient.connecting(to: endpoint) { $0.socket.tls = self.tls })
            relay.signal(15)
        }
    }

    @Test(.enabled(if: Python.isInstalled, Comment(rawValue: Python.howToGetIt)))
    func ourLinesGoThroughPythonsTLS() async throws {
        let server = try await LineServer(.echo)
        let relay = try Python.tlsRelay(["in", "\(server.endpoint.port)", self.files.certificate, self.files.key])
        let address = try #require(try await relay.lines().first?.split(separator: " ").last.map(String.init))
        var configuration = try LineLink.Configuration(address: "tls://\(address)")
        configuration.socket.tls = self.tls
        let link = LineLink(configuration: configuration)
        link.connect()
        let long = String(repeating: "long ", count: 200_000)
        link.send("short", completion: nil)
        try await link.send(long)
        let lines = try await withDeadline("the echoes") {
            var lines: [String] = []
            for await line in link.lines {
                lines.append(line)
                if lines.count == 2 { break }
            }
            return lines
        }
        #expect(lines == ["short", long])
        let arguments = ["lines", "tls://\(address)", "--ca", self.files.ca, "--send", "ä", "--count", "1"]
        let outcome = try await Command.run(arguments)
        #expect(outcome.exitCode == 0 && outcome.text == "ä\n")
        let stranger = try await Command.run(["lines", "tls://\(address)", "--once", "--send", "x"])
        #expect(stranger.exitCode == 1 && stranger.errors.hasPrefix("error: tlsFailed: "))
        link.disconnect()
        relay.signal(15)
    }

    @Test(.enabled(if: Python.isInstalled, Comment(rawValue: Python.howToGetIt)))
    func pythonsTLSSpeaksToOurServer() async throws {
        let identity = TLSIdentity(certificateFile: self.files.certificate, keyFile: self.files.key)
        try await EchoServer.with(tls: ServerTLS(identity: identity)) { server, _ in
            let relay = try Python.tlsRelay(["out", "\(server.port)", self.files.ca])
            let address = try #require(try await relay.lines().first?.split(separator: " ").last.map(String.init))
            try await self.calls(SocketClient.connecting(to: try #require(Endpoint(address))))
            relay.signal(15)
        }
    }

    @Test(.enabled(if: Python.isInstalled, Comment(rawValue: Python.howToGetIt)))
    func pythonsServerThatWantsACertificateGetsOneOrSaysWhyNot() async throws {
        let client = try TestCertificate(.client)
        try await EchoServer.with(tls: nil) { server, _ in
            let relay = try Python.tlsRelay([
                "in", "\(server.port)", self.files.certificate, self.files.key, self.files.ca,
            ])
            let address = try #require(try await relay.lines().first?.split(separator: " ").last.map(String.init))
            let endpoint = try #require(Endpoint(address))
            var tls = self.tls
            let without = SocketClient.connecting(to: endpoint) { [tls] in $0.socket.tls = tls }
            // Python closes without an alert, so the client can only guess the reason.
            let error = await #expect(throws: SocketError.self) {
                _ = try await without.data(for: SocketRequest(type: 101))
            }
            #expect([.connectionLost, .tlsFailed].contains(error?.code), "\(String(describing: error))")
            #expect(error?.message.contains("client") == true, "\(String(describing: error))")
            tls.identity = client.identity
            try await self.calls(SocketClient.connecting(to: endpoint) { [tls] in $0.socket.tls = tls })
            relay.signal(15)
        }
    }

    // MARK: openssl s_server

    /// The outcome of the first connection to an OpenSSL server with these options: it took a frame, failed, or was
    /// lost.
    private func attempt(
        _ options: [String],
        _ tls: ClientTLS
    ) async throws -> (error: SocketError?, server: Command.Outcome) {
        let executable = try #require(Self.openssl)
        let arguments = ["s_server", "-accept", "127.0.0.1:0", "-cert", self.files.certificate, "-key", self.files.key]
        let server = try Command(arguments + options, of: executable, keepsInputOpen: true)
        // "ACCEPT 127.0.0.1:12345"
        let endpoint = try await server.prints("its address") { output in
            output.split(separator: "\n").first { $0.hasPrefix("ACCEPT ") }
                .flatMap { Endpoint(String($0.dropFirst(7))) }
        }
        var configuration = SocketConfiguration(servers: [endpoint])
        configuration.tls = tls
        configuration.writePolicy.whenNotReady = .wait
        let socket = Socket(configuration: configuration)
        let events = socket.events
        socket.connect()
        let error = try await withThrowingTaskGroup(of: SocketError?.self) { group in
            group.addTask {
                try await socket.send(Frame(type: 0x4142_4344, serial: 50))
                try await server.prints("ABCD")
                return nil
            }
            group.addTask {
                let event = try await first(of: events, "a failure") {
                    switch $0 {
                    case .connectFailed, .disconnected: true
                    default: false
                    }
                }
                switch event {
                case .connectFailed(let error), .disconnected(let error): return error
                default: throw Unexpected(description: "\(event)")
                }
            }
            defer { group.cancelAll() }
            return try await group.next() ?? nil
        }
        socket.disconnect()
        server.signal(15)
        return (error, try await server.outcome())
    }

    /// Acts as ``attempt(_:_:)``; the attempt must fail for a reason of TLS.
    private func failure(_ options: [String], _ tls: ClientTLS) async throws -> TLSFailure.Reason? {
        let (error, server) = try await self.attempt(options, tls)
        #expect(error?.code == .tlsFailed, "\(String(describing: error)) \(server)")
        return (error?.underlying as? TLSFailure)?.reason
    }

    @Test(
        .enabled(if: ForeignTLSTests.openssl != nil, "There is no openssl here: its s_server is NOT TESTED."),
        arguments: ["-tls1_2", "-tls1_3"]
    )
    func opensslAgreesOnEitherVersion(version: String) async throws {
        var tls = self.tls
        tls.applicationProtocols = ["hh", "other"]
        let (error, server) = try await self.attempt([version, "-alpn", "hh"], tls)
        #expect(error == nil, "\(String(describing: error)): \(server)")
        #expect(server.text.contains("ALPN protocols selected: hh") || server.errors.contains("ALPN"), "\(server.text)")
    }

    @Test(.enabled(if: ForeignTLSTests.openssl != nil, "There is no openssl here: its s_server is NOT TESTED."))
    func olderVersionThanAllowedIsRefused() async throws {
        var tls = self.tls
        tls.minimumVersion = .tls13
        #expect(try await self.failure(["-tls1_2"], tls) == .noCommonProtocol)
    }

    @Test(
        .enabled(if: ForeignTLSTests.openssl != nil, "There is no openssl here: its s_server is NOT TESTED."),
        arguments: ["-tls1_2", "-tls1_3"]
    )
    func clientCertificateThatIsMissingOrUnknownIsReportedInEitherVersion(version: String) async throws {
        let options = [version, "-Verify", "1", "-verify_return_error", "-CAfile", self.files.ca]
        // TLS 1.2 has no alert for a missing certificate, only one for a failed handshake.
        let missing = try await self.failure(options, self.tls)
        #expect(missing == (version == "-tls1_3" ? .clientCertificateRequired : .noCommonProtocol))
        var tls = self.tls
        tls.identity = try TestCertificate(.clientOfStrangers).identity
        #expect(try await self.failure(options, tls) == .clientCertificateRejected)
        tls.identity = try TestCertificate(.client).identity
        #expect(try await self.attempt(options, tls).error == nil)
    }

    // MARK: A client of OpenSSL

    /// Whether OpenSSL's client resumes the session in `file`, if there is one. It leaves the new session there.
    private func resumes(_ server: Endpoint, _ file: String, _ options: [String] = []) async throws -> Bool {
        var arguments = ["s_client", "-connect", "127.0.0.1:\(server.port)", "-tls1_2", "-sess_out", file] + options
        if FileManager.default.fileExists(atPath: file) { arguments += ["-sess_in", file] }
        let outcome = try await Command.run(arguments, of: try #require(Self.openssl))
        #expect(outcome.text.contains("New, ") || outcome.text.contains("Reused, "), "\(outcome)")
        return outcome.text.contains("Reused, ")
    }

    @Test(.enabled(if: ForeignTLSTests.openssl != nil, "There is no openssl here: its s_client is NOT TESTED."))
    func sessionsOutliveNewCertificatesButNotNewAuthorities() async throws {
        var tls = ServerTLS(identity: try TestCertificate(.server).identity)
        tls.clientCertificates = .wanted(try TestAuthority(.revoking).trust)
        try await EchoServer.with(tls: tls) { server, instance in
            let file = self.files.folder.file("session")
            #expect(try await !self.resumes(server, file))
            #expect(try await self.resumes(server, file))
            tls.identity = try TestCertificate(.serverRenewed).identity
            try instance.reloadTLS(tls)
            #expect(try await self.resumes(server, file))
            tls.clientCertificates = .wanted(try TestAuthority(.clients).trust)
            try instance.reloadTLS(tls)
            #expect(try await !self.resumes(server, file))
        }
    }

    /// Otherwise the list would have no effect until the client's ticket expires.
    @Test(.enabled(if: ForeignTLSTests.openssl != nil, "There is no openssl here: its s_client is NOT TESTED."))
    func revokedClientCannotResumeItsSession() async throws {
        var tls = ServerTLS(identity: try TestCertificate(.server).identity)
        tls.clientCertificates = .required(try TestAuthority(.revoking).trust)
        try await EchoServer.with(tls: tls) { server, instance in
            let client = try TestCertificate(.clientRevoked)
            let options = [
                "-cert", try self.files.folder.write(client.certificatePEM, to: "client.pem"),
                "-key", try self.files.folder.write(client.keyPEM, to: "client.key"),
            ]
            let file = self.files.folder.file("session")
            for isResumed in [false, true] {
                #expect(try await self.resumes(server, file, options) == isResumed)
                #expect(instance.statistics[.clientCertificatesRevoked] == 0)
            }
            tls.revocationLists = [.pem(try testRevocationList())]
            try instance.reloadTLS(tls)
            _ = try await self.resumes(server, file, options)
            try await eventually("the refusal") { instance.statistics[.clientCertificatesRevoked] == 1 }
        }
    }
}
