// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import NIOPosix
import TestSupport
import Testing

@testable import HHSocketRPC

/// Every code that a call can fail with, provoked over the wire, with the delivery that goes with it.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ErrorTableTests {
    // MARK: The server's word

    static let statuses: [(UInt32, SocketError.Code, notExecuted: Bool)] = [
        (300, .serverLostConnection, false), (301, .illegalLength, false), (302, .lostPacket, false),
        (303, .illegalFormat, false), (304, .notModified, false), (401, .undefinedType, true),
        (402, .protobufFailed, false), (403, .database, false), (404, .unknown, false), (405, .noPermission, false),
        (408, .deadlineExceeded, false), (409, .cancelledByServer, false), (456, .emptyProtobuf, false),
        (503, .overloaded, true), (504, .draining, true), (206, .server(.partial), false),
        (0, .server(Status(rawValue: 0)), false), (201, .server(Status(rawValue: 201)), false),
        (599, .server(Status(rawValue: 599)), false), (.max, .server(Status(rawValue: .max)), false),
    ]

    @Test(arguments: Self.statuses.indices) func statusIsItsCode(row: Int) async throws {
        let (status, code, notExecuted) = Self.statuses[row]
        let server = try await MockServer(.answer("why", status: Status(rawValue: status)))
        let client = SocketClient.connecting(to: server.endpoint)
        let error = try await self.error(client)
        #expect(error.code == code)
        #expect(error.delivery == .answered)
        #expect(error.notExecuted == notExecuted)
        #expect(error.endpoint == server.endpoint)
        // The client leaves a server that is about to end, and sends the call again, three times.
        #expect(error.serial == (code == .draining ? 53 : 50))
        #expect(error.body == ByteBuffer(string: "why"))
        #expect(error.message.contains("\(status)"))
    }

    // MARK: Found here

    private func error(_ client: SocketClient, _ request: SocketRequest = SocketRequest(type: 101)) async throws
        -> SocketError
    {
        try await socketError { () throws(SocketError) in _ = try await client.data(for: request) }
    }

    /// - Parameter names: The texts that the message must contain for its reader.
    private func expect(
        _ error: SocketError,
        _ code: SocketError.Code,
        _ delivery: SocketError.Delivery,
        names: String...,
        location: SourceLocation = #_sourceLocation
    ) {
        #expect(error.code == code, "\(error)", sourceLocation: location)
        #expect(error.delivery == delivery, "\(error)", sourceLocation: location)
        for name in names { #expect(error.message.contains(name), "\(error)", sourceLocation: location) }
    }

    @Test func notConnected() async throws {
        let client = SocketClient(configuration: .init(servers: [Endpoint(host: "127.0.0.1", port: 7)]))
        self.expect(try await self.error(client), .notConnected, .notSent, names: "127.0.0.1:7", "connect()")
    }

    @Test func timeout() async throws {
        let server = try await MockServer(.drop)
        let client = SocketClient.connecting(to: server.endpoint)
        let error = try await client.errorOfUnansweredCall(SocketRequest(type: 101))
        self.expect(error, .timeout, .sentUnknown, names: "\(server.endpoint)", "serial 50", " seconds")
    }

    @Test func timeoutOfACallWithoutAConnectionGivesTheReason() async throws {
        let endpoint = try await MockServer.closedEndpoint()
        let (client, events) = SocketClient.connectingWithEvents(to: endpoint) { $0.waitsForConnectivity = true }
        _ = try await first(of: events, "a failure") { if case .connectFailed = $0 { true } else { false } }
        let error = try await self.error(client, SocketRequest(type: 101, timeout: .milliseconds(200)))
        self.expect(error, .timeout, .notSent, names: "no connection", "the last connect error", "\(endpoint)")
        #expect((error.underlying as? SocketError)?.code == .connectionRefused)
    }

    @Test func timeoutOfALargeBodySaysHowFarItGot() async throws {
        let server = try await MockServer(.echo)
        server.onOpen(.stopReading)
        let client = SocketClient.connecting(to: server.endpoint) { $0.socket.heartbeat = nil }
        let body = ByteBuffer(repeating: 7, count: 16 << 20)
        let error = try await client.errorOfUnansweredCall(SocketRequest(type: 101, body: body))
        self.expect(error, .timeout, .sentUnknown, names: "of whose 16777216 bytes had left")
        let queued = try await self.error(client, SocketRequest(type: 101, timeout: .milliseconds(50)))
        self.expect(queued, .timeout, .notSent, names: "did not read")
    }

    @Test func timeoutOfALargeAnswerSaysHowFarItGot() async throws {
        let server = try await MockServer(.answer(ByteBuffer(repeating: 7, count: 1_000)).cut(after: 500))
        // The half may arrive late. Later answers on its connection are not recognized.
        let error = try await withGrowingTimeout { timeout -> SocketError in
            let client = SocketClient.connecting(to: server.endpoint)
            try await client.connected()
            return try await self.error(client, SocketRequest(type: 101, timeout: timeout))
        } until: {
            $0.message.contains("of 1000 bytes")
        }
        self.expect(error, .timeout, .sentUnknown, names: "of 1000 bytes")
    }

    @Test func networkUnreachable() async throws {
        let monitor = ManualNetworkMonitor(NetworkPath(isReachable: false))
        // Not by an address of this machine, which requires no network.
        let endpoint = Endpoint(host: "127.1", port: 7)
        let client = SocketClient.connecting(to: endpoint) { $0.socket.networkMonitor = monitor }
        try await eventually("no network") { "\(client.history)".contains("network") }
        self.expect(try await self.error(client), .networkUnreachable, .notSent)
    }

    @Test func cancelled() async throws {
        let server = try await MockServer(.drop)
        let client = SocketClient.connecting(to: server.endpoint)
        let task = client.dataTask(with: SocketRequest(type: 101))
        task.resume()
        try await server.received(1)
        task.cancel()
        try await eventually("the end") { task.state == .completed }
        self.expect(try #require(task.error), .cancelled, .sentUnknown, names: "101")
    }

    @Test func connectionLost() async throws {
        let server = try await MockServer(.reset)
        let client = SocketClient.connecting(to: server.endpoint)
        self.expect(try await self.error(client), .connectionLost, .sentUnknown, names: "\(server.endpoint)")
    }

    @Test func connectionRefused() async throws {
        let endpoint = try await MockServer.closedEndpoint()
        let error = try await self.errorOfWaiting { SocketClient.connecting(to: endpoint) }
        self.expect(error, .connectionRefused, .notSent, names: "\(endpoint)")
    }

    @Test func hostNotFound() async throws {
        let error = try await self.errorOfWaiting {
            SocketClient.connecting(to: Endpoint(host: "nobody.invalid", port: 7)) { $0.socket.networkMonitor = nil }
        }
        self.expect(error, .hostNotFound, .notSent, names: "nobody.invalid")
    }

    /// The error of a call that waits for a connection which fails. Occasionally the failure precedes the call, which
    /// then has nothing to wait for.
    private func errorOfWaiting(_ makeClient: () -> SocketClient) async throws -> SocketError {
        var error = try await self.error(makeClient())
        for _ in 0..<100 where error.code == .notConnected { error = try await self.error(makeClient()) }
        return error
    }

    @Test func connectTimeout() async throws {
        // A listener that accepts no connection, with its backlog full: the kernel does not answer further connections.
        let group = MultiThreadedEventLoopGroup.singleton
        let channel = try await ServerBootstrap(group: group)
            .serverChannelOption(.backlog, value: 0)
            .serverChannelOption(.autoRead, value: false)
            .bind(host: "127.0.0.1", port: 0).get()
        defer { channel.close(promise: nil) }
        let address = try #require(channel.localAddress)
        let endpoint = Endpoint(host: "127.0.0.1", port: try #require(address.port))
        let fillers = (0..<4).map { _ in
            ClientBootstrap(group: group).connectTimeout(.seconds(600)).connect(to: address)
        }
        defer { for filler in fillers { filler.whenSuccess { $0.close(promise: nil) } } }
        let full = Watched(0)
        for filler in fillers { filler.whenSuccess { _ in full.withLockedValue { $0 += 1 } } }
        try await full.wait("the first connections") { $0 >= 1 }
        let error = try await self.errorOfWaiting {
            SocketClient.connecting(to: endpoint) { $0.socket.connectTimeout = .milliseconds(300) }
        }
        self.expect(error, .connectTimeout, .notSent, names: "\(endpoint)")
    }

    @Test func tlsFailed() async throws {
        // A server without TLS.
        let server = try await MockServer(.echo)
        server.onOpen(.raw(Array("not TLS at all".utf8)))
        let error = try await self.errorOfWaiting {
            SocketClient.connecting(to: server.endpoint) {
                $0.socket.tls = ClientTLS()
                $0.socket.connectTimeout = patience
            }
        }
        self.expect(error, .tlsFailed, .notSent, names: "\(server.endpoint)")
    }

    @Test func proxyFailed() async throws {
        let proxy = try await MockServer(.echo)
        proxy.onOpen(.raw(Array("HTTP/1.1 403 Forbidden\r\n\r\n".utf8)))
        let error = try await self.errorOfWaiting {
            SocketClient.connecting(to: Endpoint(host: "im.example.com", port: 7)) {
                $0.socket.proxy = .http(host: proxy.endpoint.host, port: proxy.endpoint.port)
                $0.socket.connectTimeout = patience
                $0.socket.networkMonitor = nil
            }
        }
        self.expect(error, .proxyFailed, .notSent, names: "403")
    }

    @Test func handshakeRefusedAndTimedOut() async throws {
        struct Refusal: Error {}
        let server = try await MockServer(.echo)
        // Between two attempts a call would find no connection.
        let (called, calling) = AsyncStream.makeStream(of: Void.self)
        let refused = SocketClient.connecting(to: server.endpoint) {
            $0.socket.gate = HandshakeGate { _ in
                for await _ in called { break }
                throw Refusal()
            }
        }
        let task = refused.dataTask(with: SocketRequest(type: 101))
        task.resume()
        calling.finish()
        try await eventually("the refusal") { task.state == .completed }
        self.expect(try #require(task.error), .handshakeRefused, .notSent, names: "\(server.endpoint)")
        let late = try await self.errorOfWaiting {
            SocketClient.connecting(to: server.endpoint) {
                $0.socket.gate = HandshakeGate(timeout: .milliseconds(200)) { _ in
                    try await untilCancelled()
                }
            }
        }
        self.expect(late, .handshakeTimeout, .notSent, names: "\(server.endpoint)")
    }

    @Test func noServerReachable() async throws {
        let endpoint = try await MockServer.closedEndpoint()
        let client = SocketClient(configuration: .init(servers: [endpoint]))
        var request = SocketRequest(type: 101)
        request.waitsForConnectivity = true
        let task = client.dataTask(with: request)
        task.resume()
        client.connect(attempts: 1)
        try await eventually("the end") { task.state == .completed }
        self.expect(try #require(task.error), .noServerReachable, .notSent, names: "\(endpoint)")
    }

    @Test func checksumMismatch() async throws {
        let server = try await MockServer(.echo.corrupted())
        let client = SocketClient.connecting(to: server.endpoint)
        self.expect(try await self.error(client), .checksumMismatch, .sentUnknown, names: "serial 50")
    }

    @Test func frameTooLarge() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint) { $0.socket.maximumPayloadLength = 10 }
        let request = SocketRequest(type: 101, body: "eleven byte")
        self.expect(try await self.error(client, request), .frameTooLarge, .notSent, names: "11 bytes", "10")
    }

    @Test func protocolViolation() async throws {
        let server = try await MockServer(.echo.announcing(length: .max))
        let client = SocketClient.connecting(to: server.endpoint)
        self.expect(try await self.error(client), .protocolViolation, .sentUnknown, names: "4294967295")
    }

    @Test func tooManyInFlight() async throws {
        let server = try await MockServer(.drop)
        let client = SocketClient.connecting(to: server.endpoint) { $0.maximumInFlight = 1 }
        client.dispatch(SocketRequest(type: 101))
        try await server.received(1)
        self.expect(try await self.error(client), .tooManyInFlight, .notSent, names: "maximumInFlight")
    }

    @Test func queueFull() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.maximumWaiting = 1
            $0.socket.gate = HandshakeGate { _ in try await untilCancelled() }
        }
        try await server.connection(0)
        client.dispatch(SocketRequest(type: 101, timeout: patience))
        self.expect(try await self.error(client), .queueFull, .notSent, names: "maximumWaiting")
    }

    @Test func invalidArgument() async throws {
        let client = SocketClient(configuration: .init(servers: []))
        let error = try await self.error(client, SocketRequest(type: 15))
        self.expect(error, .invalidArgument, .notSent, names: "type 15", "16")
    }
}
