// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketServer
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

/// Faults that users of WebSocket libraries report, which this package must not have: masks that neither side insists
/// on; a server that cannot shut down while a client is silent; limits that fail without saying which; compressed
/// control frames; empty header fields for extensions.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct WebSocketStrictnessTests {
    /// A server that echoes on `/chat` and has calls on `/rpc`.
    private func with(
        options: WebSocketRouteOptions = WebSocketRouteOptions(),
        _ body: (SocketServer, Endpoint) async throws -> Void
    ) async throws {
        var listener = ServerListener()
        listener.webSocket = WebSocketListening(path: "/rpc")
        let server = SocketServer(configuration: .init(listeners: [listener]), router: .echo)
        try server.webSocket("/chat", options: options) { connection in
            for await message in connection.messages { try await connection.send(message) }
        }
        try await server.start()
        let address = try #require(server.address)
        let result = await Result { try await body(server, address) }
        await server.shutdown(gracePeriod: .zero)
        try result.get()
    }

    private func code(_ close: (first: UInt8, payload: [UInt8])) -> Int {
        close.payload.count >= 2 ? Int(close.payload[0]) << 8 | Int(close.payload[1]) : 0
    }

    private func reason(_ close: (first: UInt8, payload: [UInt8])) -> String {
        String(decoding: close.payload.dropFirst(2), as: UTF8.self)
    }

    // MARK: Masks

    @Test(arguments: [("/chat", nil), ("/rpc", "hhsocket.1")] as [(String, String?)])
    func serverTakesNoFrameWithoutAMask(path: String, subprotocol: String?) async throws {
        try await self.with { _, address in
            let peer = try await RawPeer(address)
            #expect(try await peer.open(path, subprotocol: subprotocol).hasPrefix("HTTP/1.1 101 "))
            try await peer.send([0x82, 2, 1, 2])
            let close = try await peer.frame()
            #expect(close.first == 0x88 && self.code(close) == 1_002)
            #expect(self.reason(close).contains("not masked"))
            try await peer.waitForEnd()
            await peer.close()
        }
    }

    @Test func clientTakesNoFrameWithAMask() async throws {
        let server = try await ScriptedWebSocketServer()
        let link = try TestLink.make(server.url())
        let events = link.events
        link.connect()
        try await link.send(WebSocketMessage("hello"))
        try await server.send(RawPeer.masked(0x81, Array("masked".utf8)))
        let closure = try await TestLink.closure(events)
        #expect(closure.error?.message.contains("masked") == true)
        let close = try await server.value("the close frame") { $0.close }
        #expect(Array(close.payload.prefix(2)) == [0x03, 0xEA])
        link.finishMessages()
        var messages = link.messages.makeAsyncIterator()
        #expect(await messages.next() == nil)
        link.disconnect()
        await server.close()
    }

    // MARK: Shutdown

    @Test(arguments: [("/chat", nil), ("/rpc", "hhsocket.1")] as [(String, String?)])
    func serverShutsDownWhileAClientIsSilent(path: String, subprotocol: String?) async throws {
        try await self.with { server, address in
            let peer = try await RawPeer(address)
            #expect(try await peer.open(path, subprotocol: subprotocol).hasPrefix("HTTP/1.1 101 "))
            // From here on the client answers neither a close frame nor a go-away.
            let shutdown = Task { await server.shutdown(gracePeriod: .seconds(1)) }
            try await waitForValue(of: shutdown, "the end of the shutdown")
            let first = try await peer.frame()
            if subprotocol == nil {
                #expect(first.first == 0x88 && self.code(first) == 1_001)
            } else {
                // Clients of calls may stay until the end of the grace period.
                #expect(first.first == 0x82)
            }
            try await peer.waitForEnd()
            #expect(server.connectionCount == 0)
            await peer.close()
        }
    }

    // MARK: Limits

    @Test func bothSidesOfALongMessageLearnItsLengthTheLimitAndTheSetting() async throws {
        var options = WebSocketRouteOptions()
        options.maximumMessageLength = 1_000
        options.maximumFragments = 3
        try await self.with(options: options) { _, address in
            let link = try TestLink.make("ws://127.0.0.1:\(address.port)/chat")
            let events = link.events
            link.connect()
            try await link.send(WebSocketMessage(String(repeating: "x", count: 1_001)))
            let closure = try await TestLink.closure(events)
            #expect(closure.code == 1_009 && closure.wasClean)
            for word in ["1001", "1000", "maximumMessageLength"] { #expect(closure.reason.contains(word)) }
            // The logged error names the setting too.
            #expect(closure.error?.message.contains("maximumMessageLength") == true)
            link.disconnect()
            let peer = try await RawPeer(address)
            _ = try await peer.open("/chat", subprotocol: nil)
            let more = RawPeer.masked(0x00, [1])
            try await peer.send(RawPeer.masked(0x01, [1]) + more + more + more)
            let close = try await peer.frame()
            #expect(self.code(close) == 1_009)
            #expect(self.reason(close).contains("more than 3 fragments (maximumFragments)"))
            await peer.close()
        }
    }

    // MARK: Compression

    @Test(arguments: [0xC9, 0xCA, 0xC8] as [UInt8])
    func compressedControlFramesAreViolations(first: UInt8) async throws {
        var options = WebSocketRouteOptions()
        options.compression = WebSocketCompression()
        try await self.with(options: options) { _, address in
            let peer = try await RawPeer(address)
            let head = try await peer.open(
                "/chat",
                subprotocol: nil,
                extra: "Sec-WebSocket-Extensions: permessage-deflate\r\n"
            )
            #expect(head.contains("\r\nSec-WebSocket-Extensions: permessage-deflate\r\n"))
            try await peer.send(RawPeer.masked(0x81, Array("before".utf8)))
            #expect(String(decoding: try await peer.frame().payload, as: UTF8.self) == "before")
            try await peer.send(RawPeer.masked(first, []))
            let close = try await peer.frame()
            #expect(close.first == 0x88 && self.code(close) == 1_002)
            await peer.close()
        }
    }

    @Test(arguments: [
        (true, ""), (true, "Sec-WebSocket-Extensions: x-unknown\r\n"),
        (true, "Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=8\r\n"),
        (false, "Sec-WebSocket-Extensions: permessage-deflate\r\n"),
    ])
    func extensionThatIsNotAgreedOnHasNoHeaderField(compresses: Bool, offer: String) async throws {
        var options = WebSocketRouteOptions()
        if compresses { options.compression = WebSocketCompression() }
        try await self.with(options: options) { _, address in
            let peer = try await RawPeer(address)
            let head = try await peer.open("/chat", subprotocol: nil, extra: offer)
            #expect(head.hasPrefix("HTTP/1.1 101 "))
            #expect(!head.lowercased().contains("sec-websocket-extensions"), "\(head)")
            #expect(!head.contains(": \r\n"))
            await peer.close()
        }
    }
}
