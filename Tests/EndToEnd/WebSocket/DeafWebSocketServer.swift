// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix

/// A server that opens WebSockets and then reads no more than the kernel takes.
final class DeafWebSocketServer: Sendable {
    private final class Handler: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer

        private let count: NIOLockedValueBox<Int>
        private let channels: NIOLockedValueBox<[any Channel]>
        private var head = ByteBuffer()

        init(_ count: NIOLockedValueBox<Int>, _ channels: NIOLockedValueBox<[any Channel]>) {
            self.count = count
            self.channels = channels
        }

        func channelActive(context: ChannelHandlerContext) {
            let channel = context.channel
            self.channels.withLockedValue { $0.append(channel) }
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            let bytes = self.unwrapInboundIn(data)
            self.count.withLockedValue { $0 += bytes.readableBytes }
            self.head.writeImmutableBuffer(bytes)
            let name = "Sec-WebSocket-Key: "
            guard let line = String(buffer: self.head).split(separator: "\r\n").first(where: { $0.hasPrefix(name) }),
                let key = OpeningKey(text: String(line.dropFirst(name.count)))
            else { return }
            let answer = ByteBuffer(
                string: """
                    HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                    Sec-WebSocket-Accept: \(key.accept)\r\n\r\n
                    """
            )
            self.head = ByteBuffer()
            context.writeAndFlush(self.wrapOutboundOut(answer), promise: nil)
        }
    }

    private let count = NIOLockedValueBox(0)
    private let channels = NIOLockedValueBox<[any Channel]>([])
    private let channel: any Channel

    init(port: Int) async throws {
        let (count, channels) = (self.count, self.channels)
        self.channel = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelOption(.socketOption(.so_rcvbuf), value: 65_536)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(Handler(count, channels))
                }
            }
            .bind(host: "127.0.0.1", port: port)
            .get()
    }

    /// The number of bytes that were read.
    var received: Int { self.count.withLockedValue { $0 } }

    /// Ends the listener and all connections.
    func close() async throws {
        try await self.channel.close()
        for channel in self.channels.withLockedValue({ $0 }) { try? await channel.close() }
    }
}
