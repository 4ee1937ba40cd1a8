// SPDX-License-Identifier: Apache-2.0
import Foundation
package import HHSocket
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix

/// A proxy for tests, over real TCP on 127.0.0.1, whose behaviour the test determines, right or wrong.
package final class TestProxy: Sendable {
    /// The behaviour of a proxy. Changes apply to later connections.
    package struct Behavior: Sendable {
        package enum Answer: Sendable {
            /// Follows the protocol.
            case honest
            /// Never connects, and answers with this HTTP status or SOCKS5 reply.
            case refusal(Int)
            /// Reads, and never sends a byte.
            case silence
            /// Closes the connection instead of answering the request.
            case close
        }

        package var answer = Answer.honest
        /// The credentials that it requires; nil for none.
        package var credentials: Proxy.Credentials?
        /// The hosts that only it can resolve, with their addresses.
        package var hosts: [String: Endpoint] = [:]
        /// Whether it sends each byte in a separate write.
        package var dribbles = false
        /// Whether it answers only once the server has sent bytes, and then sends everything in one write.
        package var waitsForTheServer = false
        /// Bytes that it sends to the server before the client's first bytes, in one write with them, such as a PROXY
        /// header.
        package var header: [UInt8] = []
    }

    private struct State {
        var behavior: Behavior
        var asked: [String] = []
        var connections: [ObjectIdentifier: any Channel] = [:]
    }

    package let kind: Proxy.Kind
    package let endpoint: Endpoint
    private let state: NIOLockedValueBox<State>
    private let channel: any Channel

    package init(_ kind: Proxy.Kind, configure: (inout Behavior) -> Void = { _ in }) async throws {
        var behavior = Behavior()
        configure(&behavior)
        let state = NIOLockedValueBox(State(behavior: behavior))
        let group = MultiThreadedEventLoopGroup.singletonMultiThreadedEventLoopGroup
        self.channel = try await ServerBootstrap(group: group)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
            .childChannelInitializer { channel in
                let id = ObjectIdentifier(channel)
                let behavior = state.withLockedValue { state in
                    state.connections[id] = channel
                    return state.behavior
                }
                channel.closeFuture.whenComplete { _ in
                    state.withLockedValue { state in _ = state.connections.removeValue(forKey: id) }
                }
                return channel.eventLoop.makeCompletedFuture {
                    let session = Session(kind, behavior) { asked in
                        state.withLockedValue { $0.asked.append(asked) }
                    }
                    try channel.pipeline.syncOperations.addHandler(session)
                }
            }
            .bind(host: "127.0.0.1", port: 0)
            .get()
        self.kind = kind
        self.state = state
        self.endpoint = Endpoint(host: "127.0.0.1", port: self.channel.localAddress?.port ?? 0)
    }

    deinit {
        self.channel.close(promise: nil)
        self.closeConnections()
    }

    /// Returns the client's settings for this proxy.
    package func proxy(_ credentials: Proxy.Credentials? = nil) -> Proxy {
        switch self.kind {
        case .http: .http(host: self.endpoint.host, port: self.endpoint.port, credentials: credentials)
        case .socks5: .socks5(host: self.endpoint.host, port: self.endpoint.port, credentials: credentials)
        }
    }

    package func change(_ change: @Sendable (inout Behavior) -> Void) {
        self.state.withLockedValue { change(&$0.behavior) }
    }

    /// The requested servers, in order, as they were written.
    package var asked: [String] { self.state.withLockedValue { $0.asked } }

    /// The number of connected clients.
    package var connectionCount: Int { self.state.withLockedValue { $0.connections.count } }

    package func closeConnections() {
        for channel in self.state.withLockedValue({ Array($0.connections.values) }) { channel.close(promise: nil) }
    }
}

/// One client of a ``TestProxy``.
private final class Session: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private enum Phase {
        case greeting, login, request, connecting, relaying, over
    }

    private let kind: Proxy.Kind
    private let behavior: TestProxy.Behavior
    private let note: (String) -> Void
    private var phase: Phase
    private var received = ByteBuffer()
    private var server: (any Channel)?
    /// The part of the header that was not sent to the server yet.
    private var header: [UInt8]

    init(_ kind: Proxy.Kind, _ behavior: TestProxy.Behavior, note: @escaping (String) -> Void) {
        self.kind = kind
        self.behavior = behavior
        self.header = behavior.header
        self.note = note
        self.phase = kind == .socks5 ? .greeting : .request
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = self.unwrapInboundIn(data)
        if case .silence = self.behavior.answer { return }
        if self.phase == .relaying {
            self.relay(bytes)
            return
        }
        self.received.writeBuffer(&bytes)
        while self.step(context) {}
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.phase = .over
        self.server?.close(promise: nil)
    }

    /// Handles received bytes. Returns false if more are required.
    private func step(_ context: ChannelHandlerContext) -> Bool {
        switch (self.kind, self.phase) {
        case (.http, .request): self.httpRequest(context)
        case (.socks5, .greeting): self.socksGreeting(context)
        case (.socks5, .login): self.socksLogin(context)
        case (.socks5, .request): self.socksRequest(context)
        default: false
        }
    }

    // MARK: HTTP

    private func httpRequest(_ context: ChannelHandlerContext) -> Bool {
        let text = String(buffer: self.received)
        guard let end = text.range(of: "\r\n\r\n") else { return false }
        self.received.clear()
        let lines = text[..<end.lowerBound].components(separatedBy: "\r\n")
        let words = lines[0].split(separator: " ")
        guard words.count == 3, words[0] == "CONNECT", words[2] == "HTTP/1.1", let target = Endpoint(words[1]),
            lines.dropFirst().contains("Host: \(words[1])")
        else {
            self.refuse(context, 400)
            return false
        }
        self.note("\(target)")
        if let known = self.behavior.credentials {
            let token = Data("\(known.user):\(known.password)".utf8).base64EncodedString()
            guard lines.contains("Proxy-Authorization: Basic \(token)") else {
                self.refuse(context, 407)
                return false
            }
        }
        self.connect(context, target)
        return false
    }

    // MARK: SOCKS5

    private func socksGreeting(_ context: ChannelHandlerContext) -> Bool {
        let bytes = Array(buffer: self.received)
        guard bytes.count >= 2, bytes.count >= 2 + Int(bytes[1]) else { return false }
        self.received.moveReaderIndex(forwardBy: 2 + Int(bytes[1]))
        let wanted: UInt8 = self.behavior.credentials == nil ? 0 : 2
        guard bytes[0] == 5, bytes[2..<2 + Int(bytes[1])].contains(wanted) else {
            self.send(context, [5, 0xFF]).assumeIsolated().whenComplete { _ in context.close(promise: nil) }
            return false
        }
        self.phase = wanted == 2 ? .login : .request
        _ = self.send(context, [5, wanted])
        return true
    }

    private func socksLogin(_ context: ChannelHandlerContext) -> Bool {
        let bytes = Array(buffer: self.received)
        guard bytes.count >= 2, bytes.count >= 3 + Int(bytes[1]) else { return false }
        let userEnd = 2 + Int(bytes[1])
        let end = userEnd + 1 + Int(bytes[userEnd])
        guard bytes.count >= end else { return false }
        self.received.moveReaderIndex(forwardBy: end)
        let user = String(decoding: bytes[2..<userEnd], as: UTF8.self)
        let password = String(decoding: bytes[userEnd + 1..<end], as: UTF8.self)
        guard bytes[0] == 1, Proxy.Credentials(user: user, password: password) == self.behavior.credentials else {
            self.send(context, [1, 1]).assumeIsolated().whenComplete { _ in context.close(promise: nil) }
            return false
        }
        self.phase = .request
        _ = self.send(context, [1, 0])
        return true
    }

    private func socksRequest(_ context: ChannelHandlerContext) -> Bool {
        let bytes = Array(buffer: self.received)
        guard bytes.count >= 5 else { return false }
        let start = bytes[3] == 3 ? 5 : 4
        let end = bytes[3] == 3 ? 5 + Int(bytes[4]) : bytes[3] == 1 ? 8 : 20
        guard bytes.count >= end + 2 else { return false }
        self.received.clear()
        let address = bytes[start..<end]
        let host =
            bytes[3] == 3
            ? String(decoding: address, as: UTF8.self)
            : (try? SocketAddress(packedIPAddress: ByteBuffer(bytes: address), port: 0))?.ipAddress ?? "?"
        let target = Endpoint(host: host, port: Int(bytes[end]) << 8 | Int(bytes[end + 1]))
        self.note("\(target)")
        self.connect(context, target)
        return false
    }

    // MARK: Both

    private func refuse(_ context: ChannelHandlerContext, _ code: Int) {
        self.phase = .over
        let field = code == 407 ? "Proxy-Authenticate: Basic realm=\"test\"\r\n" : ""
        let bytes: [UInt8] =
            self.kind == .http
            ? Array("HTTP/1.1 \(code) No\r\n\(field)Content-Length: 0\r\n\r\n".utf8)
            : [5, UInt8(truncatingIfNeeded: code), 0, 1, 0, 0, 0, 0, 0, 0]
        self.send(context, bytes).assumeIsolated().whenComplete { _ in context.close(promise: nil) }
    }

    private func connect(_ context: ChannelHandlerContext, _ target: Endpoint) {
        self.phase = .connecting
        switch self.behavior.answer {
        case .honest: break
        case .refusal(let code): return self.refuse(context, code)
        case .silence: return
        case .close: return context.close(promise: nil)
        }
        let found = self.behavior.hosts[target.host] ?? target
        let client = NIOLoopBound((self, context), eventLoop: context.eventLoop)
        let waits = self.behavior.waitsForTheServer
        ClientBootstrap(group: context.eventLoop)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            // Nothing is read before it can be forwarded.
            .channelOption(.autoRead, value: false)
            .connect(host: found.host, port: found.port)
            .assumeIsolated()
            .whenComplete { result in
                let (session, context) = client.value
                switch result {
                case .success(let server):
                    guard context.channel.isActive else { return server.close(promise: nil) }
                    session.server = server
                    let established = session.established
                    try? server.pipeline.syncOperations.addHandler(
                        Relay(to: context.channel, first: waits ? ByteBuffer(bytes: established) : nil)
                    )
                    if waits {
                        session.phase = .relaying
                        server.setOption(.autoRead, value: true).whenComplete { _ in }
                        return
                    }
                    session.send(context, established).assumeIsolated().whenComplete { _ in
                        if session.phase == .connecting { session.phase = .relaying }
                        server.setOption(.autoRead, value: true).whenComplete { _ in }
                    }
                case .failure:
                    if context.channel.isActive { session.refuse(context, session.kind == .http ? 502 : 5) }
                }
            }
    }

    private var established: [UInt8] {
        self.kind == .http
            ? Array("HTTP/1.1 200 Connection established\r\n\r\n".utf8) : [5, 0, 0, 1, 127, 0, 0, 1, 0, 80]
    }

    private func relay(_ bytes: ByteBuffer) {
        var first = ByteBuffer(bytes: self.header)
        self.header = []
        first.writeImmutableBuffer(bytes)
        self.server?.writeAndFlush(first, promise: nil)
    }

    private func send(_ context: ChannelHandlerContext, _ bytes: [UInt8]) -> EventLoopFuture<Void> {
        let writes = self.behavior.dribbles ? bytes.map { [$0] } : [bytes]
        return writes.reduce(context.eventLoop.makeSucceededVoidFuture()) { _, bytes in
            context.writeAndFlush(self.wrapOutboundOut(ByteBuffer(bytes: bytes)))
        }
    }
}

/// Forwards the bytes of a server.
private final class Relay: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private let client: any Channel
    /// The bytes that precede the server's first bytes, in one write with them.
    private var first: ByteBuffer?

    init(to client: any Channel, first: ByteBuffer?) {
        self.client = client
        self.first = first
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = self.unwrapInboundIn(data)
        if var first = self.first {
            self.first = nil
            first.writeBuffer(&bytes)
            bytes = first
        }
        self.client.writeAndFlush(bytes, promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) {
        let client = self.client
        // After earlier writes.
        client.writeAndFlush(ByteBuffer()).whenComplete { _ in client.close(promise: nil) }
    }
}
