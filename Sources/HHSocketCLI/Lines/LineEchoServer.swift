// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketServer
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix

/// A server that sends back the lines that it gets.
final class LineEchoServer: Sendable {
    private struct State {
        var listener: (any Channel)?
        var connections: [ObjectIdentifier: any Channel] = [:]
    }

    private let delimiter: LineDelimiter
    private let state = NIOLockedValueBox(State())

    init(delimiter: LineDelimiter) {
        self.delimiter = delimiter
    }

    /// - Returns: The address at which it listens.
    /// - Throws: ``SocketError`` with code `bindFailed` or `hostNotFound`.
    func start(_ endpoint: Endpoint) async throws(SocketError) -> Endpoint {
        do {
            let listener = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
                .serverChannelOption(.backlog, value: 1_024)
                .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
                .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
                .childChannelOption(.allowRemoteHalfClosure, value: true)
                .childChannelInitializer { channel in
                    channel.eventLoop.makeCompletedFuture {
                        try channel.pipeline.syncOperations.addHandler(LineEcho(self.delimiter))
                        self.add(channel)
                    }
                }
                .bind(host: endpoint.host, port: endpoint.port)
                .get()
            self.state.withLockedValue { $0.listener = listener }
            let address = listener.localAddress
            return Endpoint(host: address?.ipAddress ?? endpoint.host, port: address?.port ?? endpoint.port)
        } catch {
            throw SocketError.cannotListen(on: endpoint, error)
        }
    }

    private func add(_ channel: any Channel) {
        self.state.withLockedValue { $0.connections[ObjectIdentifier(channel)] = channel }
        channel.closeFuture.whenComplete { _ in
            self.state.withLockedValue { _ = $0.connections.removeValue(forKey: ObjectIdentifier(channel)) }
        }
    }

    /// Closes everything; clients that do not read are not waited for.
    func shutdown() async {
        try? await self.state.withLockedValue { $0.listener }?.close()
        for channel in self.state.withLockedValue({ Array($0.connections.values) }) { try? await channel.close() }
    }
}

/// One connection of it.
private final class LineEcho: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private var decoder: LineDecoder
    /// The lines of this read.
    private var lines = ByteBuffer()
    /// Whether the client is not read from until it reads.
    private var isHeld = false
    /// Whether a line was too long, so that the following bytes are discarded.
    private var isOver = false

    init(_ delimiter: LineDelimiter) {
        self.decoder = LineDecoder(delimiter: delimiter)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !self.isOver else { return }
        self.decoder.append(self.unwrapInboundIn(data))
        do throws(LineDecoder.TooLong) {
            while let line = try self.decoder.nextWithDelimiter() { self.lines.writeImmutableBuffer(line) }
        } catch {
            self.flush(context)
            self.isOver = true
            // Closing with unread bytes would reset the connection, and the client would lose what was sent.
            context.close(mode: .output, promise: nil)
            let channel = context.channel
            channel.eventLoop.scheduleTask(in: .seconds(1)) { channel.close(promise: nil) }
        }
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        self.flush(context)
        context.fireChannelReadComplete()
    }

    private func flush(_ context: ChannelHandlerContext) {
        guard self.lines.readableBytes > 0 else { return }
        context.writeAndFlush(self.wrapOutboundOut(self.lines), promise: nil)
        self.lines = ByteBuffer()
    }

    /// An empty write completes when all before it have.
    private func closeWhenSent(_ context: ChannelHandlerContext) {
        let channel = context.channel
        context.writeAndFlush(self.wrapOutboundOut(ByteBuffer())).whenComplete { _ in channel.close(promise: nil) }
    }

    func read(context: ChannelHandlerContext) {
        if context.channel.isWritable { context.read() } else { self.isHeld = true }
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        if context.channel.isWritable, self.isHeld {
            self.isHeld = false
            context.read()
        }
        context.fireChannelWritabilityChanged()
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .inputClosed? = event as? ChannelEvent {
            // A line that the client has not finished is no line.
            self.flush(context)
            self.closeWhenSent(context)
        }
        context.fireUserInboundEventTriggered(event)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }
}
