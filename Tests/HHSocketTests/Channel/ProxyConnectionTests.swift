// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketTesting
import NIOCore
import NIOPosix
import TestSupport
import Testing

/// Connections through a proxy, over real sockets.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ProxyConnectionTests {
    static let kinds: [Proxy.Kind] = [.http, .socks5]
    private static let credentials = Proxy.Credentials(user: "me", password: "open:sesame")

    private func configuration(_ server: Endpoint, _ proxy: Proxy) -> SocketConfiguration {
        var configuration = SocketConfiguration(servers: [server])
        configuration.proxy = proxy
        configuration.backoff.base = .milliseconds(10)
        return configuration
    }

    private final class Recorder: SocketDelegate {
        let frames = Watched<[Frame]>([])

        func socket(_ socket: Socket, didReceive frame: Frame) { self.frames.withLockedValue { $0.append(frame) } }
    }

    private func connection(_ events: AsyncStream<SocketEvent>, to endpoint: Endpoint) async throws {
        _ = try await first(of: events, "a connection to \(endpoint)") {
            if case .connected(endpoint) = $0 { true } else { false }
        }
    }

    /// The error of the first attempt, which must name both.
    private func failure(_ configuration: SocketConfiguration) async throws -> SocketError {
        var configuration = configuration
        configuration.backoff.maximumRounds = 1
        let socket = Socket(configuration: configuration)
        let events = socket.events
        socket.connect()
        let event = try await first(of: events, "a failure") { if case .connectFailed = $0 { true } else { false } }
        guard case .connectFailed(let error) = event else { throw Unexpected(description: "\(event)") }
        let server = try #require(configuration.servers.first)
        let proxy = try #require(configuration.proxy)
        #expect(error.endpoint == server)
        #expect(error.message.hasPrefix("cannot connect to \(server) through \(proxy): "), "\(error.message)")
        #expect(!error.message.contains("sesame"))
        return error
    }

    private func proxyFailure(_ configuration: SocketConfiguration) async throws -> ProxyFailure {
        let error = try await self.failure(configuration)
        #expect(error.code == .proxyFailed)
        let failure = try #require(error.underlying as? ProxyFailure)
        #expect(error.message.hasSuffix(failure.description))
        return failure
    }

    // MARK: What works

    /// Sends a frame, and waits for its echo.
    private func echo(_ socket: Socket, _ server: MockServer, serial: UInt32, connection: Int) async throws {
        try await socket.send(Frame(type: 101, serial: serial, payload: ByteBuffer(string: "through")))
        let received = try await server.received(1, ofType: 101, onConnection: connection)
        #expect(received.first?.string == "through")
    }

    @Test(arguments: kinds, [false, true]) func framesGoThroughToANameThatOnlyTheProxyKnows(
        kind: Proxy.Kind,
        dribbles: Bool
    ) async throws {
        let server = try await MockServer(.echo)
        let name = Endpoint(host: "db.invalid", port: 7_000)
        let proxy = try await TestProxy(kind) {
            $0.hosts = [name.host: server.endpoint]
            $0.credentials = Self.credentials
            $0.dribbles = dribbles
        }
        let socket = Socket(configuration: self.configuration(name, proxy.proxy(Self.credentials)))
        let recorder = Recorder()
        socket.delegate = recorder
        let events = socket.events
        socket.connect()
        try await self.connection(events, to: name)
        let frame = Frame(type: 101, serial: 50, payload: ByteBuffer(repeating: 7, count: 300_000))
        try await socket.send(frame)
        try await recorder.frames.wait("the echo") { $0 == [frame] }
        #expect(proxy.asked == ["db.invalid:7000"])
        #expect(socket.state.description == "ready, db.invalid:7000")
    }

    @Test(arguments: kinds, ["10.1.2.3", "2001:db8::1"]) func addressesAreHandedOverAsAddresses(
        kind: Proxy.Kind,
        address: String
    ) async throws {
        let server = try await MockServer(.echo)
        let endpoint = Endpoint(host: address, port: 7_000)
        let proxy = try await TestProxy(kind) { $0.hosts = [address: server.endpoint] }
        let socket = Socket(configuration: self.configuration(endpoint, proxy.proxy()))
        let events = socket.events
        socket.connect()
        try await self.connection(events, to: endpoint)
        try await self.echo(socket, server, serial: 50, connection: 0)
        #expect(proxy.asked == ["\(endpoint)"])
    }

    @Test(arguments: kinds) func serverThatSpeaksFirstLosesNothing(kind: Proxy.Kind) async throws {
        let server = try await MockServer(.echo)
        let push = Frame(type: 2_001, serial: 1, payload: ByteBuffer(string: "news"))
        server.onOpen(.glued(.ping(serial: 5), .frame(push)))
        let proxy = try await TestProxy(kind) { $0.waitsForTheServer = true }
        let socket = Socket(configuration: self.configuration(server.endpoint, proxy.proxy()))
        let recorder = Recorder()
        socket.delegate = recorder
        socket.connect()
        try await recorder.frames.wait("the push") { $0 == [push] }
        let answer = try await server.received(1)[0].frame
        #expect(answer == Frame(type: FrameType.heartbeat, serial: 5))
    }

    @Test(arguments: kinds) func lostConnectionsComeBackThroughTheProxy(kind: Proxy.Kind) async throws {
        let server = try await MockServer(.echo)
        server.onOpen(number: 0, .close)
        let proxy = try await TestProxy(kind)
        let socket = Socket(configuration: self.configuration(server.endpoint, proxy.proxy()))
        let events = socket.events
        socket.connect()
        try await self.connection(events, to: server.endpoint)
        // The server closes the connection.
        _ = try await first(of: events, "the loss") { if case .disconnected = $0 { true } else { false } }
        try await self.connection(events, to: server.endpoint)
        try await self.echo(socket, server, serial: 50, connection: 1)
        // The proxy closes the connection.
        proxy.closeConnections()
        _ = try await first(of: events, "the loss") { if case .disconnected = $0 { true } else { false } }
        try await self.connection(events, to: server.endpoint)
        try await self.echo(socket, server, serial: 51, connection: 2)
        #expect(proxy.asked.count == 3)
    }

    @Test(arguments: kinds) func proxyThatComesBackIsUsedAgain(kind: Proxy.Kind) async throws {
        let server = try await MockServer(.echo)
        let proxy = try await TestProxy(kind) { $0.answer = .close }
        let socket = Socket(configuration: self.configuration(server.endpoint, proxy.proxy()))
        let events = socket.events
        socket.connect()
        _ = try await first(of: events, "a failure") { if case .connectFailed = $0 { true } else { false } }
        proxy.change { $0.answer = .honest }
        try await self.connection(events, to: server.endpoint)
        try await self.echo(socket, server, serial: 50, connection: 0)
    }

    @Test func unixDomainSocketsAreReachedWithoutIt() async throws {
        let path = FileManager.default.temporaryDirectory.appendingPathComponent("p\(UInt32.random(in: 0 ... .max))")
            .path
        let listener = try await ServerBootstrap(
            group: MultiThreadedEventLoopGroup.singletonMultiThreadedEventLoopGroup
        )
        .bind(unixDomainSocketPath: path)
        .get()
        let proxy = try await TestProxy(.http)
        let endpoint = Endpoint(unixPath: path)
        let socket = Socket(configuration: self.configuration(endpoint, proxy.proxy()))
        let events = socket.events
        socket.connect()
        try await self.connection(events, to: endpoint)
        #expect(proxy.asked.isEmpty && proxy.connectionCount == 0)
        socket.disconnect()
        try await listener.close()
        try? FileManager.default.removeItem(atPath: path)
    }

    // MARK: What fails

    @Test(arguments: kinds) func wrongAndMissingCredentialsAreDistinguished(kind: Proxy.Kind) async throws {
        let server = try await MockServer(.echo)
        let proxy = try await TestProxy(kind) { $0.credentials = Self.credentials }
        let wrong = Proxy.Credentials(user: "me", password: "sesame")
        let failed = try await self.proxyFailure(self.configuration(server.endpoint, proxy.proxy(wrong)))
        #expect(failed.reason == .authenticationFailed)
        let missing = try await self.proxyFailure(self.configuration(server.endpoint, proxy.proxy()))
        #expect(missing.reason == .authenticationRequired)
        #expect(missing.description.contains("set Proxy.credentials"))
        #expect(server.acceptedCount == 0)
    }

    @Test(
        arguments: [
            (.http, 403, .refused(403)), (.http, 503, .serverUnreachable), (.socks5, 2, .refused(2)),
            (.socks5, 4, .serverUnreachable),
        ] as [(Proxy.Kind, Int, ProxyFailure.Reason)]
    )
    func refusalSaysWhy(kind: Proxy.Kind, code: Int, reason: ProxyFailure.Reason) async throws {
        let proxy = try await TestProxy(kind) { $0.answer = .refusal(code) }
        let server = Endpoint(host: "db.invalid", port: 7_000)
        let failure = try await self.proxyFailure(self.configuration(server, proxy.proxy()))
        #expect(failure.reason == reason)
        #expect(failure.description.contains("the proxy answered \(code)"))
        try await eventually("the end of the connection") { proxy.connectionCount == 0 }
    }

    @Test(arguments: kinds) func serverThatTheProxyCannotReachIsReported(kind: Proxy.Kind) async throws {
        let proxy = try await TestProxy(kind)
        let server = try await MockServer.closedEndpoint()
        let failure = try await self.proxyFailure(self.configuration(server, proxy.proxy()))
        #expect(failure.reason == .serverUnreachable)
    }

    @Test(arguments: kinds) func proxyThatClosesIsReported(kind: Proxy.Kind) async throws {
        let proxy = try await TestProxy(kind) { $0.answer = .close }
        let server = Endpoint(host: "db.invalid", port: 7_000)
        let failure = try await self.proxyFailure(self.configuration(server, proxy.proxy()))
        #expect(failure.reason == .closed)
    }

    @Test(arguments: kinds) func serverThatIsNoProxyIsReported(kind: Proxy.Kind) async throws {
        let stranger = try await MockServer(.drop)
        stranger.onOpen(.raw(Array("SSH-2.0-OpenSSH_9.2\r\n".utf8)))
        let (host, port) = (stranger.endpoint.host, stranger.endpoint.port)
        let proxy = kind == .http ? Proxy.http(host: host, port: port) : Proxy.socks5(host: host, port: port)
        let server = Endpoint(host: "db.invalid", port: 7_000)
        let failure = try await self.proxyFailure(self.configuration(server, proxy))
        #expect(failure.reason == .notAProxy)
    }

    @Test(arguments: kinds) func silenceEndsWithTheConnectTimeout(kind: Proxy.Kind) async throws {
        let proxy = try await TestProxy(kind) { $0.answer = .silence }
        var configuration = self.configuration(Endpoint(host: "db.invalid", port: 7_000), proxy.proxy())
        configuration.connectTimeout = .seconds(1)
        let error = try await self.failure(configuration)
        #expect(error.code == .connectTimeout)
        #expect(error.message.contains("the proxy did not connect us within 1.0 seconds"), "\(error.message)")
        try await eventually("the end of the connection") { proxy.connectionCount == 0 }
    }

    @Test(arguments: kinds) func deadProxyIsNotTakenForADeadServer(kind: Proxy.Kind) async throws {
        let server = try await MockServer(.echo)
        let dead = try await MockServer.closedEndpoint()
        let proxy =
            kind == .http ? Proxy.http(host: dead.host, port: dead.port) : .socks5(host: dead.host, port: dead.port)
        let error = try await self.failure(self.configuration(server.endpoint, proxy))
        #expect(error.code == .connectionRefused)
        #expect(
            error.message.hasSuffix(": the proxy: connection refused; nothing listens on this port"),
            "\(error.message)"
        )
    }

    @Test(arguments: kinds) func proxyWithoutAnAddressIsNotTakenForAServerWithout(kind: Proxy.Kind) async throws {
        let server = try await MockServer(.echo)
        let host = "proxy.invalid"
        let proxy = kind == .http ? Proxy.http(host: host) : .socks5(host: host)
        var configuration = self.configuration(server.endpoint, proxy)
        // The DNS may take a while.
        configuration.connectTimeout = patience
        let error = try await self.failure(configuration)
        #expect(error.code == .hostNotFound)
        #expect(error.message.contains(": the proxy: \(host) has no address"), "\(error.message)")
    }

    @Test(arguments: kinds) func attemptThatIsGivenUpDisconnectsFromTheProxy(kind: Proxy.Kind) async throws {
        let proxy = try await TestProxy(kind) { $0.answer = .silence }
        let socket = Socket(
            configuration: self.configuration(Endpoint(host: "db.invalid", port: 7_000), proxy.proxy())
        )
        socket.connect()
        try await eventually("the connection to the proxy") { proxy.connectionCount == 1 }
        socket.disconnect()
        try await eventually("its end") { proxy.connectionCount == 0 }
        #expect(socket.state.description == "closed")
    }

    @Test(
        arguments: [
            (.http(host: "127.0.0.1"), "a\r\nX: b"), (.socks5(host: "127.0.0.1"), "a b"),
            (.http(host: "127.0.0.1"), "ä.example"),
            (.socks5(host: "127.0.0.1"), String(repeating: "a", count: 256)), (.http(host: ""), "db.invalid"),
            (.http(host: "a", port: 0), "db.invalid"), (.socks5(host: "a", port: 65_536), "db.invalid"),
            (.http(host: "a", credentials: .init(user: "m:e", password: "")), "db.invalid"),
            (
                .socks5(host: "a", credentials: .init(user: "me", password: String(repeating: "sesame", count: 50))),
                "db.invalid"
            ),
        ] as [(Proxy, String)]
    )
    func whatCannotBeSaidIsRefusedBeforeAnythingIsSent(proxy: Proxy, host: String) async throws {
        let error = try await self.failure(self.configuration(Endpoint(host: host, port: 7_000), proxy))
        #expect(error.code == .invalidArgument)
    }

    @Test(arguments: kinds) func certificateOfAnAddressIsNotComparedWithTheProxys(kind: Proxy.Kind) async throws {
        let proxy = try await TestProxy(kind)
        var configuration = self.configuration(Endpoint(host: "127.0.0.1", port: 7_000), proxy.proxy())
        configuration.tls = ClientTLS()
        let error = try await self.failure(configuration)
        #expect(error.code == .invalidArgument)
        #expect(error.message.contains("set ClientTLS.serverName"))
        #expect(proxy.asked.isEmpty)
    }
}
