// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketRPC
import HHSocketServer
import NIOCore
import NIOPosix
import TestSupport
import Testing

/// The client through third-party proxies, if they are installed.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct RealProxyTests {
    private static let credentials = Proxy.Credentials(user: "me", password: "opensesame")

    /// Calls a server through the proxy, also by name, and with a body larger than one read.
    private func call(through proxy: Proxy) async throws {
        let server = SocketServer(configuration: SocketServer.Configuration(), router: .echo)
        try await server.start()
        let address = try #require(server.address)
        for host in ["127.0.0.1", "localhost"] {
            let client = SocketClient.connecting(to: Endpoint(host: host, port: address.port)) {
                $0.socket.proxy = proxy
            }
            #expect(try await client.data(for: SocketRequest(type: 101, body: "hi")).string == "hi")
            let body = ByteBuffer(repeating: 7, count: 3 << 20)
            #expect(try await client.data(for: SocketRequest(type: 101, body: body)).body == body)
            await client.close()
        }
        await server.shutdown(gracePeriod: .zero)
    }

    private func failure(_ proxy: Proxy, _ server: Endpoint) async throws -> ProxyFailure {
        let client = SocketClient.connecting(to: server) { $0.socket.proxy = proxy }
        let error = await #expect(throws: SocketError.self) { try await client.data(for: SocketRequest(type: 101)) }
        await client.close()
        // The attempt may have failed before the call was made, which then fails with that attempt's error.
        let failure = error?.code == .notConnected ? error?.underlying as? SocketError : error
        #expect(failure?.code == .proxyFailed)
        return try #require(failure?.underlying as? ProxyFailure)
    }

    // MARK: tinyproxy

    @Suite(
        .tags(.io),
        .enabled(
            if: RealProxy.tinyproxy != nil,
            "There is no tinyproxy: HTTP CONNECT is NOT TESTED against it here. Install the package tinyproxy."
        )
    )
    struct Tinyproxy {
        private let tests = RealProxyTests()

        private func with(_ lines: String = "", _ body: (Int) async throws -> Void) async throws {
            try await RealProxy.with(RealProxy.tinyproxy, arguments: { ["-d", "-c", $0] }, body) { port, _ in
                """
                Port \(port)
                Listen 127.0.0.1
                Timeout 600
                MaxClients 20
                LogLevel Warning
                \(lines)

                """
            }
        }

        @Test func callsGoThrough() async throws {
            try await self.with { try await self.tests.call(through: .http(host: "127.0.0.1", port: $0)) }
        }

        @Test func credentialsAreAskedFor() async throws {
            let known = RealProxyTests.credentials
            try await self.with("BasicAuth \(known.user) \(known.password)") { port in
                try await self.tests.call(through: .http(host: "127.0.0.1", port: port, credentials: known))
                let server = Endpoint(host: "127.0.0.1", port: port)
                let missing = try await self.tests.failure(.http(host: "127.0.0.1", port: port), server)
                #expect(missing.reason == .authenticationRequired, "\(missing)")
                let wrong = Proxy.Credentials(user: "me", password: "closesesame")
                let failed = try await self.tests.failure(
                    .http(host: "127.0.0.1", port: port, credentials: wrong),
                    server
                )
                #expect(failed.reason == .authenticationFailed, "\(failed)")
            }
        }

        @Test func refusalAndUnreachableServerAreReported() async throws {
            // Any port but this one is refused.
            try await self.with("ConnectPort 1") { port in
                let proxy = Proxy.http(host: "127.0.0.1", port: port)
                let refused = try await self.tests.failure(proxy, Endpoint(host: "127.0.0.1", port: 2))
                #expect(refused.reason == .refused(403), "\(refused)")
                let unreachable = try await self.tests.failure(proxy, Endpoint(host: "127.0.0.1", port: 1))
                #expect(unreachable.reason == .refused(500), "\(unreachable)")
                #expect(unreachable.description.contains("Unable to connect"))
            }
        }
    }

    // MARK: Dante

    @Suite(
        .tags(.io),
        .enabled(
            if: RealProxy.danted != nil,
            "There is no danted: SOCKS5 is NOT TESTED against it here. Install the package dante-server."
        )
    )
    struct Dante {
        private let tests = RealProxyTests()

        private func with(
            rules: String = "socks pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }",
            method: String = "none",
            _ body: (Int) async throws -> Void
        ) async throws {
            let arguments: (String) -> [String] = { ["-N", "1", "-p", "\($0).pid", "-f", $0] }
            try await RealProxy.with(RealProxy.danted, arguments: arguments, body) { port, user in
                """
                logoutput: stderr
                internal: 127.0.0.1 port = \(port)
                external: 127.0.0.1
                clientmethod: none
                socksmethod: \(method)
                user.unprivileged: \(user)
                client pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }
                \(rules)

                """
            }
        }

        @Test func callsGoThrough() async throws {
            try await self.with { try await self.tests.call(through: .socks5(host: "127.0.0.1", port: $0)) }
        }

        @Test func refusalAndUnreachableServerAreReported() async throws {
            let rules = """
                socks block { from: 0.0.0.0/0 to: 0.0.0.0/0 port = 2 }
                socks pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }
                """
            try await self.with(rules: rules) { port in
                let proxy = Proxy.socks5(host: "127.0.0.1", port: port)
                let refused = try await self.tests.failure(proxy, Endpoint(host: "127.0.0.1", port: 2))
                #expect(refused.reason == .refused(2), "\(refused)")
                let unreachable = try await self.tests.failure(proxy, Endpoint(host: "127.0.0.1", port: 1))
                #expect(unreachable.reason == .serverUnreachable, "\(unreachable)")
            }
        }

        /// Its users are the machine's, so the test has no valid one.
        @Test func credentialsAreAskedFor() async throws {
            try await self.with(method: "username") { port in
                let server = Endpoint(host: "127.0.0.1", port: port)
                let missing = try await self.tests.failure(.socks5(host: "127.0.0.1", port: port), server)
                #expect(missing.reason == .authenticationRequired, "\(missing)")
                let failed = try await self.tests.failure(
                    .socks5(host: "127.0.0.1", port: port, credentials: RealProxyTests.credentials),
                    server
                )
                #expect(failed.reason == .authenticationFailed, "\(failed)")
            }
        }

        @Test func itSpeaksNoHTTP() async throws {
            try await self.with { port in
                let failure = try await self.tests.failure(
                    .http(host: "127.0.0.1", port: port),
                    Endpoint(host: "127.0.0.1", port: 1)
                )
                #expect([.notAProxy, .closed].contains(failure.reason), "\(failure)")
            }
        }
    }
}

/// Proxies that are programs of this machine.
enum RealProxy {
    static let tinyproxy = Self.find("tinyproxy")
    static let danted = Self.find("danted")
    static let haproxy = Self.find("haproxy")
    static let nginx = Self.find("nginx")

    /// Services may not be in PATH.
    private static func find(_ name: String) -> URL? { Command.installed(name, or: ["/usr/sbin", "/usr/local/sbin"]) }

    /// Runs `body` with the port of a proxy that has this configuration, given the port and the name of our user.
    static func with(
        _ executable: URL?,
        arguments: (String) -> [String],
        _ body: (Int) async throws -> Void,
        configuration: (Int, String) -> String
    ) async throws {
        guard let executable else { throw Unexpected(description: "the proxy is not installed") }
        let file = FileManager.default.temporaryDirectory.appendingPathComponent("proxy-\(UUID())")
        defer {
            try? FileManager.default.removeItem(at: file)
            try? FileManager.default.removeItem(atPath: "\(file.path).pid")
        }
        let port = try await Self.freePort()
        try Data(configuration(port, NSUserName()).utf8).write(to: file)
        let proxy = try Command(arguments(file.path), of: executable)
        defer { proxy.signal(SIGKILL) }
        try await Self.whenListening(port, proxy)
        let result: Result<Void, any Error>
        do { result = .success(try await body(port)) } catch { result = .failure(error) }
        proxy.signal(SIGTERM)
        _ = try await proxy.outcome()
        try result.get()
    }

    /// Another process may have it by the time the proxy listens, which is unlikely: the system assigns ports in turn.
    static func freePort() async throws -> Int {
        let group = MultiThreadedEventLoopGroup.singletonMultiThreadedEventLoopGroup
        let channel = try await ServerBootstrap(group: group).bind(host: "127.0.0.1", port: 0).get()
        let port = channel.localAddress?.port ?? 0
        try await channel.close()
        return port
    }

    private static func whenListening(_ port: Int, _ proxy: Command) async throws {
        let group = MultiThreadedEventLoopGroup.singletonMultiThreadedEventLoopGroup
        try await eventually("a proxy that listens") {
            guard let channel = try? await ClientBootstrap(group: group).connect(host: "127.0.0.1", port: port).get()
            else {
                return false
            }
            try? await channel.close()
            return true
        }
    }
}
