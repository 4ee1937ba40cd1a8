// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import HHSocketTesting
import MetricsTestKit
import TestSupport
import Testing

@testable import HHSocket

final class Reader: SocketDelegate {
    func socket(_ socket: Socket, didConnectTo endpoint: Endpoint) {
        Task { try await socket.send(Frame(type: 16, serial: 50, payload: ByteBuffer(string: "hello"))) }
    }

    func socket(_ socket: Socket, didReceive frame: Frame) {
        print("type \(frame.type), serial \(frame.serial): \(String(buffer: frame.payload))")
    }
}

/// The examples of `Connection.md`, word for word.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ConnectionGuideTests {
    @Test func everyExampleOfThePageIsInThisFile() throws {
        let page = try DocumentationPage(guide: "Connection")
        #expect(try page.shortcomings(allowing: ["HHSocket", "MetricsTestKit"]) == [])
    }

    @Test func everyEventHasARow() throws {
        let section = try DocumentationPage(guide: "Connection", section: "Events")
        let rows = section.text.split(separator: "\n").filter { $0.hasPrefix("| `") }
        let cells = rows.compactMap { $0.split(separator: "|").first }
        // Every other piece is between backticks.
        let named = cells.flatMap { cell in
            cell.split(separator: "`", omittingEmptySubsequences: false).enumerated()
                .compactMap { $0.offset % 2 == 1 ? String($0.element) : nil }
        }
        let source = try DocumentationPage("Sources/HHSocket/Observing/SocketEvent.swift").text
        let cases = source.matches(of: /\n    case ([a-zA-Z]+)/).map { String($0.output.1) }
        #expect(cases.count > 10)
        #expect(named.sorted() == cases.sorted())
    }

    @Test func theConnectionsPartOfAConfigurationIsItsSocket() async throws {
        let server = try await MockServer(.echo)
        let servers = [server.endpoint]

        var configuration = SocketClient.Configuration(servers: servers)
        configuration.socket.connectTimeout = .seconds(5)
        let client = SocketClient(configuration: configuration)
        client.connect()

        try await server.connection(0)
        await client.close()
    }

    @Test func eventsSayWhetherTheClientIsOnline() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient(configuration: .init(servers: [server.endpoint]))
        let (events, ready) = (client.events, client.events)
        let reader = Task {
            for await event in client.events {
                switch event {
                case .connected, .switched: print("online")
                case .disconnected(let error), .gaveUp(let error): print("offline: \(error)")
                default: break
                }
            }
        }
        client.connect()
        _ = try await first(of: ready, "a connection") { if case .connected = $0 { true } else { false } }
        client.disconnect()
        _ = try await first(of: events, "the end") { if case .closed = $0 { true } else { false } }
        reader.cancel()
    }

    // MARK: Back-off

    /// The waits after the permanent loss of a connection, at most 20, and whether attempts stop then.
    private func outage(_ configuration: SocketConfiguration) -> (waits: [Duration], givesUp: Bool) {
        let settings = Machine.Settings(backoff: configuration.backoff)
        var machine = Machine(servers: [serverA], settings: settings, generator: SeededGenerator(seed: 1))
        let start = NIODeadline.uptimeNanoseconds(1_000_000_000)
        _ = machine.connect(now: start)
        _ = machine.connected(ConnectionID(number: 1), now: start)
        _ = machine.connectionLost(ConnectionID(number: 1), because: lostError, now: start)
        let waits = machine.waitsUntilItGivesUp(from: start, atMost: 20)
        return (waits, machine.state.description == "closed")
    }

    @Test func waitsAreThoseThatAreWanted() throws {
        var configuration = Assignments()
        configuration.socket.backoff = Backoff()  // the default, see below
        configuration.socket.backoff = Backoff(base: .seconds(2), cap: .seconds(1024), jitter: 0, maximumRounds: 10)
        configuration.socket.backoff = Backoff(base: .seconds(2), cap: .seconds(64), jitter: 0, maximumRounds: 5)
        configuration.socket.backoff = .immediate

        #expect(configuration.made.first?.backoff == SocketConfiguration(servers: []).backoff)
        let outages = configuration.made.map(self.outage)
        let bounds = [1, 2, 4, 8, 16, 32] + [Int](repeating: 60, count: 14)
        #expect(zip(try #require(outages.first).waits, bounds).allSatisfy { $0 >= .zero && $0 <= .seconds($1) })
        let exact: [[Duration]] = [
            [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024].map { .seconds($0) },
            [2, 4, 8, 16, 32].map { .seconds($0) },
            [.zero] + [Duration](repeating: .milliseconds(100), count: 19),
        ]
        #expect(outages.dropFirst().map(\.waits) == exact)
        #expect(outages.map(\.givesUp) == [false, true, true, false])
    }

    // MARK: IPv4 and IPv6

    @Test func addressFamiliesAreThoseThatAreWanted() throws {
        var configuration = Assignments()
        configuration.socket.addressFamilies = .any  // the default: both, in the system's order
        configuration.socket.addressFamilies = .preferIPv4
        configuration.socket.addressFamilies = .preferIPv6
        configuration.socket.addressFamilies = .onlyIPv4
        configuration.socket.addressFamilies = .onlyIPv6

        #expect(SocketConfiguration(servers: []).addressFamilies == .any)
        #expect(configuration.made.map(\.addressFamilies) == AddressFamilies.allCases)
        let section = try DocumentationPage(guide: "Connection", section: "IPv4 and IPv6")
        #expect(section.prose.contains("250 ms") && AddressRace.delay == .milliseconds(250))
    }

    // MARK: Proxies

    @Test func proxiesAreThoseThatAreWanted() async throws {
        let server = try await MockServer(.drop)
        let proxy = try await TestProxy(.http)
        var configuration = Assignments(servers: [server.endpoint])
        let password = "open sesame"
        let credentials = Proxy.Credentials(user: "me", password: password)
        configuration.socket.proxy = .http(host: "proxy.example", port: 3128)
        configuration.socket.proxy = .socks5(host: "10.0.0.1", credentials: credentials)
        configuration.socket.proxy = try Proxy(url: "http://me:p%40ss@proxy.example:3128")
        configuration.socket.proxy = nil

        let proxies = configuration.made.map(\.proxy)
        let descriptions = ["http://proxy.example:3128", "socks5://me@10.0.0.1:1080", "http://me@proxy.example:3128"]
        #expect(proxies.map { $0.map { "\($0)" } } == descriptions + [nil])
        #expect(proxies.map { $0?.credentials?.password } == [nil, password, "p@ss", nil])
        #expect(SocketConfiguration(servers: []).proxy == nil)

        configuration.socket.proxy = proxy.proxy()
        let socket = Socket(configuration: try #require(configuration.made.last))
        socket.connect()
        try await server.connection(0)
        #expect(proxy.asked == ["\(server.endpoint)"])
    }

    // MARK: Handshake gate

    /// Connects to a server that knows one token.
    private func socket(_ server: MockServer, token text: String) -> Socket {
        server.on(17, .respond { $0.string == "the token" ? .status(.ok) : .status(.noPermission) })
        var configuration = SocketClient.Configuration(servers: [server.endpoint])
        configuration.socket.backoff.base = .milliseconds(10)
        @Sendable func token() -> ByteBuffer { ByteBuffer(string: text) }
        configuration.socket.gate = HandshakeGate { handshake in
            let answer = try await handshake.exchange(type: 17, payload: token())
            if answer.status == .noPermission { throw HandshakeRefusal(.stop, "the token is not valid") }
        }
        return Socket(configuration: configuration.socket)
    }

    @Test func greetingIsTheFirstThingOnEveryConnection() async throws {
        let server = try await MockServer(.echo)
        server.once(101, .close)
        let socket = self.socket(server, token: "the token")
        let events = socket.events
        socket.connect()
        for serial in 50..<52 as Range<UInt32> {
            _ = try await first(of: events, "a connection") { if case .connected = $0 { true } else { false } }
            try await socket.send(Frame(type: 101, serial: serial))
        }
        try await server.received(2, ofType: 101)
        #expect(server.received.map(\.type) == [17, 101, 17, 101])
        #expect(server.received.map(\.connection) == [0, 0, 1, 1])
    }

    @Test func tokenThatIsNotValidStopsTheAttempts() async throws {
        let server = try await MockServer(.echo)
        let socket = self.socket(server, token: "another one")
        let events = socket.events
        socket.connect()
        let event = try await first(of: events, "giving up") { if case .gaveUp = $0 { true } else { false } }
        guard case .gaveUp(let error) = event else { return }
        #expect(error.code == .handshakeRefused)
        #expect(error.message.contains("the token is not valid"))
        #expect(socket.state.description == "closed")
    }

    // MARK: Network changes

    @Test func networkIsWhatTheAppSays() async throws {
        let server = try await MockServer(.drop)
        var configuration = SocketClient.Configuration(servers: [server.endpoint.asIfElsewhere])
        let network = ManualNetworkMonitor()
        configuration.socket.networkMonitor = network

        let socket = Socket(configuration: configuration.socket)
        let events = socket.events
        socket.connect()
        _ = try await first(of: events, "a connection") { if case .connected = $0 { true } else { false } }
        network.update(NetworkPath(isReachable: false))
        network.update(NetworkPath(isReachable: true, name: "satellite", details: ["beam 7"]))

        for isReachable in [false, true] {
            _ = try await first(of: events, "news of the network") {
                if case .networkChanged(isReachable) = $0 { true } else { false }
            }
        }
        // The server gets a probe.
        try await server.received(1, ofType: FrameType.heartbeat)
        #expect(server.acceptedCount == 1)
    }

    // MARK: Writing

    @Test func framesWaitForTheConnection() async throws {
        let server = try await MockServer(.drop)
        var configuration = SocketClient.Configuration(servers: [server.endpoint])
        configuration.socket.writePolicy = WritePolicy(highWaterMark: 1 << 20, whenFull: .wait, whenNotReady: .wait)

        let socket = Socket(configuration: configuration.socket)
        let (reading, alarm) = (ByteBuffer(string: "21 degrees"), ByteBuffer(string: "fire"))
        socket.connect()
        try await socket.send(Frame(type: 16, serial: 50, payload: reading), priority: .low)
        try await socket.send(Frame(type: 17, serial: 51, payload: alarm), priority: .high)

        let received = try await server.received(2)
        #expect(received.map(\.type) == [16, 17])
        #expect(received.map(\.body) == [reading, alarm])
    }

    // MARK: Frames without calls

    @Test func delegateReadsFrames() async throws {
        let server = try await MockServer(.echo)
        let servers = [server.endpoint]

        let socket = Socket(configuration: SocketConfiguration(servers: servers))
        let reader = Reader()
        socket.delegate = reader  // held weakly
        socket.connect()

        #expect(try await server.received(1).map(\.string) == ["hello"])
        withExtendedLifetime(reader) {}
    }

    // MARK: Logs and metrics

    @Test func logAndMetricsAreTheAppsOwn() async throws {
        let server = try await MockServer(.drop)
        let factory = TestMetrics()
        var configuration = SocketClient.Configuration(servers: [server.endpoint])
        configuration.socket.logger = .init(label: "com.example.connection")
        configuration.socket.metricsFactory = factory  // nil: what MetricsSystem.bootstrap was given

        let socket = Socket(configuration: configuration.socket)
        socket.connect()
        try await eventually("ready") { factory.counterTotal(label: "hhsocket.connects") == 1 }
        #expect(configuration.socket.logger?.label == "com.example.connection")
    }
}
