// SPDX-License-Identifier: Apache-2.0
import Benchmark
import HHSocketRPC
import NIOCore
import NIOPosix

/// Pushes over TCP, from a server in this process that only writes them, to a `for await`.
func pushBenchmarks() {
    let pushes = 1_000_000
    var configuration = Benchmark.defaultConfiguration
    configuration.metrics = [.throughput, .wallClock, .cpuTotal]
    configuration.scalingFactor = .mega
    configuration.warmupIterations = min(1, configuration.warmupIterations)
    Benchmark("push, for await", configuration: configuration) { (_: Benchmark, flood: PushFlood) in
        await flood.receive(pushes)
    } setup: {
        try await PushFlood()
    }
    Benchmark("push, for await on the executor", configuration: configuration) { (_: Benchmark, flood: PushFlood) in
        guard #available(macOS 15, *) else { return }
        await withTaskExecutorPreference(flood.client.executor) { await flood.receive(pushes) }
    } setup: {
        try await PushFlood()
    }
}

/// A client and a server that writes pushes of 16 bytes as long as the client reads them.
final class PushFlood: Sendable {
    private static let type: UInt32 = 2001

    let client: SocketClient
    private let pushes: SocketPushes

    init() async throws {
        let encoder = FrameEncoder(direction: .response)
        var block = ByteBuffer()
        for _ in 0..<4_096 {
            encoder.encode(
                Frame(
                    type: Self.type,
                    serial: 1,
                    status: .ok,
                    payload: ByteBuffer(repeating: 7, count: 16)
                ),
                into: &block
            )
        }
        let server = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelInitializer { [block] channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(EndlessWriter(block))
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        var configuration = SocketClient.Configuration(
            servers: [Endpoint(host: "127.0.0.1", port: server.localAddress?.port ?? 0)]
        )
        configuration.socket.heartbeat = nil
        self.client = SocketClient(configuration: configuration)
        self.pushes = self.client.pushes(ofType: Self.type, buffering: .suspendReading(8_192))
        self.client.connect()
    }

    func receive(_ count: Int) async {
        var rest = count
        for await _ in self.pushes {
            rest -= 1
            if rest == 0 { return }
        }
    }
}

/// Writes a block again and again, as long as the channel takes it.
private final class EndlessWriter: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let block: ByteBuffer

    init(_ block: ByteBuffer) {
        self.block = block
    }

    func channelActive(context: ChannelHandlerContext) { self.write(context) }

    func channelWritabilityChanged(context: ChannelHandlerContext) { self.write(context) }

    private func write(_ context: ChannelHandlerContext) {
        while context.channel.isActive, context.channel.isWritable {
            context.writeAndFlush(Self.wrapOutboundOut(self.block), promise: nil)
        }
    }
}
