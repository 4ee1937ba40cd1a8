// SPDX-License-Identifier: Apache-2.0
#if Outbox
import HHSocketRPC
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TestSupport

/// A proxy between clients and a server that cuts connections at random, with the bytes in transit, mostly answers.
final class Cutter: Sendable {
    private struct State {
        var generator: SeededGenerator
        var cuts = 0
    }

    private let state: NIOLockedValueBox<State>
    private let listener: any Channel

    /// The port to which clients connect.
    var port: Int { self.listener.localAddress?.port ?? 0 }
    /// The number of connections that it has cut.
    var cuts: Int { self.state.withLockedValue { $0.cuts } }

    init(before server: Endpoint, seed: UInt64) async throws {
        let state = NIOLockedValueBox(State(generator: SeededGenerator(seed: seed)))
        self.state = state
        @Sendable func cuts(_ oneIn: Int) -> Bool {
            state.withLockedValue { state in
                guard Int.random(in: 0..<oneIn, using: &state.generator) == 0 else { return false }
                state.cuts += 1
                return true
            }
        }
        self.listener = try await ServerBootstrap(group: .singletonMultiThreadedEventLoopGroup)
            .childChannelInitializer { client in
                ClientBootstrap(group: client.eventLoop)
                    .channelInitializer { upstream in
                        upstream.eventLoop.makeCompletedFuture {
                            // Answers.
                            try upstream.pipeline.syncOperations.addHandler(Side(client) { cuts(60) })
                        }
                    }
                    .connect(host: server.host, port: server.port)
                    .flatMapThrowing { upstream in
                        // Requests.
                        try client.pipeline.syncOperations.addHandler(Side(upstream) { cuts(300) })
                    }
            }
            .bind(host: "127.0.0.1", port: 0).get()
    }

    func close() {
        self.listener.close(promise: nil)
    }

    private final class Side: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer

        private let partner: any Channel
        private let cuts: () -> Bool

        init(_ partner: any Channel, _ cuts: @escaping () -> Bool) {
            self.partner = partner
            self.cuts = cuts
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            if self.cuts() {
                context.close(promise: nil)
            } else {
                self.partner.writeAndFlush(self.unwrapInboundIn(data), promise: nil)
            }
        }

        func channelInactive(context: ChannelHandlerContext) {
            self.partner.close(promise: nil)
        }

        func errorCaught(context: ChannelHandlerContext, error: any Error) {
            context.close(promise: nil)
        }
    }
}
#endif
