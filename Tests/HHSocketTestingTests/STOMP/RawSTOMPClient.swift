// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketSTOMP
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TestSupport

/// A client of bytes, over TCP or TLS.
final class RawSTOMPClient: Sendable {
    private struct State {
        var bytes = ByteBuffer()
        var hasEnded = false
    }

    private final class Reader: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer

        private let state: NIOLockedValueBox<State>

        init(_ state: NIOLockedValueBox<State>) {
            self.state = state
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            self.state.withLockedValue { _ = $0.bytes.writeImmutableBuffer(self.unwrapInboundIn(data)) }
        }

        func channelInactive(context: ChannelHandlerContext) {
            self.state.withLockedValue { $0.hasEnded = true }
        }

        func errorCaught(context: ChannelHandlerContext, error: any Error) {
            context.close(promise: nil)
        }
    }

    private let channel: any Channel
    private let state: NIOLockedValueBox<State>

    init(to endpoint: Endpoint, tls: ClientTLS? = nil) async throws {
        let state = NIOLockedValueBox(State())
        self.state = state
        self.channel =
            try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    _ = try tls?.start(on: channel, to: endpoint)
                    try channel.pipeline.syncOperations.addHandler(Reader(state))
                }
            }
            .connect(host: endpoint.host, port: endpoint.port)
            .get()
    }

    deinit {
        self.channel.close(promise: nil)
    }

    /// Creates a client that has connected in a version.
    convenience init(
        to endpoint: Endpoint,
        tls: ClientTLS? = nil,
        version: STOMPVersion,
        heartBeat: String = "0,0"
    ) async throws {
        try await self.init(to: endpoint, tls: tls)
        try await self.send("CONNECT\naccept-version:\(version)\nhost:/\nheart-beat:\(heartBeat)\n\n\0")
        _ = try await self.frames(1)
    }

    func send(_ text: String) async throws { try await self.send(ByteBuffer(string: text)) }

    func send(_ bytes: ByteBuffer) async throws { try await self.channel.writeAndFlush(bytes) }

    func close() async throws { try await self.channel.close() }

    /// All received bytes.
    var bytes: [UInt8] { self.state.withLockedValue { Array(buffer: $0.bytes) } }
    var text: String { self.state.withLockedValue { String(buffer: $0.bytes) } }

    /// Waits for the first frames.
    @discardableResult
    func frames(_ count: Int) async throws -> [STOMPFrame] {
        try await eventually("\(count) frames") {
            var decoder = STOMPDecoder()
            // A copy, because the buffer's own block is reused once nothing else holds it, and the thread sanitizer
            // does not see the reference count that orders the accesses.
            decoder.append(self.state.withLockedValue { ByteBuffer(bytes: $0.bytes.readableBytesView) })
            var frames: [STOMPFrame] = []
            while frames.count < count, let frame = try decoder.next() { frames.append(frame) }
            return frames.count == count ? frames : nil
        }
    }

    func ended() async throws {
        try await eventually("the end of the connection") { self.state.withLockedValue { $0.hasEnded } }
    }
}
