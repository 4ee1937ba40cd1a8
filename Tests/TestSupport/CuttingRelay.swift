// SPDX-License-Identifier: Apache-2.0
package import HHSocket
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix

/// A link between clients and a server, on 127.0.0.1, that breaks: it forwards bytes in both directions until a
/// connection has carried as many as the test allows, and then closes both ends, or leaves them open and forwards no
/// more.
///
/// It reads no more on one side than the other takes, so that it requires little memory and slows down the sender.
package final class CuttingRelay: Sendable {
    /// The number of bytes that a connection may carry.
    package struct Allowance: Sendable {
        /// From the client.
        package var up: Int
        /// From the server.
        package var down: Int
        /// Whether the connection stays open then, and carries nothing more in this direction. The last read is
        /// forwarded as a whole: with one byte, what a client sends before it has an answer.
        package var stalls: Bool

        package init(up: Int = .max, down: Int = .max, stalls: Bool = false) {
            self.up = up
            self.down = down
            self.stalls = stalls
        }

        package static let unlimited = Self()
    }

    fileprivate struct State {
        var server: Endpoint
        var allow: @Sendable (Int) -> Allowance
        var connections = 0
        var open: [Int: any Channel] = [:]
        var up = 0
        var down = 0

        /// Counts bytes that are about to be forwarded.
        ///
        /// - Returns: Whether they may be forwarded: not on a connection that was cut.
        mutating func pass(_ count: Int, of connection: Int, by way: WritableKeyPath<Self, Int>) -> Bool {
            guard self.open[connection] != nil else { return false }
            self[keyPath: way] += count
            return true
        }
    }

    package let endpoint: Endpoint
    private let state: NIOLockedValueBox<State>
    private let channel: any Channel

    /// - Parameters:
    ///   - server: The server to which connections lead.
    ///   - allow: Called for each connection, with its number from 0.
    package init(
        to server: Endpoint,
        allow: @escaping @Sendable (Int) -> Allowance = { _ in .unlimited }
    ) async throws {
        let state = NIOLockedValueBox(State(server: server, allow: allow))
        self.state = state
        let group = MultiThreadedEventLoopGroup.singletonMultiThreadedEventLoopGroup
        self.channel = try await ServerBootstrap(group: group)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelOption(.autoRead, value: false)
            .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
            .childChannelInitializer { client in Self.accept(client, state) }
            .bind(host: "127.0.0.1", port: 0)
            .get()
        self.endpoint = Endpoint(host: "127.0.0.1", port: self.channel.localAddress?.port ?? 0)
    }

    deinit {
        self.channel.close(promise: nil)
        self.cut()
    }

    /// The number of connections so far.
    package var connectionCount: Int { self.state.withLockedValue { $0.connections } }
    /// The number of forwarded bytes from clients.
    package var bytesUp: Int { self.state.withLockedValue { $0.up } }
    /// The number of forwarded bytes from the server.
    package var bytesDown: Int { self.state.withLockedValue { $0.down } }

    /// Makes new connections lead to another server.
    package func lead(to server: Endpoint) { self.state.withLockedValue { $0.server = server } }

    /// Sets the number of bytes that new connections may carry.
    package func allow(_ allow: @escaping @Sendable (Int) -> Allowance) {
        self.state.withLockedValue { $0.allow = allow }
    }

    /// Closes every connection, which forwards nothing from now on.
    package func cut() {
        let open = self.state.withLockedValue { state in
            defer { state.open = [:] }
            return state.open
        }
        for channel in open.values { channel.close(promise: nil) }
    }

    private static func accept(
        _ client: any Channel,
        _ state: NIOLockedValueBox<State>
    ) -> EventLoopFuture<Void> {
        let (number, server, allowance) = state.withLockedValue { state in
            let number = state.connections
            state.connections += 1
            state.open[number] = client
            return (number, state.server, state.allow(number))
        }
        client.closeFuture.whenComplete { _ in
            state.withLockedValue { _ = $0.open.removeValue(forKey: number) }
        }
        return ClientBootstrap(group: client.eventLoop)
            .channelOption(.autoRead, value: false)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .connect(host: server.host, port: server.port)
            .flatMap { other in
                client.eventLoop.makeCompletedFuture {
                    try client.pipeline.syncOperations.addHandler(
                        Half(to: other, allowance.up, stalls: allowance.stalls) { count in
                            state.withLockedValue { $0.pass(count, of: number, by: \.up) }
                        }
                    )
                    try other.pipeline.syncOperations.addHandler(
                        Half(to: client, allowance.down, stalls: allowance.stalls) { count in
                            state.withLockedValue { $0.pass(count, of: number, by: \.down) }
                        }
                    )
                    other.read()
                }
            }
            .flatMapErrorThrowing { error in
                client.close(promise: nil)
                throw error
            }
    }

    /// One direction of a connection.
    private final class Half: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer

        private let other: any Channel
        private var allowance: Int
        private let stalls: Bool
        private let pass: @Sendable (Int) -> Bool

        init(
            to other: any Channel,
            _ allowance: Int,
            stalls: Bool,
            _ pass: @escaping @Sendable (Int) -> Bool
        ) {
            self.other = other
            self.allowance = allowance
            self.stalls = stalls
            self.pass = pass
        }

        func channelActive(context: ChannelHandlerContext) {
            context.read()
            context.fireChannelActive()
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            var bytes = self.unwrapInboundIn(data)
            let count = self.stalls ? bytes.readableBytes : min(bytes.readableBytes, self.allowance)
            self.allowance = max(0, self.allowance - count)
            guard self.pass(count) else { return }
            guard let part = bytes.readSlice(length: count) else { return }
            let isOver = self.allowance == 0
            let (channel, other, stalls) = (context.channel, self.other, self.stalls)
            self.other.writeAndFlush(part).whenComplete { _ in
                guard isOver else { return channel.read() }
                guard !stalls else { return }
                channel.close(promise: nil)
                other.close(promise: nil)
            }
        }

        func channelInactive(context: ChannelHandlerContext) {
            let other = self.other
            // After earlier writes.
            other.writeAndFlush(ByteBuffer()).whenComplete { _ in other.close(promise: nil) }
        }

        func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
    }
}
