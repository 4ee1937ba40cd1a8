// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketSTOMP
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

/// The broker whose behaviour a test determines, over sockets.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct MockBrokerTests {
    // MARK: A broker's

    @Test func messagesGoFromOneClientToAnother() async throws {
        let broker = try await MockBroker()
        #expect(broker.url == "stomp://127.0.0.1:\(broker.endpoint.port)")
        let consumer = try await RawSTOMPClient(to: broker.endpoint, version: .v1_2)
        try await consumer.send(
            "SUBSCRIBE\nid:1\ndestination:/queue/a\nack:client\nprefetch-count:1\nreceipt:r\n\n\0"
        )
        #expect(try await consumer.frames(2)[1] == STOMPFrame(.receipt, ["receipt-id": "r"]))
        #expect(broker.subscriptions(onConnection: 0).map(\.destination) == ["/queue/a"])

        let sender = try await RawSTOMPClient(to: broker.endpoint, version: .v1_1)
        try await sender.send("SEND\ndestination:/queue/a\nx\\cy:\\n\ncontent-length:3\n\na\0b\0\n")
        let message = try await consumer.frames(3)[2]
        #expect(message.headers["x:y"] == "\n" && message.headers["subscription"] == "1")
        #expect(String(buffer: message.body) == "a\0b")
        try await sender.send("SEND\ndestination:/queue/a\nreceipt:s\n\nsecond\0")
        #expect(try await sender.frames(2)[1].headers["receipt-id"] == "s")
        #expect(broker.messages(in: "/queue/a").map { String(buffer: $0.body) } == ["second"])
        #expect(broker.subscriptions(onConnection: 0)[0].unacknowledged == 1)

        // Without an acknowledgement both wait for the next consumer.
        try await consumer.send("DISCONNECT\nreceipt:bye\n\n\0")
        #expect(try await consumer.frames(4)[3].headers["receipt-id"] == "bye")
        try await consumer.ended()
        try await broker.ended(connection: 0)
        #expect(broker.messages(in: "/queue/a").map { $0.headers["redelivered"] } == ["true", nil])
        #expect(broker.connections.map(\.number) == [1] && broker.acceptedCount == 2)
        #expect(broker.received(onConnection: 0).map(\.command) == [.connect, .subscribe, .disconnect])
        await broker.shutdown()
        try await sender.ended()
    }

    @Test func testPublishes() async throws {
        let broker = try await MockBroker()
        try await broker.publish("kept", to: "/queue/a", headers: ["priority": "9"])
        await #expect(throws: SocketError.self) { try await broker.publish("x", to: "elsewhere") }
        let client = try await RawSTOMPClient(to: broker.endpoint, version: .v1_0)
        try await client.send("SUBSCRIBE\ndestination:/queue/a\n\n\0SUBSCRIBE\ndestination:/topic/t\n\n\0")
        try await broker.received(2, .subscribe, onConnection: 0)
        let kept = try await client.frames(2)[1]
        #expect(kept.headers["priority"] == "9" && String(buffer: kept.body) == "kept")
        // Headers that 1.0 cannot express are omitted.
        try await broker.publish("news", to: "/topic/t", headers: ["a:b": "c", "lines": "a\nb", "d": "e"])
        let news = try await client.frames(3)[2]
        #expect(news.headers.map(\.name) == ["destination", "message-id", "d", "content-length"])
    }

    @Test func malformedFrameIsAnsweredAndRecorded() async throws {
        let broker = try await MockBroker()
        let client = try await RawSTOMPClient(to: broker.endpoint, version: .v1_2)
        try await client.send("SEND\ndestination:/queue/a\nx:\\t\n\n\0SEND\ndestination:/queue/a\n\n\0")
        let error = try await client.frames(2)[1]
        #expect(error.command == .error && error.headers["message"] == "malformed frame")
        #expect(String(buffer: error.body).contains("undefined escape"))
        try await client.ended()
        #expect(try await broker.violation().contains("undefined escape"))
        #expect(broker.received.map(\.command) == [.connect])
    }

    @Test func errorArrivesAlthoughTheClientContinuesSending() async throws {
        let broker = try await MockBroker()
        for _ in 0..<20 {
            let client = try await RawSTOMPClient(to: broker.endpoint, version: .v1_2)
            let rest = String(repeating: "SEND\ndestination:/queue/a\n\n\0", count: 10_000)
            try? await client.send("ACK\nid:none\n\n\0" + rest)
            #expect(try await client.frames(2)[1].headers["message"] == "message not found")
            try await client.ended()
        }
    }

    /// Events for which a test has waited have been handled, and everything sent to a client has been recorded.
    @Test func recordAgreesWithTheState() async throws {
        let broker = try await MockBroker()
        let client = try await RawSTOMPClient(to: broker.endpoint, version: .v1_2)
        let other = try await RawSTOMPClient(to: broker.endpoint, version: .v1_2)
        for number in 1...50 {
            try await client.send("SUBSCRIBE\nid:\(number)\ndestination:/queue/\(number)\n\n\0")
            try await broker.received(number, .subscribe)
            #expect(broker.subscriptions(onConnection: 0).count == number)
            try await other.send("SEND\ndestination:/queue/\(number)\n\n\0")
            try await client.frames(number + 1)
            #expect(broker.received.filter { $0.command == .send }.count == number)
        }
    }

    @Test func strangersAreSentAway() async throws {
        var configuration = MockBroker.Configuration()
        configuration.logins = ["me": "secret"]
        let broker = try await MockBroker(configuration: configuration)
        let client = try await RawSTOMPClient(to: broker.endpoint)
        try await client.send("CONNECT\r\naccept-version:1.2\r\nhost:/\r\nlogin:me\r\npasscode:guess\r\n\r\n\0")
        #expect(try await client.frames(1)[0].headers["message"] == "access refused")
        try await client.ended()
        let received = try await broker.received(1)[0]
        #expect(received.frame.headers["passcode"] == "guess" && !"\(received)".contains("guess"))
    }

    @Test func heartBeatsGoBothWays() async throws {
        let broker = try await MockBroker()
        let client = try await RawSTOMPClient(to: broker.endpoint, version: .v1_2, heartBeat: "0,20")
        try await eventually("three heart-beats") { client.text.hasSuffix("\0\n\n\n") }
        try await client.send("\n")
        try await client.send("\n")
        try await broker.receivedHeartBeats(2)
        #expect(broker.connections.count == 1)
    }

    @Test func silentClientIsSentAwayAfterTwiceTheInterval() async throws {
        let clock = VirtualClock()
        let broker = try await MockBroker(clock: clock)
        let client = try await RawSTOMPClient(to: broker.endpoint, version: .v1_2, heartBeat: "1000,0")
        for beat in 1...3 {
            try await clock.waitForSleepers(1)
            try await client.send("\n")
            try await broker.receivedHeartBeats(beat)
            clock.advance(by: .seconds(1))
        }
        try await clock.waitForSleepers(1)
        clock.advance(by: .seconds(1))
        try await clock.waitForSleepers(1)
        #expect(broker.connections.count == 1)
        clock.advance(by: .seconds(1))
        try await client.ended()
        #expect(client.text.hasSuffix("\0"))
    }

    @Test func brokerEndsWithItsLastReference() async throws {
        var broker: MockBroker? = try await MockBroker()
        let endpoint = try #require(broker?.endpoint)
        let client = try await RawSTOMPClient(to: endpoint, version: .v1_2, heartBeat: "100,100")
        try await client.send("SUBSCRIBE\nid:1\ndestination:/queue/a\n\n\0")
        try await broker?.received(1, .subscribe)
        broker = nil
        try await client.ended()
    }

    @Test func portIsRefusedAndAcceptedAgain() async throws {
        let broker = try await MockBroker()
        try await broker.refuseConnections()
        await #expect(throws: (any Error).self) { _ = try await RawSTOMPClient(to: broker.endpoint) }
        try await broker.acceptConnections()
        _ = try await RawSTOMPClient(to: broker.endpoint, version: .v1_1)
        #expect(broker.acceptedCount == 1)
    }

    @Test func speaksTLS() async throws {
        let certificate = try TestCertificate(.server)
        let identity = TLSIdentity(certificatePEM: certificate.certificatePEM, keyPEM: certificate.keyPEM)
        let broker = try await MockBroker(identity: identity)
        #expect(broker.url == "stomps://127.0.0.1:\(broker.endpoint.port)")
        var tls = ClientTLS()
        tls.trust = try TestAuthority().trust
        let client = try await RawSTOMPClient(to: broker.endpoint, tls: tls, version: .v1_2)
        try await client.send("SEND\ndestination:/queue/a\nreceipt:r\n\nx\0")
        #expect(try await client.frames(2)[1].command == .receipt)
    }

    // MARK: Scripts

    @Test func rulesAreChosenByCommandThenByOrder() async throws {
        let broker = try await MockBroker()
        let client = try await RawSTOMPClient(to: broker.endpoint, version: .v1_2)
        broker.once(.send, .drop)
        broker.once(.send, .handleWithoutReceipt)
        broker.once(.send, .receipt)
        broker.once(.send, .error("no permission", headers: ["code": "5"], body: "at all"))
        broker.on(.begin, .respond { $0.headers["transaction"] == "t" ? .handle : .error("odd") })
        broker.on(.abort, .frame(STOMPFrame(.receipt, ["receipt-id": "other"])).times(2))
        for number in 1...5 {
            try await client.send("SEND\ndestination:/queue/\(number)\nreceipt:\(number)\n\nx\0")
        }
        try await client.send(
            "BEGIN\ntransaction:t\nreceipt:6\n\n\0BEGIN\ntransaction:u\n\n\0ABORT\ntransaction:t\n\n\0"
        )
        let frames = try await client.frames(8).dropFirst()
        #expect(
            frames.map { $0.headers["receipt-id"] } == ["3", "4", "5", "6", nil, "other", "other"]
        )
        let error = try #require(frames.dropFirst().first)
        #expect(error.command == .error && error.headers["message"] == "no permission")
        #expect(error.headers["code"] == "5" && String(buffer: error.body) == "at all")
        #expect((1...5).map { broker.messages(in: "/queue/\($0)").count } == [0, 1, 0, 0, 1])
        #expect(broker.transactions(onConnection: 0) == ["t"])
        broker.onAnyOther(.raw("RECEIPT\nreceipt-id:raw\n\n\0").then(.endsOfLines(2)))
        try await client.send("COMMIT\ntransaction:t\n\n\0")
        try await eventually("the ends of lines") { client.text.hasSuffix("receipt-id:raw\n\n\0\n\n") }
    }

    @Test func faultsAreComposed() async throws {
        let clock = VirtualClock()
        let broker = try await MockBroker(clock: clock)
        broker.onOpen(number: 0, .raw("CONN").then(.disconnect))
        let cut = try await RawSTOMPClient(to: broker.endpoint)
        try await cut.ended()
        #expect(cut.text == "CONN")
        broker.once(.connect, .handle.delayed(by: .seconds(5)))
        broker.on(.send, .frame(STOMPFrame(.receipt, ["receipt-id": "ä"])).cut(after: 5).then(.reset))
        let client = try await RawSTOMPClient(to: broker.endpoint)
        try await client.send("CONNECT\naccept-version:1.2\nhost:/\n\n\0")
        try await clock.waitForSleepers(1)
        #expect(client.text.isEmpty && broker.received.count == 1)
        clock.advance(by: .seconds(5))
        try await client.frames(1)
        await broker.perform(.frame(STOMPFrame(.error, ["message": "€"])).dribbled())
        #expect(try await client.frames(2)[1].headers["message"] == "€")
        try await client.send("SEND\ndestination:/queue/a\n\n\0")
        try await client.ended()
    }

    @Test func silentBrokerNeitherReadsNorSends() async throws {
        let broker = try await MockBroker()
        let client = try await RawSTOMPClient(to: broker.endpoint, version: .v1_2)
        broker.once(.send, .goSilent)
        try await client.send("SEND\ndestination:/queue/a\nreceipt:1\n\n\0SEND\ndestination:/queue/a\nreceipt:2\n\n\0")
        try await broker.received(1, .send)
        await broker.perform(.endsOfLines())
        await broker.perform(.wakeUp)
        #expect(try await client.frames(2)[1].headers["receipt-id"] == "2")
        broker.once(.send, .stopReading)
        try await client.send("SEND\ndestination:/queue/b\n\n\0SEND\ndestination:/queue/b\n\n\0")
        try await broker.received(3, .send)
        await broker.perform(.endsOfLines())
        try await eventually("an end of line") { client.text.hasSuffix("\n\n\0\n") }
        #expect(broker.received.filter { $0.command == .send }.count == 3)
        await broker.perform(.wakeUp)
        try await broker.received(4, .send)
    }

    // MARK: WebSocket

    private func client(
        to broker: MockBroker,
        _ subprotocols: String? = "v12.stomp, v11.stomp, v10.stomp"
    ) async throws -> (HostileClient, String?) {
        let client = try await HostileClient(to: broker.endpoint, opensWebSocket: false)
        await client.perform(.opening(headers: ["Sec-WebSocket-Protocol": subprotocols ?? "other"]))
        return (client, try await client.opening().header("Sec-WebSocket-Protocol"))
    }

    @Test func speaksOverWebSocketInAMessageForEachFrame() async throws {
        let broker = try await MockBroker(webSocket: "/ws")
        #expect(broker.url == "ws://127.0.0.1:\(broker.endpoint.port)/ws")
        let (client, subprotocol) = try await self.client(to: broker)
        #expect(subprotocol == "v12.stomp")
        #expect(try await broker.opening(0).subprotocols == ["v12.stomp", "v11.stomp", "v10.stomp"])
        // Frames in any division into messages: several for a frame, several frames in one, text and binary.
        await client.perform(
            .text("\nCONN").then(.binary("ECT\naccept-version:1.2\nhost:/\n".utf8)).then(.text("\n\0"))
        )
        await client.perform(
            .text("SUBSCRIBE\nid:1\ndestination:/topic/t\n\n\0\nSEND\ndestination:/topic/t\ncontent-length:2\n\nä")
                .then(.webSocketFrame(.ping())).then(.binary([0, 0x0A]))
        )
        #expect(try await client.message().text?.hasPrefix("CONNECTED\nversion:1.2\n") == true)
        #expect(try await client.message() == .pong(ByteBuffer()))
        #expect(try await client.message().text?.hasSuffix("content-length:2\n\nä\0") == true)
        #expect(broker.received.map(\.command) == [.connect, .subscribe, .send])
    }

    @Test func answersOverWebSocketAreText() async throws {
        let broker = try await MockBroker(webSocket: "/stomp")
        let (client, _) = try await self.client(to: broker)
        await client.perform(.text("CONNECT\naccept-version:1.2\nhost:/\n\n\0"))
        #expect(try await client.message().text?.hasSuffix("\n\n\0") == true)
        await client.perform(.text("SUBSCRIBE\nid:1\ndestination:/topic/t\nreceipt:r\n\n\0"))
        #expect(try await client.message().text == "RECEIPT\nreceipt-id:r\n\n\0")
        try await broker.publish("ä", to: "/topic/t")
        #expect(try await client.message().text?.hasSuffix("\n\nä\0") == true)
        await client.perform(.webSocketFrame(.ping(ByteBuffer(string: "p"))))
        #expect(try await client.message() == .pong(ByteBuffer(string: "p")))
        await client.perform(.text("DISCONNECT\nreceipt:bye\n\n\0"))
        #expect(try await client.message().text == "RECEIPT\nreceipt-id:bye\n\n\0")
        #expect(try await client.message().closeCode == 1_000)
        try await client.ended()
    }

    @Test func messagesMayHavePartsOfFramesAndSeveral() async throws {
        var webSocket = MockBroker.WebSocket()
        webSocket.sendsText = false
        webSocket.messageLength = 10
        let broker = try await MockBroker(carriedBy: webSocket)
        let (client, _) = try await self.client(to: broker)
        await client.perform(.text("CONNECT\naccept-version:1.2\nhost:/\n\n\0"))
        try await broker.received(1, .connect)
        await broker.perform(.glued(.endsOfLines(), .frame(STOMPFrame(.receipt, ["receipt-id": "1"])), .endsOfLines()))
        var text = ""
        while !text.hasSuffix("receipt-id:1\n\n\0\n") {
            guard case .binary(let bytes) = try await client.message() else {
                Issue.record("not a binary message")
                return
            }
            #expect(bytes.readableBytes <= 10)
            text += String(buffer: bytes)
        }
        #expect(text.hasPrefix("CONNECTED\n"))
    }

    @Test func openingIsScripted() async throws {
        var configuration = MockBroker.Configuration()
        configuration.versions = [.v1_0, .v1_1]
        let broker = try await MockBroker(configuration: configuration, webSocket: "/ws")
        broker.onOpening(number: 0, .refuse(status: 503))
        let refused = try await HostileClient(to: broker.endpoint, opensWebSocket: false)
        await refused.perform(.opening())
        #expect(try await refused.opening().status == 503)
        let (first, subprotocol) = try await self.client(to: broker)
        #expect(subprotocol == "v11.stomp")
        let (other, none) = try await self.client(to: broker, nil)
        #expect(none == nil)
        await other.perform(.text("CONNECT\naccept-version:1.0\n\n\0"))
        #expect(try await other.message().text?.contains("version:1.0\n") == true)
        #expect(broker.connections.map(\.number) == [1, 2])
        await first.perform(.close)
    }
}
