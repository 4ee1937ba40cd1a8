// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import NIOCore
import NIOEmbedded
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// The handler of a client's opening: bytes after the answer reach the link, whatever read contained them.
@Suite struct WebSocketOpeningTests {
    /// Collects the bytes for the link.
    private final class Link: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer

        var received: [UInt8] = []

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            self.received += Array(self.unwrapInboundIn(data).readableBytesView)
        }
    }

    /// Runs an opening whose answer arrives in these pieces. Returns the result, and the bytes for the link.
    private func open(_ pieces: [ArraySlice<UInt8>]) throws -> (outcome: String, received: [UInt8]) {
        let channel = EmbeddedChannel()
        let link = Link()
        var outcome = "waiting"
        let request = try OpeningSample.request()
        let opening = WebSocketOpening(request, clock: { OpeningSample.now }, eventLoop: channel.embeddedEventLoop) {
            switch $0 {
            case .success(.accepted):
                outcome = "accepted"
                let operations = channel.pipeline.syncOperations
                #expect(throws: Never.self) {
                    try operations.addHandler(WebSocketCarriage(role: .client, account: nil))
                }
                #expect(throws: Never.self) { try operations.addHandler(link) }
            case .success(.redirect(let target)): outcome = target.url
            case .failure(let error): outcome = "\(error)"
            }
        }
        try channel.pipeline.syncOperations.addHandler(opening)
        channel.connect(to: try SocketAddress(ipAddress: "127.0.0.1", port: 1), promise: nil)
        #expect(try channel.readOutbound(as: ByteBuffer.self) == request.encode())
        for piece in pieces {
            _ = try? channel.writeInbound(ByteBuffer(bytes: piece))
            channel.embeddedEventLoop.run()
        }
        _ = try? channel.finish(acceptAlreadyClosed: true)
        return (outcome, link.received)
    }

    @Test(arguments: [
        (OpeningSample.response(), "accepted"), ("HTTP/1.1 302 x\r\nLocation: ws://b/c\r\n\r\n", "ws://b/c"),
        (OpeningSample.response(accept: "x"), "\(OpeningError.acceptWrong)"),
    ])
    func everySplitOfTheAnswerAndTheFirstFrames(_ answer: String, _ outcome: String) throws {
        // Two messages of the stream, with a ping between them.
        let frames: [UInt8] = [0x82, 3, 1, 2, 3, 0x89, 1, 9, 0x02, 1, 4, 0x80, 1, 5]
        let bytes = Array(answer.utf8) + frames
        let end = bytes.count - frames.count
        // In three pieces, cut near the end of the answer.
        let late = (max(0, end - 8)...bytes.count).flatMap { first in
            (first...bytes.count).map { [bytes[..<first], bytes[first..<$0], bytes[$0...]] }
        }
        for pieces in Cuts.inTwo(bytes) + late + [Cuts.singly(bytes)] {
            let opened = try self.open(pieces)
            let expected: [UInt8] = outcome == "accepted" ? [1, 2, 3, 4, 5] : []
            let isRight = opened.outcome == outcome && opened.received == expected
            #expect(isRight, "cut into \(pieces.map(\.count)): \(opened)")
            if !isRight { return }
        }
    }

    /// A refusal is final without its body, which may never end.
    @Test(
        arguments: [
            ("HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\n\r\nsorry", 502, "sorry", nil),
            ("HTTP/1.1 401 x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", 401, "hello", nil),
            ("HTTP/1.1 503 x\r\nRetry-After: 60\r\nContent-Length: 100\r\n\r\nbusy", 503, "busy", .seconds(60)),
            ("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: ping\n\n", 200, ": ping\n\n", nil),
            ("HTTP/1.1 403 x\r\n\r\n", 403, "", nil),
        ] as [(String, Int, String, Duration?)]
    )
    func refusalWhoseBodyDoesNotEndIsKnownAfterASecond(
        _ answer: String,
        _ status: Int,
        _ body: String,
        _ retryAfter: Duration?
    ) throws {
        let channel = EmbeddedChannel()
        var refusal: WebSocketRefusal?
        let opening = WebSocketOpening(
            try OpeningSample.request(),
            clock: { OpeningSample.now },
            eventLoop: channel.embeddedEventLoop
        ) {
            if case .failure(let error) = $0 { refusal = error as? WebSocketRefusal }
        }
        try channel.pipeline.syncOperations.addHandler(opening)
        channel.connect(to: try SocketAddress(ipAddress: "127.0.0.1", port: 1), promise: nil)
        // What dribbles in does not prolong the time.
        for byte in answer.utf8 { try channel.writeInbound(ByteBuffer(bytes: [byte])) }
        channel.embeddedEventLoop.advanceTime(by: .milliseconds(999))
        #expect(refusal == nil)
        channel.embeddedEventLoop.advanceTime(by: .milliseconds(1))
        #expect(refusal?.status == status)
        #expect(refusal.map { String(buffer: $0.body) } == body)
        #expect(refusal?.retryAfter == retryAfter)
        _ = try? channel.finish(acceptAlreadyClosed: true)
    }

    @Test func bodyThatEndsInTimeIsWhole() throws {
        let channel = EmbeddedChannel()
        var bodies: [String] = []
        let opening = WebSocketOpening(
            try OpeningSample.request(),
            clock: { OpeningSample.now },
            eventLoop: channel.embeddedEventLoop
        ) {
            if case .failure(let error as WebSocketRefusal) = $0 { bodies.append(String(buffer: error.body)) }
        }
        try channel.pipeline.syncOperations.addHandler(opening)
        channel.connect(to: try SocketAddress(ipAddress: "127.0.0.1", port: 1), promise: nil)
        try channel.writeInbound(ByteBuffer(string: "HTTP/1.1 403 x\r\nContent-Length: 4\r\n\r\nno"))
        channel.embeddedEventLoop.advanceTime(by: .milliseconds(900))
        try channel.writeInbound(ByteBuffer(string: "pe"))
        channel.embeddedEventLoop.advanceTime(by: .seconds(5))
        #expect(bodies == ["nope"])
        _ = try? channel.finish(acceptAlreadyClosed: true)
    }
}
