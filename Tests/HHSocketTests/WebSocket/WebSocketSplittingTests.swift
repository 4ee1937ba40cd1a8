// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Testing

/// Frames that are divided in unusual places.
@Suite struct WebSocketSplittingTests {
    private static let key: UInt32 = 0x01FF_8000

    private static func masked(_ role: WebSocketRole) -> UInt32? { role == .server ? self.key : nil }

    private static func frame(_ first: UInt8, _ payload: [UInt8], to role: WebSocketRole, form: Int? = nil) -> [UInt8] {
        WebSocketDecoderTests.frame(first, payload, key: self.masked(role), form: form)
    }

    @Test(arguments: [WebSocketRole.client, .server])
    func charactersMayBeCutByFragments(_ role: WebSocketRole) {
        let text = Array("aüß€😀z".utf8)
        let message = WebSocketInput.message(.text, ByteBuffer(bytes: text))
        for cut in 0...text.count {
            let bytes =
                Self.frame(0x01, Array(text[..<cut]), to: role) + Self.frame(0x80, Array(text[cut...]), to: role)
            WebSocketDecoderTests.expect(bytes, role: role, [message])
        }
        // Each byte is a fragment.
        var bytes = Self.frame(0x01, [], to: role)
        for byte in text { bytes += Self.frame(0x00, [byte], to: role) }
        bytes += Self.frame(0x80, [], to: role)
        WebSocketDecoderTests.expect(bytes, role: role, [message])
        // The fault is detected at the byte that cannot follow, wherever reads and fragments end.
        let faulty = Self.frame(0x01, [0xF0], to: role) + Self.frame(0x00, [0x9F, 0x98], to: role)
        WebSocketDecoderTests.expect(faulty + Self.frame(0x80, [0x41], to: role), role: role, [], .textNotUTF8)
        WebSocketDecoderTests.expect(faulty + Self.frame(0x80, [], to: role), role: role, [], .textNotUTF8)
    }

    /// Headers of 2 to 14 bytes, cut in three at every two places.
    @Test(arguments: [WebSocketRole.client, .server], [0, 125, 126, 65_535, 65_536])
    func headersMayBeCutAnywhere(_ role: WebSocketRole, _ length: Int) {
        let payload = (0..<length).map { UInt8(truncatingIfNeeded: $0 &* 31) }
        let bytes = Self.frame(0x82, payload, to: role)
        let message = WebSocketInput.message(.binary, ByteBuffer(bytes: payload))
        for first in 1..<min(16, bytes.count) {
            for second in first..<min(17, bytes.count) {
                let reads = [Array(bytes[..<first]), Array(bytes[first..<second]), Array(bytes[second...])]
                for mode in [WebSocketDecoder.Mode.messages(WebSocketLimits()), .stream] {
                    let decoded = WebSocketDecoderTests.decode(reads, role: role, mode: mode)
                    let isRight =
                        mode == .stream
                        ? WebSocketDecoderTests.joined(decoded.inputs)
                            == (payload.isEmpty ? [] : [.bytes(ByteBuffer(bytes: payload))])
                        : decoded.inputs == [message]
                    #expect(isRight && decoded.violation == nil, "cut at \(first) and \(second)")
                    if !isRight { return }
                }
            }
        }
    }

    @Test(arguments: [WebSocketRole.client, .server])
    func violationsDoNotDependOnSplitsInAnyMode(_ role: WebSocketRole) {
        let cases: [([UInt8], WebSocketViolation)] = [
            (WebSocketDecoderTests.frame(0x82, [], key: role == .server ? nil : 1), Self.wrongMask(role)),
            (Self.frame(0xC2, [], to: role), .reservedBits(4)),
            (Self.frame(0xA2, [], to: role), .reservedBits(2)),
            (Self.frame(0x84, [], to: role), .opcode(4)),
            (Self.frame(0x8F, [], to: role), .opcode(15)),
            (Self.frame(0x82, [1], to: role, form: 2), .lengthForm(1)),
            (Self.frame(0x82, [1], to: role, form: 8), .lengthForm(1)),
            ([0x82, role == .server ? 0xFF : 0x7F, 0x80, 0, 0, 0, 0, 0, 0, 0], .lengthSign),
            (Self.frame(0x09, [], to: role), .fragmentedControlFrame),
            (Self.frame(0x89, [UInt8](repeating: 0, count: 126), to: role), .longControlFrame(126)),
            (Self.frame(0x80, [], to: role), .strayContinuation),
            (Self.frame(0x02, [], to: role) + Self.frame(0x82, [], to: role), .interruptedMessage),
            (Self.frame(0x88, [3], to: role), .closePayloadOfOneByte),
            (Self.frame(0x88, [0x03, 0xF7], to: role), .closeCode(1_015)),
            (Self.frame(0x88, [0x03, 0xE8, 0xC3], to: role), .closeReasonNotUTF8),
        ]
        let good = Self.frame(0x82, Array("ok".utf8), to: role)
        let ok = ByteBuffer(string: "ok")
        for (bytes, violation) in cases {
            WebSocketDecoderTests.expect(good + bytes, role: role, [.message(.binary, ok)], violation)
            WebSocketDecoderTests.expect(good + bytes, role: role, mode: .stream, [.bytes(ok)], violation)
        }
    }

    private static func wrongMask(_ role: WebSocketRole) -> WebSocketViolation {
        role == .server ? .unmaskedFrame : .maskedFrame
    }

    /// The buffer of a read is released once all of it has been taken, even if a part of a header remains.
    @Test func buffersOfReadsAreReleased() throws {
        for (role, rest) in [(WebSocketRole.server, 0), (.client, 0), (.server, 3), (.client, 1)] {
            var decoder = WebSocketDecoder(role: role, mode: .messages(WebSocketLimits()), account: nil)
            let frame = Self.frame(0x82, [1, 2, 3], to: role)
            var read = ByteBufferAllocator().buffer(capacity: 65_536)
            read.writeBytes(frame + Self.frame(0x89, [9], to: role).prefix(rest))
            decoder.append(read)
            #expect(try decoder.next() == .message(.binary, ByteBuffer(bytes: [1, 2, 3])))
            #expect(try decoder.next() == nil)
            #expect(decoder.bufferedBytes == rest)
            // Writing to a shared buffer moves it.
            let address = read.withUnsafeReadableBytes { $0.baseAddress }
            read.writeInteger(UInt8(0))
            #expect(read.withUnsafeReadableBytes { $0.baseAddress } == address)
            decoder.append(ByteBuffer(bytes: Self.frame(0x89, [9], to: role).dropFirst(rest)))
            #expect(try decoder.next() == .ping(ByteBuffer(bytes: [9])))
        }
    }
}
