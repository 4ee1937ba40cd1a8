// SPDX-License-Identifier: Apache-2.0
import NIOCore
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// The encoding of frames into bytes.
@Suite struct FrameLanguageTests {
    /// Whether the body itself is among the written buffers, without a copy.
    private func isSentAsItIs(_ length: Int, isCopiedAgain: Bool) throws -> Bool {
        let rules = FrameRules(SocketConfiguration(servers: [Endpoint(host: "127.0.0.1", port: 1)]))
        var language = rules.language(customFields: nil, isCopiedAgain: isCopiedAgain)
        var bytes = SendBytes()
        let body = ByteBuffer(repeating: 1, count: length)
        let frame = Frame(type: 100, serial: 1, payload: body)
        try #require(language.begin(frame, into: &bytes) == nil)
        var pieces: [ByteBuffer] = []
        while let piece = bytes.popFirst() ?? bytes.takeGathered() { pieces.append(piece) }
        var whole = ByteBuffer()
        FrameEncoder(direction: .request).encode(frame, into: &whole)
        #expect(pieces.flatMap { Array($0.readableBytesView) } == Array(whole.readableBytesView))
        return pieces.contains { piece in
            piece.withUnsafeReadableBytes { piece in
                body.withUnsafeReadableBytes { $0.baseAddress == piece.baseAddress }
            }
        }
    }

    /// TLS and WebSockets copy all bytes again.
    @Test(arguments: [1, 16_384, 16_385, 65_536]) func longBodiesAreCopiedOnceAtMost(_ length: Int) throws {
        #expect(try self.isSentAsItIs(length, isCopiedAgain: true) == (length > 16_384))
        #expect(try !self.isSentAsItIs(length, isCopiedAgain: false))
    }
}
