// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// A codec that asks the server for something while it encodes.
private struct CuriousCodec: FrameCodec {
    var base = NetstringCodec()
    let server: NIOLockedValueBox<SocketServer?>

    mutating func decode(
        _ bytes: inout ByteBuffer,
        _ direction: FrameDirection,
        maximumPayloadLength: Int
    ) throws -> Frame? {
        try self.base.decode(&bytes, direction, maximumPayloadLength: maximumPayloadLength)
    }

    func encode(_ frame: Frame, _ direction: FrameDirection, into bytes: inout ByteBuffer) throws {
        let server = self.server.withLockedValue { $0 }
        if server?.isAccepting == true { _ = server?.statistics }
        try self.base.encode(frame, direction, into: &bytes)
    }
}

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct CuriousCodecTests {
    /// No code of an application runs under a lock of the server.
    @Test func aCodecMayAskTheServerWhileAPushIsEncoded() async throws {
        let box = NIOLockedValueBox<SocketServer?>(nil)
        let format = try NetstringCodec.format(CuriousCodec(server: box))
        let configuration = SocketServer.Configuration(listeners: [ServerListener(wireFormat: format)])
        try await withServer(configuration, Router()) { server in
            box.withLockedValue { $0 = server }
            let client = try await HostileClient(to: try #require(server.address), format: format)
            try await eventually("the client") { server.connectionCount == 1 }
            let count = try await withDeadline("the push") {
                await server.push(type: 2_001, body: ByteBuffer(string: "news"))
            }
            #expect(count == 1)
            #expect(try await client.response().payload == ByteBuffer(string: "news"))
            box.withLockedValue { $0 = nil }
        }
    }
}
