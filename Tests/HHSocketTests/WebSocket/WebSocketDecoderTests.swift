// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Testing

@Suite struct WebSocketDecoderTests {
    private static let key: UInt32 = 0x37FA_213D

    /// The bytes of a frame, valid or not.
    static func frame(
        _ first: UInt8,
        _ payload: [UInt8],
        key: UInt32? = WebSocketDecoderTests.key,
        form: Int? = nil
    ) -> [UInt8] {
        let mask: UInt8 = key == nil ? 0 : 0x80
        var out = [first]
        let length = payload.count
        switch form ?? (length <= 125 ? 0 : length <= 0xFFFF ? 2 : 8) {
        case 0: out.append(mask | UInt8(length))
        case 2: out += [mask | 126, UInt8(length >> 8), UInt8(length & 0xFF)]
        default: out += [mask | 127] + (0..<8).reversed().map { UInt8(truncatingIfNeeded: length >> ($0 * 8)) }
        }
        guard let key else { return out + payload }
        let bytes = (0..<4).reversed().map { UInt8(truncatingIfNeeded: key >> ($0 * 8)) }
        return out + bytes + payload.enumerated().map { $1 ^ bytes[$0 & 3] }
    }

    /// Decodes these reads. Returns the output, and the violation at the end.
    static func decode(
        _ reads: [[UInt8]],
        role: WebSocketRole = .server,
        mode: WebSocketDecoder.Mode = .messages(WebSocketLimits())
    ) -> (inputs: [WebSocketInput], violation: WebSocketViolation?) {
        var decoder = WebSocketDecoder(role: role, mode: mode, account: nil)
        var inputs: [WebSocketInput] = []
        for read in reads {
            decoder.append(ByteBuffer(bytes: read))
            do throws(WebSocketViolation) {
                while let input = try decoder.next() { inputs.append(input) }
            } catch {
                #expect(throws: error) { try decoder.next() }
                decoder.append(ByteBuffer(bytes: read))
                #expect(throws: error) { try decoder.next() }
                #expect(decoder.bufferedBytes == 0)
                return (inputs, error)
            }
        }
        return (inputs, nil)
    }

    /// Joins the bytes of a stream, whose pieces depend on the reads.
    static func joined(_ inputs: [WebSocketInput]) -> [WebSocketInput] {
        inputs.reduce(into: []) { result, input in
            if case .bytes(var next) = input, case .bytes(var last)? = result.last {
                last.writeBuffer(&next)
                result[result.count - 1] = .bytes(last)
            } else {
                result.append(input)
            }
        }
    }

    /// Expects the output of the bytes, however they are divided.
    static func expect(
        _ bytes: [UInt8],
        role: WebSocketRole = .server,
        mode: WebSocketDecoder.Mode = .messages(WebSocketLimits()),
        _ inputs: [WebSocketInput],
        _ violation: WebSocketViolation? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        func check(_ reads: [[UInt8]]) -> Bool {
            let decoded = self.decode(reads, role: role, mode: mode)
            return self.joined(decoded.inputs) == inputs && decoded.violation == violation
        }
        #expect(check([bytes]), sourceLocation: sourceLocation)
        #expect(check(bytes.map { [$0] }), "byte by byte", sourceLocation: sourceLocation)
        for first in 1..<max(bytes.count, 2) where first < bytes.count {
            let isRight = check([Array(bytes[..<first]), Array(bytes[first...])])
            #expect(isRight, "cut at \(first)", sourceLocation: sourceLocation)
            guard bytes.count <= 60 else { continue }
            for second in first..<bytes.count {
                let reads = [Array(bytes[..<first]), Array(bytes[first..<second]), Array(bytes[second...])]
                #expect(check(reads), "cut at \(first) and \(second)", sourceLocation: sourceLocation)
            }
        }
    }

    private func text(_ text: String) -> WebSocketInput { .message(.text, ByteBuffer(string: text)) }

    // RFC 6455, section 5.7.
    @Test func examplesOfTheStandard() {
        Self.expect([0x81, 0x05, 0x48, 0x65, 0x6C, 0x6C, 0x6F], role: .client, [self.text("Hello")])
        let masked: [UInt8] = [0x81, 0x85, 0x37, 0xFA, 0x21, 0x3D, 0x7F, 0x9F, 0x4D, 0x51, 0x58]
        Self.expect(masked, [self.text("Hello")])
        Self.expect(
            [0x01, 0x03, 0x48, 0x65, 0x6C, 0x80, 0x02, 0x6C, 0x6F],
            role: .client,
            [self.text("Hello")]
        )
        Self.expect([0x89, 0x05, 0x48, 0x65, 0x6C, 0x6C, 0x6F], role: .client, [.ping(ByteBuffer(string: "Hello"))])
        Self.expect(
            [0x8A, 0x85, 0x37, 0xFA, 0x21, 0x3D, 0x7F, 0x9F, 0x4D, 0x51, 0x58],
            [.pong(ByteBuffer(string: "Hello"))]
        )
    }

    @Test(arguments: [0, 1, 125, 126, 127, 1_023, 1_024, 1_025, 65_535, 65_536, 100_000])
    func lengthsOnBothSides(_ length: Int) {
        let payload = (0..<length).map { UInt8(truncatingIfNeeded: $0 &* 31) }
        let message = WebSocketInput.message(.binary, ByteBuffer(bytes: payload))
        for (role, key) in [(WebSocketRole.server, UInt32(0x0102_0304) as UInt32?), (.client, nil)] {
            let bytes = Self.frame(0x82, payload, key: key)
            let glued = Self.decode([bytes + bytes], role: role)
            #expect(glued.inputs == [message, message] && glued.violation == nil)
            for cut in [1, 2, 3, 4, 9, 10, 14, bytes.count / 2, bytes.count - 1] where (1..<bytes.count).contains(cut) {
                let decoded = Self.decode([Array(bytes[..<cut]), Array(bytes[cut...])], role: role)
                #expect(decoded.inputs == [message] && decoded.violation == nil, "cut at \(cut)")
            }
        }
    }

    @Test func controlFramesBetweenFragments() {
        let bytes =
            Self.frame(0x01, Array("un".utf8)) + Self.frame(0x89, [1]) + Self.frame(0x00, [])
            + Self.frame(0x8A, []) + Self.frame(0x80, Array("it".utf8))
        Self.expect(bytes, [.ping(ByteBuffer(bytes: [1])), .pong(ByteBuffer()), self.text("unit")])
    }

    @Test func violationsAfterAMessage() {
        let good = Self.frame(0x81, Array("ok".utf8))
        let cases: [([UInt8], WebSocketViolation)] = [
            (Self.frame(0x81, [], key: nil), .unmaskedFrame),
            (Self.frame(0xC1, []), .reservedBits(4)),
            (Self.frame(0xA1, []), .reservedBits(2)),
            (Self.frame(0x91, []), .reservedBits(1)),
            (Self.frame(0xC9, []), .reservedBits(4)),
            (Self.frame(0x83, []), .opcode(3)),
            (Self.frame(0x8B, []), .opcode(11)),
            (Self.frame(0x82, [1], form: 2), .lengthForm(1)),
            (Self.frame(0x82, [1], form: 8), .lengthForm(1)),
            ([0x82, 0xFF, 0x80, 0, 0, 0, 0, 0, 0, 0], .lengthSign),
            (Self.frame(0x09, []), .fragmentedControlFrame),
            (Self.frame(0x88, [UInt8](repeating: 0, count: 126)), .longControlFrame(126)),
            (Self.frame(0x80, []), .strayContinuation),
            (Self.frame(0x02, []) + Self.frame(0x82, []), .interruptedMessage),
            (Self.frame(0x88, [3]), .closePayloadOfOneByte),
            (Self.frame(0x88, [0x03, 0xEC]), .closeCode(1_004)),
            (Self.frame(0x88, [0x03, 0xED]), .closeCode(1_005)),
            (Self.frame(0x88, [0x03, 0xEE]), .closeCode(1_006)),
            (Self.frame(0x88, [0x03, 0xF7]), .closeCode(1_015)),
            (Self.frame(0x88, [0x0B, 0xB7]), .closeCode(2_999)),
            (Self.frame(0x88, [0x13, 0x88]), .closeCode(5_000)),
            (Self.frame(0x88, [0x03, 0xE8, 0xFF]), .closeReasonNotUTF8),
            (Self.frame(0x88, [0x03, 0xE8, 0xC3]), .closeReasonNotUTF8),
            (Self.frame(0x81, [0xC3]), .textNotUTF8),
            (Self.frame(0x01, [0xC3]) + Self.frame(0x80, [0x28]), .textNotUTF8),
        ]
        for (bytes, violation) in cases {
            Self.expect(good + bytes, [self.text("ok")], violation)
            #expect(!violation.description.isEmpty)
        }
        Self.expect(Self.frame(0x82, []), role: .client, [], .maskedFrame)
        #expect(cases.map(\.1.code).filter { $0 == 1_007 }.count == 4)
    }

    @Test func textFailsWithTheByteThatIsWrong() {
        // A frame of 100 bytes, of which only three have arrived.
        let bytes = Array(Self.frame(0x81, Array("ok".utf8) + [0xFF] + [UInt8](repeating: 0x61, count: 97))[..<9])
        #expect(Self.decode([bytes]).violation == .textNotUTF8)
    }

    @Test func limits() {
        var limits = WebSocketLimits()
        limits.maximumMessageLength = 10
        limits.maximumFragments = 3
        let mode = WebSocketDecoder.Mode.messages(limits)
        let ten = [UInt8](repeating: 7, count: 10)
        Self.expect(Self.frame(0x82, ten), mode: mode, [.message(.binary, ByteBuffer(bytes: ten))])
        // The limit is exceeded in the header.
        let header = Array(Self.frame(0x82, ten + [7])[..<6])
        #expect(Self.decode([header], mode: mode).violation == .messageTooLong(length: 11, limit: 10))
        Self.expect(
            Self.frame(0x02, ten) + Self.frame(0x80, [1]),
            mode: mode,
            [],
            .messageTooLong(length: 11, limit: 10)
        )
        let fragments = Self.frame(0x02, [1]) + Self.frame(0x00, [2]) + Self.frame(0x00, [])
        Self.expect(fragments + Self.frame(0x80, []), mode: mode, [], .tooManyFragments(limit: 3))
        let longest: [UInt8] = [0x82, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0]
        #expect(Self.decode([longest], mode: mode).violation?.code == 1_009)
        #expect(Self.decode([longest + ten], mode: .stream).inputs == [.bytes(ByteBuffer(bytes: ten))])
    }

    @Test func closeEndsEverything() {
        let close = WebSocketInput.close(WebSocketClose(code: 1_000, reason: "done"))
        let bytes = Self.frame(0x88, [0x03, 0xE8] + Array("done".utf8)) + Self.frame(0x83, [1, 2])
        Self.expect(bytes, [close])
        Self.expect(Self.frame(0x02, [1]) + Self.frame(0x88, []), [.close(WebSocketClose())])
        for code in [1_000, 1_003, 1_007, 1_014, 3_000, 4_999] as [UInt16] {
            let payload = [UInt8(code >> 8), UInt8(code & 0xFF)]
            Self.expect(Self.frame(0x88, payload), [.close(WebSocketClose(code: code))])
        }
    }

    @Test func streamTakesBytesAsTheyCome() {
        let bytes = Self.frame(0x02, [1, 2, 3]) + Self.frame(0x89, [9]) + Self.frame(0x80, [4]) + Self.frame(0x82, [5])
        Self.expect(
            bytes,
            mode: .stream,
            [.bytes(ByteBuffer(bytes: [1, 2, 3])), .ping(ByteBuffer(bytes: [9])), .bytes(ByteBuffer(bytes: [4, 5]))]
        )
        Self.expect(
            Self.frame(0x82, [1]) + Self.frame(0x81, [2]),
            mode: .stream,
            [.bytes(ByteBuffer(bytes: [1]))],
            .unexpectedText
        )
    }
}
