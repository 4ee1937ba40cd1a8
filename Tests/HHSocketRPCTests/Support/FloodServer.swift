// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix

/// A server that answers a request of type ``floodType`` with a flood of pushes, each once the previous one was sent,
/// so that it requires no memory for them and can count the sent ones. It echoes everything else.
struct FloodServer {
    static let floodType: UInt32 = 102

    let endpoint: Endpoint
    /// The number of sent pushes, on all connections.
    let left = NIOLockedValueBox(0)
    private let channel: any Channel

    /// - Parameters:
    ///   - pushes: The number of pushes in a flood. Each begins with its number, in 8 bytes.
    ///   - bytes: The length of each push; at least 8.
    init(pushes: Int, of type: UInt32, bytes: Int) async throws {
        self.channel = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelInitializer { [left] channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(Session(pushes, type, bytes, left))
                }
            }
            .bind(host: "127.0.0.1", port: 0)
            .get()
        self.endpoint = Endpoint(host: "127.0.0.1", port: self.channel.localAddress?.port ?? 0)
    }

    func close() async throws {
        try await self.channel.close()
    }

    private final class Session: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer

        private let pushes: Int
        private let type: UInt32
        private let bytes: Int
        private let left: NIOLockedValueBox<Int>
        private let encoder = FrameEncoder(direction: .response)
        private var decoder = FrameDecoder(direction: .request)

        init(_ pushes: Int, _ type: UInt32, _ bytes: Int, _ left: NIOLockedValueBox<Int>) {
            self.pushes = pushes
            self.type = type
            self.bytes = bytes
            self.left = left
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            self.decoder.append(self.unwrapInboundIn(data))
            while case .frame(let request)? = try? self.decoder.next() {
                self.write(Frame(type: request.type, serial: request.serial, payload: request.payload), context, nil)
                if request.type == FloodServer.floodType { self.push(0, context) }
            }
        }

        private func push(_ number: Int, _ context: ChannelHandlerContext) {
            guard number < self.pushes else { return }
            var payload = ByteBuffer(integer: number)
            payload.writeRepeatingByte(7, count: max(0, self.bytes - payload.readableBytes))
            let promise = context.eventLoop.makePromise(of: Void.self)
            promise.futureResult.assumeIsolated().whenSuccess {
                self.left.withLockedValue { $0 += 1 }
                // In a separate turn, because a write that succeeds immediately completes immediately.
                context.eventLoop.assumeIsolated().execute { self.push(number + 1, context) }
            }
            self.write(Frame(type: self.type, serial: FrameSerial.push, payload: payload), context, promise)
        }

        private func write(_ frame: Frame, _ context: ChannelHandlerContext, _ promise: EventLoopPromise<Void>?) {
            var bytes = ByteBuffer()
            self.encoder.encode(frame, into: &bytes)
            context.writeAndFlush(self.wrapOutboundOut(bytes), promise: promise)
        }
    }
}

extension ByteBuffer {
    /// The number at the beginning of a ``FloodServer``'s push.
    var floodNumber: Int? { self.getInteger(at: self.readerIndex) }
}
