// SPDX-License-Identifier: Apache-2.0
import NIOCore
import TestSupport
import Testing

@testable import HHSocketSTOMP

/// The bytes of the three versions, however they are split.
@Suite struct STOMPDecoderTests {
    struct Golden: CustomStringConvertible, Sendable {
        var description: String
        var version: STOMPVersion?
        var stream: String
        var frames: [STOMPFrame]
        var rest = 0

        init(_ description: String, _ version: STOMPVersion?, _ stream: String, _ frames: [STOMPFrame], rest: Int = 0) {
            self.description = "\(version.map { "\($0)" } ?? "not agreed"): \(description)"
            self.version = version
            self.stream = stream
            self.frames = frames
            self.rest = rest
        }
    }

    static func golden(_ version: STOMPVersion) -> [Golden] {
        [
            Golden("nothing", version, "", []),
            Golden("a frame without headers", version, "RECEIPT\n\n\0", [STOMPFrame(.receipt)]),
            Golden(
                "a body up to the zero byte",
                version,
                "MESSAGE\ndestination:/queue/a\n\nhello\nqueue a\n\n\0",
                [STOMPFrame(.message, ["destination": "/queue/a"], text: "hello\nqueue a\n\n")]
            ),
            Golden(
                "a body with zero bytes",
                version,
                "MESSAGE\ncontent-length:5\n\na\0b\0c\0",
                [STOMPFrame(.message, ["content-length": "5"], text: "a\0b\0c")]
            ),
            Golden(
                "a body of no bytes",
                version,
                "MESSAGE\ncontent-length:0\n\n\0",
                [STOMPFrame(.message, ["content-length": "0"])]
            ),
            Golden(
                "a body like a frame",
                version,
                "MESSAGE\ncontent-length:10\n\nRECEIPT\n\n\0\0",
                [STOMPFrame(.message, ["content-length": "10"], text: "RECEIPT\n\n\0")]
            ),
            Golden(
                "ends of lines between frames",
                version,
                "\n\r\n\nRECEIPT\na:b\n\n\0\n\r\n\n\nRECEIPT\n\n\0\r\n\r",
                [STOMPFrame(.receipt, ["a": "b"]), STOMPFrame(.receipt)],
                rest: 1
            ),
            Golden(
                "several frames, and the beginning of one",
                version,
                "RECEIPT\na:b\n\n\0RECEIPT\nc:d\n\n\0MESSAGE\n",
                [STOMPFrame(.receipt, ["a": "b"]), STOMPFrame(.receipt, ["c": "d"])],
                rest: 8
            ),
            Golden(
                "colons in a value, spaces around it, and none",
                version,
                "MESSAGE\na: b : c \nurl:http://a:1/\ne:\n n :x\n\n\0",
                [STOMPFrame(.message, ["a": " b : c ", "url": "http://a:1/", "e": "", " n ": "x"])]
            ),
            Golden(
                "repeated headers and names in other letters",
                version,
                "MESSAGE\nfoo:World\nfoo:Hello\nFoo:x\n\n\0",
                [STOMPFrame(.message, ["foo": "World", "foo": "Hello", "Foo": "x"])]
            ),
            Golden(
                "the first content-length counts",
                version,
                "MESSAGE\ncontent-length:1\ncontent-length:2\n\n\0\0",
                [STOMPFrame(.message, ["content-length": "1", "content-length": "2"], text: "\0")]
            ),
            Golden(
                "Content-Length in other letters is another header",
                version,
                "MESSAGE\nContent-Length:1\n\n\0",
                [STOMPFrame(.message, ["Content-Length": "1"])]
            ),
            Golden(
                "text that is not ASCII",
                version,
                "MESSAGE\nä:€\n\n🎉\0",
                [STOMPFrame(.message, ["ä": "€"], text: "🎉")]
            ),
            Golden(
                "a body that is valid base64 is text",
                version,
                "MESSAGE\n\naGVsbG8=\0",
                [STOMPFrame(.message, text: "aGVsbG8=")]
            ),
            Golden("a command of others", version, "KEEP-ALIVE_2\n\n\0", [STOMPFrame(.init(rawValue: "KEEP-ALIVE_2"))]),
            Golden(
                "an unescaped CONNECTED",
                version,
                "CONNECTED\nversion:1.2\nserver:a\\b\\nc\n\n\0",
                [STOMPFrame(.connected, ["version": "1.2", "server": "a\\b\\nc"])]
            ),
        ]
    }

    static let golden: [Golden] =
        STOMPVersion.allCases.flatMap(golden) + [
            // Ends of lines.
            Golden(
                "CR LF",
                .v1_2,
                "MESSAGE\r\na:b\r\nc:\r\n\r\nx\r\n\0\r\n",
                [
                    STOMPFrame(.message, ["a": "b", "c": ""], text: "x\r\n")
                ]
            ),
            Golden("LF and CR LF", .v1_2, "MESSAGE\na:b\r\n\nx\0", [STOMPFrame(.message, ["a": "b"], text: "x")]),
            Golden(
                "CR LF",
                nil,
                "CONNECT\r\naccept-version:1.2\r\n\r\n\0",
                [
                    STOMPFrame(.connect, ["accept-version": "1.2"])
                ]
            ),
            Golden(
                "a CR of the value",
                .v1_1,
                "MESSAGE\na:b\r\n\nx\0",
                [STOMPFrame(.message, ["a": "b\r"], text: "x")]
            ),
            Golden(
                "a CR of the value",
                .v1_0,
                "MESSAGE\na:b\r\n\nx\0",
                [STOMPFrame(.message, ["a": "b\r"], text: "x")]
            ),
            Golden("a CR within a value", .v1_2, "MESSAGE\na:b\rc\r\r\n\n\0", [STOMPFrame(.message, ["a": "b\rc\r"])]),
            // Escapes.
            Golden(
                "no escapes",
                .v1_0,
                "MESSAGE\na\\n:b\\n\\c\\\\\\r\\t\\\n\n\0",
                [
                    STOMPFrame(.message, ["a\\n": "b\\n\\c\\\\\\r\\t\\"])
                ]
            ),
            Golden(
                "escapes",
                .v1_1,
                "MESSAGE\na\\c\\n\\\\:b\\n\\c\\\\n\n\n\0",
                [
                    STOMPFrame(.message, ["a:\n\\": "b\n:\\n"])
                ]
            ),
            Golden(
                "escapes",
                .v1_2,
                "MESSAGE\nx:y\na\\c\\n\\\\\\r:b\\r\\n\\c\\\\n\n\nbody\0",
                [
                    STOMPFrame(.message, ["x": "y", "a:\n\\\r": "b\r\n:\\n"], text: "body")
                ]
            ),
            Golden(
                "no escapes in CONNECT and STOMP",
                .v1_2,
                "CONNECT\na:\\x\\n\n\n\0STOMP\na:\\x\\n\n\n\0",
                [
                    STOMPFrame(.connect, ["a": "\\x\\n"]), STOMPFrame(.stomp, ["a": "\\x\\n"]),
                ]
            ),
            Golden(
                "no escapes in an ERROR before the agreement",
                nil,
                "ERROR\nmessage:a\\tb\\n\n\nbody\0",
                [
                    STOMPFrame(.error, ["message": "a\\tb\\n"], text: "body")
                ]
            ),
            // Bodies.
            Golden(
                "a body anywhere",
                .v1_0,
                "RECEIPT\nreceipt-id:1\n\nbody\0CONNECTED\n\nbody\0",
                [
                    STOMPFrame(.receipt, ["receipt-id": "1"], text: "body"), STOMPFrame(.connected, text: "body"),
                ]
            ),
            Golden(
                "bodies of SEND, MESSAGE and ERROR",
                .v1_1,
                "SEND\n\na\0MESSAGE\n\nb\0ERROR\n\nc\0",
                [
                    STOMPFrame(.send, text: "a"), STOMPFrame(.message, text: "b"), STOMPFrame(.error, text: "c"),
                ]
            ),
            // CONNECTED determines the version of the rest of the read.
            Golden(
                "CONNECTED 1.2",
                nil,
                "CONNECTED\r\nversion:1.2\r\n\r\n\0MESSAGE\r\na:\\r\r\n\r\nb\0",
                [
                    STOMPFrame(.connected, ["version": "1.2"]), STOMPFrame(.message, ["a": "\r"], text: "b"),
                ]
            ),
            Golden(
                "CONNECTED 1.1",
                nil,
                "CONNECTED\nversion:1.1\n\n\0MESSAGE\na:\\n\r\n\nb\0",
                [
                    STOMPFrame(.connected, ["version": "1.1"]), STOMPFrame(.message, ["a": "\n\r"], text: "b"),
                ]
            ),
            Golden(
                "CONNECTED without a version",
                nil,
                "CONNECTED\nsession:1\n\n\0RECEIPT\na:\\n\r\n\nb\0",
                [
                    STOMPFrame(.connected, ["session": "1"]), STOMPFrame(.receipt, ["a": "\\n\r"], text: "b"),
                ]
            ),
            Golden(
                "a second CONNECTED changes nothing",
                .v1_1,
                "CONNECTED\nversion:1.2\n\n\0MESSAGE\na:b\r\n\n\0",
                [
                    STOMPFrame(.connected, ["version": "1.2"]), STOMPFrame(.message, ["a": "b\r"]),
                ]
            ),
        ]

    @Test(arguments: golden) func everySplitGivesTheSameFrames(golden: Golden) {
        forEverySplit(Array(golden.stream.utf8)) { pieces in
            let decoded = DecodedFrames(pieces, golden.version)
            #expect(decoded.frames == golden.frames)
            #expect(decoded.violation == nil)
            #expect(decoded.rest == golden.rest)
        }
    }

    @Test func versionIsThatOfCONNECTED() throws {
        for version in STOMPVersion.allCases {
            var decoder = STOMPDecoder()
            #expect(decoder.version == nil)
            decoder.append(ByteBuffer(string: "\nCONNECTED\nversion:\(version)\n\n"))
            #expect(try decoder.next() == nil)
            #expect(decoder.version == nil)
            decoder.append(ByteBuffer(string: "\0"))
            #expect(try decoder.next() != nil)
            #expect(decoder.version == version)
        }
        var decoder = STOMPDecoder()
        decoder.append(ByteBuffer(string: "CONNECTED\n\n\0"))
        #expect(try decoder.next() != nil)
        #expect(decoder.version == .v1_0)
    }

    @Test func serverReadsWhatFollowsInTheVersionThatItAgreedOn() throws {
        var decoder = STOMPDecoder()
        decoder.append(ByteBuffer(string: "CONNECT\naccept-version:1.0,1.1\n\n\0SEND\na:\\c\r\n\nb\0"))
        #expect(try decoder.next()?.command == .connect)
        decoder.agree(on: .v1_1)
        #expect(try decoder.next()?.headers["a"] == ":\r")
    }

    @Test func headersThatAreNotUTF8AreRepairedWhereTheyAreReadAndPassedOnAsTheyCame() throws {
        let stream: [UInt8] =
            Array("MESSAGE\na:b".utf8) + [0xFF, 0xC3] + Array("c\n".utf8) + [0xE9, 0x3A, 0x0A, 0x0A, 0]
        let decoded = DecodedFrames([stream[...]], .v1_2)
        let frame = try #require(decoded.frames.first)
        #expect(frame.headers["a"] == "b\u{FFFD}\u{FFFD}c")
        #expect(frame.headers.map(\.name) == ["a", "\u{FFFD}"])
        #expect(frame.headers != ["a": "b\u{FFFD}\u{FFFD}c", "\u{FFFD}": ""])
        var bytes = ByteBuffer()
        try STOMPEncoder.encode(frame, version: .v1_2, into: &bytes)
        #expect(Array(bytes.readableBytesView) == stream)
    }
}
