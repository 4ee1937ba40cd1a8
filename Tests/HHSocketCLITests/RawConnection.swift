import HHSocket
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix

/// A client without any framework.
enum RawConnection {
    private final class Collector: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer

        let received: NIOLockedValueBox<[UInt8]>

        init(_ received: NIOLockedValueBox<[UInt8]>) { self.received = received }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            let bytes = self.unwrapInboundIn(data)
            self.received.withLockedValue { $0 += Array(bytes.readableBytesView) }
        }
    }

    /// The first `count` bytes that come, or as many as come within `patience` seconds.
    static func bytes(
        from endpoint: Endpoint,
        sending bytes: [UInt8],
        count: Int,
        patience: Int
    ) async throws -> [UInt8] {
        let received = NIOLockedValueBox<[UInt8]>([])
        let channel = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(Collector(received))
                }
            }
            .connect(host: endpoint.host, port: endpoint.port)
            .get()
        try await channel.writeAndFlush(ByteBuffer(bytes: bytes))
        _ = try? await value(within: .seconds(patience)) {
            received.withLockedValue { $0.count >= count ? true : nil }
        }
        try? await channel.close()
        return Array(received.withLockedValue { $0 }.prefix(count))
    }
}
