// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import TestSupport
import Testing

@testable import HHSocketTesting

@Suite struct WebSocketFrameTests {
    private func bytes(_ frame: WebSocketFrame, masks: Bool = false) -> [UInt8] {
        var bytes = ByteBuffer()
        frame.encode(masks: masks, into: &bytes)
        return Array(bytes.readableBytesView)
    }

    /// The examples of RFC 6455, section 5.7, and deliberately wrong frames.
    @Test func bytesAreThoseOfTheRFC() {
        #expect(self.bytes(.text("Hello")) == [0x81, 0x05, 0x48, 0x65, 0x6C, 0x6C, 0x6F])
        let masked: [UInt8] = [0x81, 0x85, 0x37, 0xFA, 0x21, 0x3D, 0x7F, 0x9F, 0x4D, 0x51, 0x58]
        #expect(self.bytes(.text("Hello"), masks: true) == masked)
        #expect(self.bytes(.text("Hello").masked()) == masked)
        #expect(self.bytes(.text("Hello").unmasked(), masks: true) == self.bytes(.text("Hello")))
        #expect(self.bytes(.text("Hel").unfinished()) == [0x01, 0x03, 0x48, 0x65, 0x6C])
        #expect(self.bytes(.continuation("lo")) == [0x80, 0x02, 0x6C, 0x6F])
        #expect(self.bytes(.binary(Array(repeating: 0, count: 256))).prefix(4) == [0x82, 0x7E, 0x01, 0x00])
        #expect(
            self.bytes(.binary(Array(repeating: 0, count: 65_536))).prefix(10) == [0x82, 0x7F, 0, 0, 0, 0, 0, 1, 0, 0]
        )
        #expect(self.bytes(.close(code: 1_005, reason: "no")) == [0x88, 0x04, 0x03, 0xED, 0x6E, 0x6F])
        #expect(self.bytes(.close()) == [0x88, 0x00])
        #expect(self.bytes(WebSocketFrame(.init(rawValue: 11)).reserving(bits: 0b101)) == [0xDB, 0x00])
        #expect(self.bytes(.ping().announcing(length: .max)) == [0x89, 0x7F] + Array(repeating: 0xFF, count: 8))
        #expect(self.bytes(.text("x").measured(in: .bits16)) == [0x81, 0x7E, 0x00, 0x01, 0x78])
    }

    @Test(arguments: [0, 1, 7, 8, 9, 15, 16, 1_000, 70_000]) func ourDecoderReadsThem(length: Int) throws {
        var decoder = WebSocketDecoder(role: .server, mode: .messages(WebSocketLimits()), account: nil)
        let payload = ByteBuffer(bytes: (0..<length).map { UInt8(truncatingIfNeeded: $0 &* 31) })
        let frames = [WebSocketFrame.binary(payload)] + WebSocketFrame.binary(payload).fragmented(length: 3)
        for frame in frames { decoder.append(ByteBuffer(bytes: self.bytes(frame, masks: true))) }
        #expect(try decoder.next() == .message(.binary, payload))
        #expect(try decoder.next() == .message(.binary, payload))
        #expect(try decoder.next() == nil)
    }

    @Test(arguments: [1_000, 1 << 20, (3 << 20) + 5]) func bombsInflateToTheirLength(length: Int) throws {
        let bomb = WebSocketFrame.deflateBomb(inflatingTo: length)
        #expect(bomb.payload.readableBytes < max(100, length / 900))
        var limits = WebSocketLimits()
        limits.maximumMessageLength = length
        for isAllowed in [true, false] {
            if !isAllowed { limits.maximumMessageLength -= 1 }
            var decoder = WebSocketDecoder(
                role: .server,
                mode: .messages(limits),
                deflate: DeflateAgreement(),
                account: nil
            )
            decoder.append(ByteBuffer(bytes: self.bytes(bomb, masks: true)))
            if isAllowed {
                #expect(try decoder.next() == .message(.binary, ByteBuffer(repeating: 0, count: length)))
            } else {
                #expect(throws: WebSocketViolation.self) { try decoder.next() }
            }
        }
    }
}
