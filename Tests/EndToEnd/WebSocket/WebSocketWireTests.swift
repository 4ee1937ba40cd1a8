// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketServer
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

/// The bytes of a WebSocket that other implementations see.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct WebSocketWireTests {
    /// A request of type 101 with this payload.
    private func request(_ text: String, serial: UInt32 = 50) -> [UInt8] {
        var bytes = ByteBuffer()
        FrameEncoder(direction: .request)
            .encode(Frame(type: 101, serial: serial, payload: ByteBuffer(string: text)), into: &bytes)
        return Array(bytes.readableBytesView)
    }

    private func with(
        time: SocketTime = SocketTime(),
        _ body: (SocketServer, RawPeer) async throws -> Void
    ) async throws {
        try await WebSocketCallTests.with(change: { $0.time = time }) { server, addresses in
            let peer = try await RawPeer(addresses[0])
            let head = try await peer.open("/rpc")
            #expect(head.hasPrefix("HTTP/1.1 101 Switching Protocols\r\n"))
            #expect(head.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"))
            #expect(head.contains("Sec-WebSocket-Protocol: hhsocket.1\r\n"))
            try await body(server, peer)
            await peer.close()
        }
    }

    private func code(_ payload: [UInt8]) -> Int { Int(payload[0]) << 8 | Int(payload[1]) }

    @Test func framesMayBeginInOneMessageAndEndInAnother() async throws {
        try await self.with { _, peer in
            let request = self.request("hello")
            for byte in request.dropLast() { try await peer.send(RawPeer.masked(0x82, [byte])) }
            // Empty messages, fragments and pings mean nothing to the stream.
            try await peer.send(RawPeer.masked(0x82, []))
            try await peer.send(RawPeer.masked(0x89, Array("are you there".utf8)))
            let ping = try await peer.frame()
            #expect(ping.first == 0x8A)
            #expect(ping.payload == Array("are you there".utf8))
            try await peer.send(RawPeer.masked(0x02, []) + RawPeer.masked(0x80, [request.last ?? 0]))
            let answer = try await peer.frame()
            #expect(answer.first == 0x82)
            #expect(String(decoding: answer.payload, as: UTF8.self).contains("hello"))
        }
    }

    @Test func framesAreSentCompressedWhereThatIsAgreedOn() async throws {
        try await WebSocketCallTests.with {
            $0.listeners[0].webSocket?.compression = WebSocketCompression()
        } _: { _, addresses in
            let peer = try await RawPeer(addresses[0])
            let head = try await peer.open("/rpc", extra: "Sec-WebSocket-Extensions: permessage-deflate\r\n")
            #expect(head.contains("Sec-WebSocket-Extensions: permessage-deflate"))
            let text = String(repeating: "compress ", count: 1_000)
            // A client need not compress.
            try await peer.send(RawPeer.masked(0x82, self.request(text)))
            let long = try await peer.frame()
            #expect(long.first == 0xC2)
            #expect(long.payload.count < 200)
            try await peer.send(RawPeer.masked(0x82, self.request("short", serial: 51)))
            let short = try await peer.frame()
            #expect(short.first == 0x82)
            #expect(String(decoding: short.payload, as: UTF8.self).contains("short"))
            await peer.close()
        }
    }

    @Test func closeIsAnsweredBehindWhatCameBeforeIt() async throws {
        try await self.with { _, peer in
            try await peer.send(
                RawPeer.masked(0x82, self.request("last")) + RawPeer.masked(0x88, [0x0F, 0xA0] + Array("bye".utf8))
            )
            let answer = try await peer.frame()
            #expect(String(decoding: answer.payload, as: UTF8.self).contains("last"))
            let close = try await peer.frame()
            #expect(close.first == 0x88)
            #expect(close.payload == [0x0F, 0xA0])
            // The server ends TCP first.
            try await peer.waitForEnd()
        }
    }

    @Test(
        arguments: [
            ([0x82, 0x00], 1_002), (RawPeer.masked(0xC2, [1]), 1_002), (RawPeer.masked(0x83, [1]), 1_002),
            (RawPeer.masked(0x81, Array("text".utf8)), 1_003), (RawPeer.masked(0x80, [1]), 1_002),
            (RawPeer.masked(0x88, [1]), 1_002), (RawPeer.masked(0x88, [0x03, 0xED]), 1_002),
            // A payload over every server's limit, and bytes that are no frame.
            (RawPeer.masked(0x82, [0, 0, 0, 101, 0, 0, 0, 50, 1, 0x10, 0, 0]), 1_009),
        ] as [([UInt8], Int)]
    )
    func violationsAreClosedWithTheirCodeBehindAnswers(bytes: [UInt8], code: Int) async throws {
        try await self.with { _, peer in
            try await peer.send(RawPeer.masked(0x82, self.request("before")) + bytes)
            let answer = try await peer.frame()
            #expect(String(decoding: answer.payload, as: UTF8.self).contains("before"))
            // The flush with the answer also contains status 301.
            if code == 1_009 { #expect(Array(answer.payload.suffix(12).prefix(4)) == [0, 0, 1, 45]) }
            let close = try await peer.frame()
            #expect(close.first == 0x88)
            #expect(self.code(close.payload) == code)
            try await peer.waitForEnd()
        }
    }

    @Test func drainedServerClosesWith1001() async throws {
        try await self.with { server, peer in
            try await peer.send(RawPeer.masked(0x82, self.request("hello")))
            _ = try await peer.frame()
            async let shutdown: Void = server.shutdown(gracePeriod: .milliseconds(2_500))
            let goAway = try await peer.frame()
            #expect(goAway.first == 0x82)
            try await peer.send(RawPeer.masked(0x88, [0x03, 0xE8]))
            let close = try await peer.frame()
            #expect(close.first == 0x88)
            try await peer.waitForEnd()
            await shutdown
        }
    }

    @Test func clientThatStaysIsClosedWith1001WhenTheGraceEnds() async throws {
        let time = ManualTime()
        try await self.with(time: SocketTime(time)) { server, peer in
            try await peer.send(RawPeer.masked(0x82, self.request("hello")))
            _ = try await peer.frame()
            async let shutdown: Void = server.shutdown(gracePeriod: .seconds(10))
            // The go-away.
            #expect(try await peer.frame().first == 0x82)
            try await time.advance(by: .seconds(1), until: "the end of the grace") { server.connectionCount == 0 }
            let close = try await peer.frame()
            #expect(close.first == 0x88)
            #expect(self.code(close.payload) == 1_001)
            try await peer.waitForEnd()
            await shutdown
        }
    }

    @Test func noUpgradeHasAnAnswerOfHTTP() async throws {
        try await WebSocketCallTests.with { _, addresses in
            for (request, status) in [
                ("GET /rpc HTTP/1.1\r\nHost: a\r\n\r\n", "426"), ("POST /rpc HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
                ("GET /other HTTP/1.1\r\nHost: a\r\n\r\n", "404"), ("\u{1}nothing", "400"),
                ("GET /\(String(repeating: "x", count: 17_000))", "431"),
            ] {
                let peer = try await RawPeer(addresses[0])
                try await peer.send(request.utf8)
                let head = try await peer.head()
                #expect(head.hasPrefix("HTTP/1.1 \(status) "), "\(request.prefix(40)): \(head)")
                try await peer.waitForEnd()
                await peer.close()
            }
            let peer = try await RawPeer(addresses[0])
            let head = try await peer.open("/rpc", subprotocol: "chat")
            #expect(head.hasPrefix("HTTP/1.1 400 "))
        }
    }

    @Test func slowOpeningIsCutOff() async throws {
        try await WebSocketCallTests.with(change: { $0.listeners[0].webSocket?.timeout = .milliseconds(50) }) {
            _,
            addresses in
            let peer = try await RawPeer(addresses[0])
            try await peer.send("GET /rpc HTTP".utf8)
            try await peer.waitForEnd()
        }
    }

    @Test(arguments: [3_500, 3_999, 4_500, 4_999]) func closeCodesForEverEndTheClient(code: Int) async throws {
        let server = try await MockServer(.echo, webSocket: "/rpc")
        // In the write of the answer to the opening.
        server.onOpen(.webSocket(.close(code: UInt16(code), reason: "away")))
        let client = SocketClient.connecting(to: server.endpoint)
        let event = try await first(of: client.events, "the end") { if case .gaveUp = $0 { true } else { false } }
        guard case .gaveUp(let error) = event else { return }
        #expect(error.code == .connectionLost)
        #expect(error.message == "closed: \(code) away")
        #expect(error.underlying as? WebSocketClosure == WebSocketClosure(code: UInt16(code), reason: "away"))
        await client.close()
    }

    @Test(arguments: [.close(code: 1_000), .close(code: 1_012), .close(), .binary([]).masked()] as [WebSocketFrame])
    func otherEndsAreFollowedByAnotherConnection(frame: WebSocketFrame) async throws {
        let server = try await MockServer(.echo, webSocket: "/rpc")
        for number in 0..<2 { server.onOpen(number: number, .webSocket(frame)) }
        let client = SocketClient.connecting(to: server.endpoint)
        try await server.connection(2)
        await client.close()
    }
}
