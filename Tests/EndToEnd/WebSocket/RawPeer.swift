// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TestSupport

/// A client of raw bytes: it sends the given bytes, and keeps the received ones.
final class RawPeer: Sendable {
    private struct State {
        var received: [UInt8] = []
        var hasEnded = false
    }

    private final class Handler: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer

        private let state: NIOLockedValueBox<State>

        init(_ state: NIOLockedValueBox<State>) {
            self.state = state
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            let bytes = self.unwrapInboundIn(data)
            self.state.withLockedValue { $0.received += Array(bytes.readableBytesView) }
        }

        func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
            if case .inputClosed? = event as? ChannelEvent { self.state.withLockedValue { $0.hasEnded = true } }
        }

        func channelInactive(context: ChannelHandlerContext) {
            self.state.withLockedValue { $0.hasEnded = true }
        }

        func errorCaught(context: ChannelHandlerContext, error: any Error) {
            self.state.withLockedValue { $0.hasEnded = true }
        }
    }

    private let state: NIOLockedValueBox<State>
    private let channel: any Channel

    init(_ address: Endpoint) async throws {
        let state = NIOLockedValueBox(State())
        self.state = state
        self.channel = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .channelOption(.allowRemoteHalfClosure, value: true)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(Handler(state))
                }
            }
            .connect(host: address.host, port: address.port)
            .get()
    }

    func send(_ bytes: some Sequence<UInt8>) async throws {
        try await self.channel.writeAndFlush(ByteBuffer(bytes: bytes))
    }

    /// Opens a WebSocket by hand.
    func open(_ path: String, subprotocol: String? = "hhsocket.1", extra: String = "") async throws -> String {
        let offer = subprotocol.map { "Sec-WebSocket-Protocol: \($0)\r\n" } ?? ""
        try await self.send(
            """
            GET \(path) HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
            Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\(offer)\(extra)\r\n
            """.utf8
        )
        return try await self.head()
    }

    /// Reads the head of an HTTP response.
    func head() async throws -> String {
        let end = Array("\r\n\r\n".utf8)
        return try await self.take("an answer") { bytes in
            bytes.indices.first { bytes[$0...].starts(with: end) }.map { $0 + end.count }
        }
    }

    /// Takes bytes as soon as `length` returns their number.
    @discardableResult
    func take(_ what: String, _ length: @escaping @Sendable ([UInt8]) -> Int?) async throws -> String {
        String(decoding: try await self.takeBytes(what, length), as: UTF8.self)
    }

    func takeBytes(_ what: String, _ length: @escaping @Sendable ([UInt8]) -> Int?) async throws -> [UInt8] {
        let state = self.state
        return try await eventually(what) {
            state.withLockedValue { state in
                guard let count = length(state.received), count <= state.received.count else { return nil }
                let taken = Array(state.received.prefix(count))
                state.received.removeFirst(count)
                return taken
            }
        }
    }

    /// Reads the server's next frame: its first byte, and its payload.
    func frame() async throws -> (first: UInt8, payload: [UInt8]) {
        let bytes = try await self.takeBytes("a frame") { bytes in
            guard bytes.count >= 2 else { return nil }
            guard bytes[1] == 126 else { return bytes[1] < 126 ? 2 + Int(bytes[1]) : 0 }
            return bytes.count < 4 ? nil : 4 + Int(bytes[2]) << 8 + Int(bytes[3])
        }
        guard bytes.count >= 2 else { throw Unexpected(description: "the frame is masked or long: \(bytes)") }
        return (bytes[0], Array(bytes.dropFirst(bytes[1] == 126 ? 4 : 2)))
    }

    /// Returns a client's masked frame.
    static func masked(_ first: UInt8, _ payload: [UInt8]) -> [UInt8] {
        let key: [UInt8] = [1, 2, 3, 4]
        let length =
            payload.count < 126
            ? [0x80 | UInt8(payload.count)] : [0xFE, UInt8(payload.count >> 8), UInt8(payload.count & 0xFF)]
        return [first] + length + key + payload.enumerated().map { $1 ^ key[$0 & 3] }
    }

    var hasEnded: Bool { self.state.withLockedValue { $0.hasEnded } }

    func waitForEnd() async throws {
        let state = self.state
        try await eventually("the server's end of TCP") { state.withLockedValue { $0.hasEnded } }
    }

    func close() async {
        try? await self.channel.close()
    }
}
