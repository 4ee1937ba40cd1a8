import HHSocket
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TestSupport

/// A server that does what a test tells it to, right or wrong, and remembers what it received.
final class ScriptedPeer: Sendable {
    /// What it does with a frame.
    enum Reaction: Sendable {
        case nothing
        case send(ByteBuffer)
        case close
    }

    typealias Script = @Sendable (Frame) -> Reaction

    private final class Handler: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer

        let peer: NIOLockedValueBox<State>
        let greeting: ByteBuffer?
        let script: Script
        var decoder = FrameDecoder(direction: .request)

        init(peer: NIOLockedValueBox<State>, greeting: ByteBuffer?, script: @escaping Script) {
            self.peer = peer
            self.greeting = greeting
            self.script = script
        }

        func channelActive(context: ChannelHandlerContext) {
            self.peer.withLockedValue { $0.connections += 1 }
            if let greeting = self.greeting {
                context.writeAndFlush(self.wrapOutboundOut(greeting), promise: nil)
            }
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            self.decoder.append(self.unwrapInboundIn(data))
            while case .frame(let frame)? = try? self.decoder.next() {
                self.peer.withLockedValue { $0.frames.append(frame) }
                switch self.script(frame) {
                case .nothing: break
                case .send(let bytes): context.writeAndFlush(self.wrapOutboundOut(bytes), promise: nil)
                case .close: context.close(promise: nil)
                }
            }
        }
    }

    private struct State {
        var frames: [Frame] = []
        var connections = 0
    }

    let address: String
    private let channel: any Channel
    private let state: NIOLockedValueBox<State>

    var frames: [Frame] { self.state.withLockedValue { $0.frames } }
    var connections: Int { self.state.withLockedValue { $0.connections } }

    private init(channel: any Channel, state: NIOLockedValueBox<State>) {
        self.channel = channel
        self.state = state
        self.address = "127.0.0.1:\(channel.localAddress?.port ?? 0)"
    }

    /// Runs `body` while the peer listens.
    ///
    /// - Parameter greeting: Sent to each client that connects.
    static func run<Result: Sendable>(
        greeting: ByteBuffer? = nil,
        _ script: @escaping Script,
        _ body: (ScriptedPeer) async throws -> Result
    ) async throws -> Result {
        let state = NIOLockedValueBox(State())
        let channel = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(
                        Handler(peer: state, greeting: greeting, script: script)
                    )
                }
            }
            .bind(host: "127.0.0.1", port: 0)
            .get()
        do {
            let result = try await body(ScriptedPeer(channel: channel, state: state))
            try await channel.close()
            return result
        } catch {
            try? await channel.close()
            throw error
        }
    }

    /// A response's bytes.
    static func response(
        _ type: UInt32,
        _ serial: UInt32,
        _ status: UInt32 = 200,
        _ body: ByteBuffer = ByteBuffer(),
        checksum: UInt32? = nil
    ) -> ByteBuffer {
        var bytes = ByteBuffer()
        bytes.writeInteger(type)
        bytes.writeInteger(serial)
        bytes.writeInteger(status)
        bytes.writeInteger(UInt32(body.readableBytes))
        bytes.writeImmutableBuffer(body)
        bytes.writeInteger(checksum ?? Adler32.checksum(body))
        return bytes
    }

    /// A port that nothing listens on.
    static func freePort() async throws -> Int {
        try await self.run({ _ in .nothing }) { peer in peer.channel.localAddress?.port ?? 0 }
    }
}
