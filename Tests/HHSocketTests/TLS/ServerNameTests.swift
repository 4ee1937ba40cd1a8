// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TestSupport
import Testing

/// The server name indication, which has no final period.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ServerNameTests {
    private final class Handler: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer

        private let received: Watched<[UInt8]>

        init(_ received: Watched<[UInt8]>) { self.received = received }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            let bytes = self.unwrapInboundIn(data)
            self.received.withLockedValue { $0 += Array(bytes.readableBytesView) }
        }
    }

    private static func index(of text: String, in bytes: [UInt8]) -> Int? {
        let text = Array(text.utf8)
        return bytes.indices.first { bytes[$0...].starts(with: text) }
    }

    @Test(arguments: ["example.com.", "example.com"], [true, false])
    func nameIsSentWithoutItsFinalPeriod(name: String, isOfEndpoint: Bool) async throws {
        let received = Watched<[UInt8]>([])
        let server = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(Handler(received))
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        let port = try #require(server.localAddress?.port)
        let endpoint = Endpoint(host: "127.0.0.1", port: port, serverName: isOfEndpoint ? name : nil)
        var configuration = SocketConfiguration(servers: [endpoint])
        configuration.networkMonitor = nil
        configuration.tls = ClientTLS()
        if !isOfEndpoint { configuration.tls?.serverName = name }
        let socket = Socket(configuration: configuration)
        socket.connect()
        try await received.wait("the name") { bytes in
            // What follows it is there, too.
            Self.index(of: "example.com", in: bytes).map { bytes.count > $0 + 11 } ?? false
        }
        let bytes = received.current
        let index = try #require(Self.index(of: "example.com", in: bytes))
        #expect(bytes[index + 11] != UInt8(ascii: "."))
        // The length before it, too.
        #expect(bytes[index - 1] == 11)
        socket.disconnect()
        try await server.close()
    }
}
