// SPDX-License-Identifier: Apache-2.0
import NIOCore
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// Delimiters, and lines as they are sent.
@Suite struct LineLanguageTests {
    private func bytes(_ text: String) throws -> LineDelimiter { try LineDelimiter(bytes: text.utf8) }

    @Test func delimiterHasAName() throws {
        #expect(LineDelimiter("lf") == .lf && LineDelimiter("crlf") == .crlf)
        #expect(LineDelimiter("any") == .lfOrCRLF && LineDelimiter("nul") == .nul)
        #expect(LineDelimiter("0d0A") == .crlf)
        #expect(LineDelimiter("1e")?.bytes == [30])
        for text in ["", "x", "0", "0d0", "0x0a", "LF", "ä1", "+1", String(repeating: "00", count: 65)] {
            #expect(LineDelimiter(text) == nil)
        }
        for delimiter in [.lf, .crlf, .lfOrCRLF, .nul, try self.bytes("ab")] as [LineDelimiter] {
            #expect(LineDelimiter(delimiter.description) == delimiter)
        }
        // LF and LF with an optional CR differ.
        #expect(LineDelimiter.lf != .lfOrCRLF)
        for count in [0, 65] {
            let error = #expect(throws: SocketError.self) {
                try LineDelimiter(bytes: [UInt8](repeating: 1, count: count))
            }
            #expect(error?.code == .invalidArgument)
        }
    }

    @Test(arguments: [
        ("lf", "a\nb", true), ("lf", "\n", true), ("lf", "a\r", false), ("lf", "", false),
        ("crlf", "a\r\nb", true), ("crlf", "a\nb\r", false), ("crlf", "a\rb", false),
        ("any", "a\nb", true), ("any", "a\r\nb", true), ("any", "a\rb", false), ("any", "a\r", false),
        ("nul", "a\0", true), ("nul", "a\n", false),
        // Together with the next byte, the delimiter would match one byte too early.
        ("6161", "xa", true), ("6161", "ax", false), ("2d0a2d", "x-\n", true), ("2d0a2d", "x-", false),
    ])
    func lineThatWouldBeReadAsAnotherContainsTheDelimiter(name: String, line: String, contains: Bool) throws {
        let delimiter = try #require(LineDelimiter(name))
        #expect(delimiter.occurs(in: ByteBuffer(string: line)) == contains)
        guard !contains, name != "any" || !line.hasSuffix("\r") else { return }
        var decoder = LineDecoder(delimiter: delimiter)
        decoder.append(ByteBuffer(bytes: Array(line.utf8) + delimiter.bytes))
        #expect(try decoder.next() == ByteBuffer(string: line))
        #expect(decoder.bufferedBytes == 0)
    }

    @Test(arguments: [0, 1, 65_536, 65_537, 200_000]) func lineIsSentWholeWithItsDelimiter(length: Int) throws {
        var (language, out) = (LineLanguage(delimiter: .crlf), SendBytes())
        let payload = ByteBuffer(bytes: (0..<length).map { UInt8(truncatingIfNeeded: $0) | 0x40 })
        #expect(language.cost(of: LineUnit(payload)) == length + 2)
        var outgoing = language.begin(LineUnit(payload), into: &out)
        #expect((outgoing == nil) == (length <= 65_536))
        while var rest = outgoing {
            let piece = language.nextPiece(of: &rest, limit: 65_536, into: &out)
            outgoing = piece == .end ? nil : rest
            // The line must not be interrupted.
            #expect(piece == .end || piece == .more)
        }
        var written = ByteBuffer()
        while let bytes = out.popFirst() { written.writeImmutableBuffer(bytes) }
        if let bytes = out.takeGathered() { written.writeImmutableBuffer(bytes) }
        #expect(written == ByteBuffer(bytes: Array(payload.readableBytesView) + [13, 10]))
        #expect(language.close(.done, into: &out) == .shutdown)
    }

    @Test func lineThatIsTooLongEndsTheLanguage() throws {
        var language = LineLanguage(delimiter: .lf, maximumLength: 3)
        language.append(ByteBuffer(string: "abc\nabcd"))
        #expect(try language.next() == ByteBuffer(string: "abc"))
        let error = #expect(throws: LinkError.self) { try language.next() }
        #expect(error?.reason == .tooLarge)
        #expect(error?.underlying as? LineDecoder.TooLong == LineDecoder.TooLong(limit: 3))
    }
}
