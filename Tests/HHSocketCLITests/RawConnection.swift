import HHSocket
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TestSupport

/// A client without any framework.
final class RawConnection: Sendable {
    private final class Collector: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer

        let received: NIOLockedValueBox<[UInt8]>

        init(_ received: NIOLockedValueBox<[UInt8]>) { self.received = received }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            let bytes = self.unwrapInboundIn(data)
            self.received.withLockedValue { $0 += Array(bytes.readableBytesView) }
        }
    }

    /// A client's heartbeat, and a server's answer to it.
    static let heartbeat: [UInt8] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    static let heartbeatAnswer: [UInt8] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 200, 0, 0, 0, 0, 0, 0, 0, 1]

    private let received = NIOLockedValueBox<[UInt8]>([])
    private let channel: any Channel

    init(to address: String) async throws {
        guard let endpoint = Endpoint(address) else { throw Unexpected(description: "no address: \(address)") }
        let received = self.received
        self.channel = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(Collector(received))
                }
            }
            .connect(host: endpoint.host, port: endpoint.port)
            .get()
    }

    deinit {
        self.channel.close(promise: nil)
    }

    func send(_ bytes: [UInt8]) async throws {
        try await self.channel.writeAndFlush(ByteBuffer(bytes: bytes))
    }

    /// The first `count` bytes that come, or as many as come in time.
    func bytes(_ count: Int, within time: Duration = .seconds(120)) async throws -> [UInt8] {
        let received = self.received
        _ = try? await value(within: time) { received.withLockedValue { $0.count >= count ? true : nil } }
        return Array(received.withLockedValue { $0 }.prefix(count))
    }

    /// Sends a request, and returns once the server has taken it: it has answered the heartbeat sent after it.
    func begin(_ type: UInt32, _ serial: UInt32, _ body: String) async throws {
        var bytes = ByteBuffer()
        FrameEncoder(direction: .request).encode(
            Frame(type: type, serial: serial, payload: ByteBuffer(string: body)),
            into: &bytes
        )
        try await self.send(Array(bytes.readableBytesView) + Self.heartbeat)
        let answer = try await self.bytes(20)
        guard answer == Self.heartbeatAnswer else { throw Unexpected(description: "received \(answer)") }
        self.received.withLockedValue { $0.removeFirst(20) }
    }
}
