// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix

/// A server without frames: a function takes received bytes and returns the answer.
struct ByteServer {
    /// Takes the number of the connection, from 0, and the received bytes that were not taken yet; returns the answer.
    typealias Answer = @Sendable (Int, inout ByteBuffer) -> ByteBuffer

    private final class Handler: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer

        private let number: Int
        private let answer: Answer
        private var received = ByteBuffer()

        init(number: Int, _ answer: @escaping Answer) {
            self.number = number
            self.answer = answer
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            self.received.writeImmutableBuffer(self.unwrapInboundIn(data))
            let answer = self.answer(self.number, &self.received)
            if answer.readableBytes > 0 { context.writeAndFlush(self.wrapOutboundOut(answer), promise: nil) }
        }
    }

    let endpoint: Endpoint
    private let channel: any Channel

    init(_ answer: @escaping Answer) async throws {
        let group = MultiThreadedEventLoopGroup.singletonMultiThreadedEventLoopGroup
        let connections = NIOLockedValueBox(0)
        self.channel = try await ServerBootstrap(group: group)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let number = connections.withLockedValue { number in
                        defer { number += 1 }
                        return number
                    }
                    try channel.pipeline.syncOperations.addHandler(Handler(number: number, answer))
                }
            }
            .bind(host: "127.0.0.1", port: 0)
            .get()
        self.endpoint = Endpoint(host: "127.0.0.1", port: self.channel.localAddress?.port ?? 0)
    }

    func close() async throws {
        try await self.channel.close()
    }
}

/// A server that only sends its bytes to each client that connects.
struct ByteGreeter {
    let endpoint: Endpoint
    private let channel: any Channel

    init(_ bytes: [UInt8]) async throws {
        self.channel = try await ServerBootstrap(
            group: MultiThreadedEventLoopGroup.singletonMultiThreadedEventLoopGroup
        )
        .childChannelInitializer { channel in
            channel.eventLoop.makeCompletedFuture {
                try channel.pipeline.syncOperations.addHandler(Handler(bytes: bytes))
            }
        }
        .bind(host: "127.0.0.1", port: 0)
        .get()
        self.endpoint = Endpoint(host: "127.0.0.1", port: self.channel.localAddress?.port ?? 0)
    }

    func close() async throws {
        try await self.channel.close()
    }

    private final class Handler: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer

        private let bytes: [UInt8]

        init(bytes: [UInt8]) {
            self.bytes = bytes
        }

        func channelActive(context: ChannelHandlerContext) {
            context.writeAndFlush(self.wrapOutboundOut(ByteBuffer(bytes: self.bytes)), promise: nil)
        }
    }
}
