// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketServer
import TestSupport
import Testing

/// TLS with the server, through a proxy that sees only ciphertext.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct TLSProxyTests {
    static let kinds: [Proxy.Kind] = [.http, .socks5]
    private let authority: TestAuthority

    init() throws {
        self.authority = try TestAuthority()
    }

    /// Runs `body` with a TLS server and a proxy that resolves `db.example` to it.
    private func with(
        _ kind: Proxy.Kind,
        _ issued: TestCertificate,
        _ body: (TestProxy, Endpoint) async throws -> Void
    ) async throws {
        try await EchoServer.with(tls: ServerTLS(identity: issued.identity)) { address, _ in
            let proxy = try await TestProxy(kind) { $0.hosts = ["db.example": address, "10.1.2.3": address] }
            try await body(proxy, address)
        }
    }

    private func client(_ proxy: TestProxy, _ host: String, _ port: Int, name: String? = nil) -> SocketClient {
        SocketClient.connecting(to: Endpoint(host: host, port: port)) {
            var tls = ClientTLS()
            tls.trust = self.authority.trust
            tls.serverName = name
            $0.socket.tls = tls
            $0.socket.proxy = proxy.proxy()
        }
    }

    private func failure(_ client: SocketClient) async throws -> SocketError {
        let event = try await first(of: client.events, "the failure") {
            if case .connectFailed = $0 { true } else { false }
        }
        guard case .connectFailed(let error) = event else { throw Unexpected(description: "\(event)") }
        await client.close()
        return error
    }

    @Test(arguments: kinds) func callsGoThroughToTheServerOfThatName(kind: Proxy.Kind) async throws {
        try await self.with(kind, TestCertificate(.serverDB)) { proxy, address in
            let client = self.client(proxy, "db.example", address.port)
            let body = String(repeating: "secret ", count: 100_000)
            let answer = try await client.data(for: SocketRequest(type: 101, body: body))
            #expect(answer.string == body)
            await client.close()
            #expect(proxy.asked == ["db.example:\(address.port)"])
        }
    }

    /// The proxy is at 127.0.0.1, for which these certificates are valid.
    @Test(arguments: kinds) func certificateOfTheProxysNameOrAddressIsNotTheServers(kind: Proxy.Kind) async throws {
        let issued = try TestCertificate(.server)
        try await self.with(kind, issued) { proxy, address in
            let error = try await self.failure(self.client(proxy, "db.example", address.port))
            #expect(error.code == .tlsFailed)
            #expect((error.underlying as? TLSFailure)?.reason == .wrongHost)
            #expect(error.message.hasPrefix("cannot connect to db.example:\(address.port) through \(proxy.proxy()): "))
        }
    }

    @Test(arguments: kinds) func addressNeedsAName(kind: Proxy.Kind) async throws {
        let issued = try TestCertificate(.serverDBAddresses)
        try await self.with(kind, issued) { proxy, address in
            let error = try await self.failure(self.client(proxy, "10.1.2.3", address.port))
            #expect(error.code == .invalidArgument)
            #expect(error.message.contains("set ClientTLS.serverName"))
            #expect(proxy.asked.isEmpty)
            let client = self.client(proxy, "10.1.2.3", address.port, name: "db.example")
            let answer = try await client.data(for: SocketRequest(type: 101, body: "hi"))
            #expect(answer.string == "hi")
            await client.close()
        }
    }

    /// Bytes after the proxy's answer, in one write with it, must be passed to TLS and not to the frame decoder.
    @Test(arguments: kinds) func serverWithoutTLSThatSpeaksFirstIsNotBelieved(kind: Proxy.Kind) async throws {
        let server = try await ByteGreeter(Array("\0\0\0\u{10} hello, this is no TLS".utf8))
        let proxy = try await TestProxy(kind) {
            $0.hosts = ["db.example": server.endpoint]
            $0.waitsForTheServer = true
        }
        let error = try await self.failure(self.client(proxy, "db.example", 7_000))
        #expect(error.code == .tlsFailed, "\(error)")
        #expect((error.underlying as? TLSFailure)?.reason == .notTLS, "\(error)")
        try await server.close()
    }
}
