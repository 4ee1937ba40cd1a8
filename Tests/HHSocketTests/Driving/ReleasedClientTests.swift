// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketSTOMP
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TestSupport
import Testing

/// Clients that are released while their peer never closes the connection.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ReleasedClientTests {
    /// A server that accepts every protocol's opening, and then neither sends nor closes.
    private final class StubbornServer: Sendable {
        private final class Handler: ChannelInboundHandler {
            typealias InboundIn = ByteBuffer
            typealias OutboundOut = ByteBuffer

            private var head = ""
            private let isLeft: @Sendable () -> Void

            init(isLeft: @escaping @Sendable () -> Void) {
                self.isLeft = isLeft
            }

            func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
                if case .inputClosed? = event as? ChannelEvent { self.isLeft() }
            }

            func channelRead(context: ChannelHandlerContext, data: NIOAny) {
                self.head += String(buffer: self.unwrapInboundIn(data))
                guard let answer = self.answer else { return }
                self.head = ""
                context.writeAndFlush(self.wrapOutboundOut(ByteBuffer(string: answer)), promise: nil)
            }

            private var answer: String? {
                if self.head.hasPrefix("CONNECT"), self.head.hasSuffix("\0") {
                    return "CONNECTED\nversion:1.2\n\n\0"
                }
                let name = "Sec-WebSocket-Key: "
                guard let line = self.head.split(separator: "\r\n").first(where: { $0.hasPrefix(name) }),
                    let key = OpeningKey(text: String(line.dropFirst(name.count)))
                else { return nil }
                return """
                    HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                    Sec-WebSocket-Accept: \(key.accept)\r\n\r\n
                    """
            }
        }

        private let channels = NIOLockedValueBox<[any Channel]>([])
        /// The number of connections whose client has closed its direction.
        let leftCount = Watched(0)
        private let channel: any Channel
        let port: Int

        init() async throws {
            let (channels, leftCount) = (self.channels, self.leftCount)
            self.channel = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
                .childChannelOption(.allowRemoteHalfClosure, value: true)
                .childChannelInitializer { channel in
                    channels.withLockedValue { $0.append(channel) }
                    return channel.eventLoop.makeCompletedFuture {
                        try channel.pipeline.syncOperations.addHandler(
                            Handler { leftCount.withLockedValue { $0 += 1 } }
                        )
                    }
                }
                .bind(host: "127.0.0.1", port: 0)
                .get()
            self.port = try #require(self.channel.localAddress?.port)
        }

        /// The number of connections that are open as far as this end knows.
        var openCount: Int { self.channels.withLockedValue { $0.count { $0.isActive } } }

        /// Sends a frame on each connection.
        func send(_ frame: Frame) {
            var bytes = ByteBuffer()
            FrameEncoder(direction: .response).encode(frame, into: &bytes)
            for channel in self.channels.withLockedValue({ $0 }) { channel.writeAndFlush(bytes, promise: nil) }
        }

        /// Closes the connections.
        func close() {
            for channel in self.channels.withLockedValue({ $0 }) { channel.close(promise: nil) }
        }

        deinit {
            self.channel.close(promise: nil)
            self.close()
        }
    }

    /// The public clients.
    private enum Kind: String, CaseIterable, Sendable {
        case socket, rpc, lines, webSocket, stomp

        func client(of ports: Int...) throws -> any ConnectionControl {
            let servers = try ports.map {
                self == .webSocket ? try Endpoint(url: "ws://127.0.0.1:\($0)/") : Endpoint(host: "127.0.0.1", port: $0)
            }
            var configuration = SocketConfiguration(servers: servers)
            configuration.networkMonitor = nil
            return switch self {
            case .socket: Socket(configuration: configuration)
            case .rpc: Self.rpcClient(configuration)
            case .lines: LineLink(configuration: LineLink.Configuration(socket: configuration))
            case .webSocket: WebSocketLink(configuration: WebSocketLink.Configuration(socket: configuration))
            case .stomp: STOMPClient(configuration: STOMPClient.Configuration(socket: configuration))
            }
        }

        private static func rpcClient(_ configuration: SocketConfiguration) -> SocketClient {
            var all = SocketClient.Configuration(servers: configuration.servers)
            all.socket = configuration
            return SocketClient(configuration: all)
        }
    }

    private final class Loops: Sendable {
        private struct Reference: Sendable {
            weak var loop: (any EventLoop)?
        }

        private let reference = NIOLockedValueBox(Reference())

        /// Whether the thread of the client's event loop, which retains it, has ended.
        var isEnded: Bool { self.reference.withLockedValue { $0.loop == nil } }

        func follow(_ client: any ConnectionControl) {
            let loop = client._driver.driver.loop.eventLoop
            self.reference.withLockedValue { $0.loop = loop }
        }
    }

    /// - Parameter isClosing: Whether the client is disconnected before it is released, so that its connection closes
    ///   by then.
    @Test(arguments: Kind.allCases, [false, true])
    private func threadAndConnectionEndThoughThePeerNeverCloses(kind: Kind, isClosing: Bool) async throws {
        let server = try await StubbornServer()
        let loops = Loops()
        do {
            let client = try kind.client(of: server.port)
            loops.follow(client)
            client.connect()
            try await eventually("the connection") { if case .ready = client.state { true } else { false } }
            #expect(!loops.isEnded)
            if isClosing { client.disconnect() }
        }
        // The event loop ends only once its channels are closed.
        try await eventually("the end of the thread of \(kind)") { loops.isEnded }
        #expect(server.openCount == 1)
    }

    /// A client has switched to another server. Its old connection closes, while the old server continues to send.
    @Test(arguments: [Kind.socket, .rpc])
    private func framesOnAConnectionThatWasLeftAreDroppedOnceTheClientIsReleased(kind: Kind) async throws {
        let (old, next) = (try await StubbornServer(), try await StubbornServer())
        let loops = Loops()
        do {
            let client = try kind.client(of: old.port, next.port)
            loops.follow(client)
            client.connect()
            try await eventually("the connection") { if case .ready = client.state { true } else { false } }
            client.switchServer(to: Endpoint(host: "127.0.0.1", port: next.port))
            try await eventually("the next server") {
                if case .ready(let endpoint) = client.state { endpoint.port == next.port } else { false }
            }
        }
        try await next.leftCount.wait("the end of the other connection") { $0 == 1 }
        old.send(Frame(type: 2_000, serial: FrameSerial.push))
        for server in [old, next] { server.close() }
        try await eventually("the end of the thread of \(kind)") { loops.isEnded }
    }

    /// The closures that an app may have for each attempt; each hangs until it is cancelled.
    private enum Closure: String, CaseIterable, Sendable {
        case prepare, credentials, resolver

        func client(of port: Int, ended: Watched<Int>) throws -> any ConnectionControl {
            let hang: @Sendable () async throws -> Never = {
                defer { ended.withLockedValue { $0 += 1 } }
                try await untilCancelled()
                throw CancellationError()
            }
            let server = Endpoint(host: "127.0.0.1", port: port)
            var socket = SocketConfiguration(servers: [server])
            socket.networkMonitor = nil
            socket.backoff = Backoff(base: .milliseconds(10), cap: .milliseconds(10))
            socket.connectTimeout = .milliseconds(50)
            switch self {
            case .prepare:
                socket.servers = [try Endpoint(url: "ws://127.0.0.1:\(port)/")]
                socket.webSocket.prepare = { _ in try await hang() }
                return WebSocketLink(configuration: WebSocketLink.Configuration(socket: socket))
            case .credentials:
                var configuration = STOMPClient.Configuration(socket: socket)
                configuration.connectTimeout = .milliseconds(50)
                configuration.credentials = { try await hang() }
                return STOMPClient(configuration: configuration)
            case .resolver:
                // Those that are known would be tried.
                socket.servers = []
                socket.resolver = ServerResolver { try await hang() }
                return Socket(configuration: socket)
            }
        }
    }

    @Test(arguments: Closure.allCases)
    private func closureThatHangsIsCancelledWithItsAttemptAndDoesNotKeepTheThread(closure: Closure) async throws {
        let server = try await StubbornServer()
        let (loops, ended) = (Loops(), Watched(0))
        do {
            let client = try closure.client(of: server.port, ended: ended)
            loops.follow(client)
            client.connect()
            try await ended.wait("the ends of three attempts") { $0 >= 3 }
            withExtendedLifetime(client) {}
        }
        try await eventually("the end of the thread") { loops.isEnded }
    }
}
