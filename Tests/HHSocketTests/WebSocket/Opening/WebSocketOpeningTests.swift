// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import NIOCore
import NIOEmbedded
import Testing

@testable import HHSocket

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
                #expect(throws: Never.self) { try operations.addHandler(WebSocketCarriage(role: .client)) }
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
}
