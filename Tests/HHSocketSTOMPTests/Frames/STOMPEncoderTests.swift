// SPDX-License-Identifier: Apache-2.0
import NIOCore
import TestSupport
import Testing

@testable import HHSocketSTOMP

/// Frames are encoded, or rejected before any byte is written.
@Suite struct STOMPEncoderTests {
    struct Golden: CustomStringConvertible, Sendable {
        var versions: [STOMPVersion?]
        var frame: STOMPFrame
        var bytes: String

        var description: String { "\(self.frame)" }
    }

    static let all: [STOMPVersion?] = [nil, .v1_0, .v1_1, .v1_2]
    static let agreed: [STOMPVersion?] = [.v1_0, .v1_1, .v1_2]

    static let golden: [Golden] = [
        Golden(versions: all, frame: STOMPFrame(.begin), bytes: "BEGIN\n\n\0"),
        Golden(
            versions: all,
            frame: STOMPFrame(.connect, ["accept-version": "1.2", "host": "/", "passcode": "a:b\\n c "]),
            bytes: "CONNECT\naccept-version:1.2\nhost:/\npasscode:a:b\\n c \n\n\0"
        ),
        // Headers are neither padded nor reordered, and repeated as given.
        Golden(
            versions: agreed,
            frame: STOMPFrame(.subscribe, ["z": " 1 ", "a": "", "z": "2", "Z": "3"]),
            bytes: "SUBSCRIBE\nz: 1 \na:\nz:2\nZ:3\n\n\0"
        ),
        Golden(
            versions: agreed,
            frame: STOMPFrame(.send, ["destination": "/queue/a"], text: "two\nlines\n"),
            bytes: "SEND\ndestination:/queue/a\ncontent-length:10\n\ntwo\nlines\n\0"
        ),
        Golden(
            versions: agreed,
            frame: STOMPFrame(.send, text: "a\0b\0"),
            bytes: "SEND\ncontent-length:4\n\na\0b\0\0"
        ),
        Golden(
            versions: agreed,
            frame: STOMPFrame(.send, ["content-length": "2", "a": "b"], text: "ab"),
            bytes: "SEND\ncontent-length:2\na:b\n\nab\0"
        ),
        Golden(
            versions: agreed,
            frame: STOMPFrame(.send, ["content-length": "002", "content-length": "7"], text: "ab"),
            bytes: "SEND\ncontent-length:002\ncontent-length:7\n\nab\0"
        ),
        Golden(
            versions: agreed,
            frame: STOMPFrame(.send, ["content-length": "0"]),
            bytes: "SEND\ncontent-length:0\n\n\0"
        ),
        Golden(
            versions: all,
            frame: STOMPFrame(.error, ["message": "no"], text: "€"),
            bytes: "ERROR\nmessage:no\ncontent-length:3\n\n€\0"
        ),
        Golden(
            versions: [.v1_0],
            frame: STOMPFrame(.send, ["a": "b:c\\n"], text: ""),
            bytes: "SEND\na:b:c\\n\n\n\0"
        ),
        Golden(
            versions: [.v1_1],
            frame: STOMPFrame(.send, ["a:\n\\": "b:c\n\\d\\n"]),
            bytes: "SEND\na\\c\\n\\\\:b\\cc\\n\\\\d\\\\n\n\n\0"
        ),
        Golden(
            versions: [.v1_2],
            frame: STOMPFrame(.send, ["a:\r\n\\": "b:c\r\n\\d"]),
            bytes: "SEND\na\\c\\r\\n\\\\:b\\cc\\r\\n\\\\d\n\n\0"
        ),
        Golden(
            versions: [.v1_1, .v1_2],
            frame: STOMPFrame(.connected, ["version": "1.2", "server": "a:b\\c"]),
            bytes: "CONNECTED\nversion:1.2\nserver:a:b\\c\n\n\0"
        ),
        Golden(
            versions: agreed,
            frame: {
                var frame = STOMPFrame(.send, ["a": "b"], text: "text")
                frame.omitsContentLength = true
                return frame
            }(),
            bytes: "SEND\na:b\n\ntext\0"
        ),
    ]

    @Test(arguments: golden) func frameIsWrittenAsItIs(golden: Golden) throws {
        for version in golden.versions {
            #expect(STOMPEncoder.refusal(of: golden.frame, version: version) == nil)
            #expect(try golden.frame.encoded(version) == golden.bytes)
            // In pieces: the head, then the body, then a zero byte.
            var pieces = ByteBuffer()
            try STOMPEncoder.encodeHead(of: golden.frame, version: version, into: &pieces)
            pieces.writeImmutableBuffer(golden.frame.body)
            pieces.writeInteger(STOMPEncoder.end)
            #expect(String(buffer: pieces) == golden.bytes)
        }
        let escapes = golden.bytes.utf8.count - STOMPEncoder.estimatedLength(of: golden.frame)
        #expect((0...10).contains(escapes))
    }

    // MARK: Refusals

    struct Refused: CustomStringConvertible, Sendable {
        var versions: [STOMPVersion?]
        var frame: STOMPFrame
        var reason: STOMPRefusal.Reason
        var header: String?
        var text: String

        init(
            _ versions: [STOMPVersion?],
            _ frame: STOMPFrame,
            _ reason: STOMPRefusal.Reason,
            _ header: String?,
            _ text: String
        ) {
            self.versions = versions
            self.frame = frame
            self.reason = reason
            self.header = header
            self.text = text
        }

        init(_ versions: [STOMPVersion?], _ frame: STOMPFrame, _ reason: STOMPRefusal.Reason, _ text: String) {
            self.init(versions, frame, reason, nil, text)
        }

        var description: String { "\(self.reason) \(self.frame)" }
    }

    static func omitting(_ text: String) -> STOMPFrame {
        var frame = STOMPFrame(.send, text: text)
        frame.omitsContentLength = true
        return frame
    }

    static let refused: [Refused] = [
        Refused(
            all,
            STOMPFrame(.init(rawValue: "")),
            .invalidCommand,
            "\"\" is not a command, which has upper-case letters, digits, - and _, and begins with a letter"
        ),
        Refused(
            all,
            STOMPFrame(.init(rawValue: "SEND\nx:y")),
            .invalidCommand,
            "\"SEND\\nx:y\" is not a command, which has upper-case letters, digits, - and _, and begins with a letter"
        ),
        Refused(
            all,
            STOMPFrame(.init(rawValue: "send")),
            .invalidCommand,
            "\"send\" is not a command, which has upper-case letters, digits, - and _, and begins with a letter"
        ),
        Refused(all, STOMPFrame(.send, ["": "x"]), .emptyHeaderName, "", "a header has no name"),
        Refused(
            all,
            STOMPFrame(.send, ["a": "x\0secret"]),
            .nulInHeader,
            "a",
            "the value of the header \"a\" has a zero byte, which no version can express"
        ),
        Refused(
            all,
            STOMPFrame(.send, ["a\0b": "x"]),
            .nulInHeader,
            "a\0b",
            "the name of the header \"a\\0b\" has a zero byte, which no version can express"
        ),
        Refused(
            [nil, .v1_0],
            STOMPFrame(.send, ["a": "x\nsecret"]),
            .unescapableHeader,
            "a",
            "the value of the header \"a\" has a line feed, which STOMP 1.0 cannot express: it has no escapes"
        ),
        Refused(
            [nil, .v1_0],
            STOMPFrame(.send, ["a": "x\r"]),
            .unescapableHeader,
            "a",
            "the value of the header \"a\" has a carriage return, which STOMP 1.0 cannot express: it has no escapes"
        ),
        Refused(
            [nil, .v1_0],
            STOMPFrame(.send, ["a:b": "x"]),
            .unescapableHeader,
            "a:b",
            "the name of the header \"a:b\" has a colon, which STOMP 1.0 cannot express: it has no escapes"
        ),
        Refused(
            all,
            STOMPFrame(.connect, ["passcode": "x\nsecret"]),
            .unescapableHeader,
            "passcode",
            "the value of the header \"passcode\" has a line feed, which CONNECT cannot express: "
                + "it has no escapes in any version"
        ),
        Refused(
            all,
            STOMPFrame(.stomp, ["a:b": "x"]),
            .unescapableHeader,
            "a:b",
            "the name of the header \"a:b\" has a colon, which STOMP cannot express: "
                + "it has no escapes in any version"
        ),
        Refused(
            all,
            STOMPFrame(.connected, ["a": "x\r"]),
            .unescapableHeader,
            "a",
            "the value of the header \"a\" has a carriage return, which CONNECTED cannot express: "
                + "it has no escapes in any version"
        ),
        Refused(
            [.v1_1],
            STOMPFrame(.send, ["a": "x", "b\r": "y"]),
            .unescapableHeader,
            "b\r",
            "the name of the header \"b\\r\" has a carriage return, which STOMP 1.1 cannot express"
        ),
        Refused(
            agreed,
            STOMPFrame(.send, ["content-length": "3"], text: "body"),
            .wrongContentLength,
            "content-length",
            "the header \"content-length\" is not the length of the body, which has 4 bytes; "
                + "without it the right one is sent"
        ),
        Refused(
            agreed,
            STOMPFrame(.send, ["content-length": " 4"], text: "body"),
            .wrongContentLength,
            "content-length",
            "the header \"content-length\" is not the length of the body, which has 4 bytes; "
                + "without it the right one is sent"
        ),
        Refused(
            all,
            STOMPFrame(.begin, ["content-length": "1"]),
            .wrongContentLength,
            "content-length",
            "the header \"content-length\" is not the length of the body, which has 0 bytes; "
                + "without it the right one is sent"
        ),
        Refused(
            [nil, .v1_1, .v1_2],
            STOMPFrame(.begin, text: "body"),
            .unexpectedBody,
            "a frame BEGIN has a body: only SEND, MESSAGE and ERROR may have one"
        ),
        Refused(
            [nil, .v1_1, .v1_2],
            STOMPFrame(.connect, text: "body"),
            .unexpectedBody,
            "a frame CONNECT has a body: only SEND, MESSAGE and ERROR may have one"
        ),
        Refused(
            agreed,
            omitting("a\0b"),
            .nulInBody,
            "the body has a zero byte, which would end it: it needs a content-length"
        ),
    ]

    @Test(arguments: refused) func framesThatAVersionCannotExpressAreRefusedBeforeWriting(refused: Refused) throws {
        for version in refused.versions {
            let refusal = try #require(STOMPEncoder.refusal(of: refused.frame, version: version))
            #expect(refusal.reason == refused.reason)
            #expect(refusal.header == refused.header)
            #expect(refusal.description == refused.text)
            #expect(refusal.reason.isLimit == false)
            var bytes = ByteBuffer(string: "before")
            #expect(throws: refusal) { try STOMPEncoder.encode(refused.frame, version: version, into: &bytes) }
            #expect(throws: refusal) { try STOMPEncoder.encodeHead(of: refused.frame, version: version, into: &bytes) }
            #expect(String(buffer: bytes) == "before")
        }
    }

    @Test func limitsAreThoseOfTheDecoder() throws {
        var limits = STOMPLimits()
        limits.maximumHeaders = 3
        limits.maximumHeaderLength = 34
        limits.maximumBodyLength = 5
        // With the escape of the line feed.
        let fits = STOMPFrame(.message, ["a": "\n", "b": ""], text: "12345")
        let bytes = try fits.encoded(.v1_2, limits: limits)
        #expect(bytes.utf8.count == 8 + 5 + 3 + 17 + 1 + 6)
        #expect(DecodedFrames(bytes, .v1_2, limits: limits).frames.count == 1)
        var longer = fits
        longer.headers["b"] = "1"
        #expect(try longer.encoded(.v1_2).utf8.count == 41)
        let tooLong = STOMPEncoder.refusal(of: longer, version: .v1_2, limits: limits)
        #expect(tooLong?.reason == .headersTooLong && tooLong?.reason.isLimit == true)
        #expect(
            tooLong?.description
                == "a command and headers of 35 bytes are over the limit of 34"
        )
        var more = fits
        more.headers = ["a": "", "b": "", "c": ""]
        #expect(
            STOMPEncoder.refusal(of: more, version: .v1_2, limits: limits)?.description
                == "a frame of 4 headers is over the limit of 3"
        )
        more.omitsContentLength = true
        #expect(STOMPEncoder.refusal(of: more, version: .v1_2, limits: limits) == nil)
        more.body.writeString("6")
        #expect(
            STOMPEncoder.refusal(of: more, version: .v1_2, limits: limits)?.description
                == "a body of 6 bytes is over the limit of 5 (maximumBodyLength)"
        )
    }

    // MARK: Round trips

    /// Frames with all features of a version are read as they were written, however they are split.
    @Test(arguments: STOMPVersion.allCases) func randomFramesAreReadAsTheyWereWritten(version: STOMPVersion) throws {
        var generator = SeededGenerator(seed: 12)
        let letters: [UInt8] = Array("ab :\\n\\\\ä€/,-".utf8) + (version == .v1_0 ? [] : [0x0A]) + [0xFF]
        let allLetters = letters + (version == .v1_2 ? [0x0D] : [])
        func text(_ alphabet: [UInt8], _ lengths: ClosedRange<Int>, _ generator: inout SeededGenerator) -> String {
            let count = Int.random(in: lengths, using: &generator)
            let bytes = (0..<count).map { _ in alphabet.randomElement(using: &generator) ?? 0x61 }
            return String(decoding: bytes, as: UTF8.self)
        }
        for _ in 0..<300 {
            var frames: [STOMPFrame] = []
            var bytes = ByteBuffer()
            for _ in 0..<Int.random(in: 1...6, using: &generator) {
                var frame = STOMPFrame([.send, .message, .error].randomElement(using: &generator) ?? .send)
                for _ in 0..<Int.random(in: 0...6, using: &generator) {
                    let names = version == .v1_0 ? allLetters.filter { $0 != 0x3A } : allLetters
                    frame.headers.add(name: text(names, 1...8, &generator), value: text(allLetters, 0...40, &generator))
                }
                frame.body.writeBytes(generator.bytes(Int.random(in: 0...200, using: &generator)))
                if frame.body.readableBytes > 0 {
                    frame.headers["content-length"] = "\(frame.body.readableBytes)"
                }
                try STOMPEncoder.encode(frame, version: version, into: &bytes)
                if Bool.random(using: &generator) { bytes.writeString("\n\r\n") }
                frames.append(frame)
            }
            let stream = Array(bytes.readableBytesView)
            let whole = DecodedFrames([stream[...]], version)
            #expect(whole.frames == frames && whole.violation == nil && whole.rest == 0)
            #expect(DecodedFrames(generator.pieces(of: stream), version) == whole)
        }
    }

    /// Random bytes with meaningful parts: their frames or their fault do not depend on the division.
    @Test(arguments: all) func randomStreamsMeanTheSameInEverySplit(version: STOMPVersion?) {
        var generator = SeededGenerator(seed: 13)
        let parts = [
            "MESSAGE", "CONNECTED", "SEND", "RECEIPT", "\n", "\n", "\n\n", "\r\n", "\r", "\0", "\0", "\n\n\0", "a:b\n",
            "version:1.1\n", "content-length:3\n", ":", "\\", "\\n", "\\c", "x", "body", "€",
        ]
        var limits = STOMPLimits()
        limits.maximumHeaders = 3
        limits.maximumHeaderLength = 60
        limits.maximumBodyLength = 12
        for _ in 0..<3_000 {
            let stream = (0..<Int.random(in: 1...30, using: &generator)).flatMap { _ in
                Array((parts.randomElement(using: &generator) ?? "").utf8)
            }
            let whole = DecodedFrames([stream[...]], version, limits: limits)
            #expect(DecodedFrames(generator.pieces(of: stream, longest: 9), version, limits: limits) == whole)
            #expect(DecodedFrames(stream.indices.map { stream[$0...$0] }, version, limits: limits) == whole)
        }
    }
}
