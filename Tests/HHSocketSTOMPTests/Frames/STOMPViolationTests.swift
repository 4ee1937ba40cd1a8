// SPDX-License-Identifier: Apache-2.0
import TestSupport
import Testing

@testable import HHSocketSTOMP

/// Bytes that break a rule of STOMP.
@Suite struct STOMPViolationTests {
    struct Wrong: CustomStringConvertible, Sendable {
        var version: STOMPVersion?
        var stream: String
        var kind: STOMPViolation.Kind
        var text: String

        init(_ version: STOMPVersion?, _ stream: String, _ kind: STOMPViolation.Kind, _ text: String) {
            self.version = version
            self.stream = stream
            self.kind = kind
            self.text = text
        }

        var description: String { "\(self.version.map { "\($0)" } ?? "not agreed"): \(self.stream.debugDescription)" }
    }

    static let wrong: [Wrong] = [
        Wrong(
            nil,
            "HTTP/1.1 400 Bad Request\r\nA: b\r\n\r\n",
            .malformedCommand,
            "a frame begins with \"HTTP/1.1 400 Bad Request\", which is not a command: commands are in upper-case letters"
        ),
        Wrong(
            nil,
            "\u{15}\u{3}\u{1}",
            .malformedCommand,
            "a frame begins with \"\\u{15}\", which is not a command: commands are in upper-case letters"
        ),
        Wrong(
            .v1_2,
            "\n\rRECEIPT\n\n\0",
            .malformedCommand,
            "a frame begins with \"\\r\", which is not a command: commands are in upper-case letters"
        ),
        Wrong(
            .v1_1,
            "RECEIPT\r\n\n\0",
            .malformedCommand,
            "a frame begins with \"RECEIPT\\r\", which is not a command: commands are in upper-case letters"
        ),
        Wrong(
            .v1_2,
            "MESSAGE\nno colon\n\n\0",
            .malformedHeader,
            "the header \"no colon\" has no colon between a name and a value"
        ),
        Wrong(
            .v1_0,
            "MESSAGE\r\n\r\n\0",
            .malformedCommand,
            "a frame begins with \"MESSAGE\\r\", which is not a command: commands are in upper-case letters"
        ),
        Wrong(
            .v1_1,
            "MESSAGE\na:b\n\r\n\0",
            .malformedHeader,
            "the header \"\\r\" has no colon between a name and a value"
        ),
        Wrong(.v1_2, "MESSAGE\n:b\n\n\0", .emptyHeaderName, "the header \":b\" has no name before its colon"),
        Wrong(
            .v1_1,
            "MESSAGE\na:b\\tc\n\n\0",
            .undefinedEscape,
            "the header \"a:b\\tc\" has an undefined escape: STOMP 1.1 has \\n, \\c and \\\\"
        ),
        Wrong(
            .v1_1,
            "MESSAGE\na:b\\r\n\n\0",
            .undefinedEscape,
            "the header \"a:b\\r\" has an undefined escape: STOMP 1.1 has \\n, \\c and \\\\"
        ),
        Wrong(
            .v1_2,
            "MESSAGE\na\\x:b\n\n\0",
            .undefinedEscape,
            "the header \"a\\x:b\" has an undefined escape: STOMP 1.2 has \\r, \\n, \\c and \\\\"
        ),
        Wrong(
            .v1_2,
            "MESSAGE\na:b\\\n\n\0",
            .undefinedEscape,
            "the header \"a:b\\\" has an undefined escape: STOMP 1.2 has \\r, \\n, \\c and \\\\"
        ),
        Wrong(
            .v1_2,
            "SEND\npasscode:secret\\x\n\n\0",
            .undefinedEscape,
            "the header \"passcode:…\" has an undefined escape: STOMP 1.2 has \\r, \\n, \\c and \\\\"
        ),
        Wrong(
            .v1_2,
            "RECEIPT\nreceipt-id:1\n\0",
            .nulInHeaders,
            "a zero byte follows \"\", before the blank line that ends the headers"
        ),
        Wrong(
            .v1_2,
            "RECEIPT\nreceipt-id:1\0",
            .nulInHeaders,
            "a zero byte follows \"receipt-id:1\", before the blank line that ends the headers"
        ),
        Wrong(
            nil,
            "CONNECT\npasscode:secret\0",
            .nulInHeaders,
            "a zero byte follows \"passcode:…\", before the blank line that ends the headers"
        ),
        Wrong(
            nil,
            "CONNECTED\0\n\n\0",
            .nulInHeaders,
            "a zero byte follows \"CONNECTED\", before the blank line that ends the headers"
        ),
        Wrong(
            .v1_2,
            "MESSAGE\ncontent-length: 1\n\na\0",
            .malformedContentLength,
            "the content-length \" 1\" is not a decimal number"
        ),
        Wrong(
            .v1_0,
            "MESSAGE\ncontent-length:-1\n\na\0",
            .malformedContentLength,
            "the content-length \"-1\" is not a decimal number"
        ),
        Wrong(
            .v1_1,
            "MESSAGE\ncontent-length:\n\na\0",
            .malformedContentLength,
            "the content-length \"\" is not a decimal number"
        ),
        Wrong(
            .v1_2,
            "MESSAGE\ncontent-length:2\n\nabc\0",
            .missingEnd,
            "the body of 2 bytes, as its content-length says, ends with \"c\" instead of a zero byte"
        ),
        Wrong(
            .v1_2,
            "RECEIPT\n\nbody\0",
            .unexpectedBody,
            "a frame RECEIPT has a body: in STOMP 1.2 only SEND, MESSAGE and ERROR may have one"
        ),
        Wrong(
            .v1_1,
            "SUBSCRIBE\ncontent-length:4\n\nbody\0",
            .unexpectedBody,
            "a frame SUBSCRIBE has a body: in STOMP 1.1 only SEND, MESSAGE and ERROR may have one"
        ),
        Wrong(
            nil,
            "CONNECTED\nversion:1.2\n\nbody\0",
            .unexpectedBody,
            "a frame CONNECTED has a body: in STOMP 1.2 only SEND, MESSAGE and ERROR may have one"
        ),
        Wrong(
            nil,
            "CONNECTED\nversion:2.0\n\n\0",
            .unknownVersion,
            "CONNECTED has the version \"2.0\", which is none of 1.0, 1.1, 1.2"
        ),
        Wrong(
            nil,
            "CONNECTED\nversion: 1.2\n\n\0",
            .unknownVersion,
            "CONNECTED has the version \" 1.2\", which is none of 1.0, 1.1, 1.2"
        ),
        Wrong(
            .v1_2,
            "MESSAGE\n" + String(repeating: "x", count: 200) + "\n\n\0",
            .malformedHeader,
            "the header \"" + String(repeating: "x", count: 80) + "…\" has no colon between a name and a value"
        ),
    ]

    @Test(arguments: wrong) func violationsEndTheStreamInEverySplit(wrong: Wrong) {
        let before = "\nERROR\nmessage:1\n\nx\0"
        forEverySplit(Array((before + wrong.stream).utf8)) { pieces in
            let decoded = DecodedFrames(pieces, wrong.version)
            #expect(decoded.frames == [STOMPFrame(.error, ["message": "1"], text: "x")])
            #expect(decoded.violation?.kind == wrong.kind)
            #expect(decoded.violation?.description == wrong.text)
            #expect(decoded.violation?.kind.isLimit == false)
        }
    }
}
