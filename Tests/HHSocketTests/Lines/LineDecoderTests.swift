// SPDX-License-Identifier: Apache-2.0
import NIOCore
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// A delimiter of these bytes.
private func bytes(_ text: String) -> LineDelimiter { (try? LineDelimiter(bytes: text.utf8)) ?? .lf }

/// Bytes become lines, however they are split.
@Suite struct LineDecoderTests {
    /// The result of decoding a stream.
    struct Decoded: Equatable, CustomStringConvertible {
        var lines: [[UInt8]] = []
        var rest = 0
        var isTooLong = false

        var description: String {
            "\(self.lines.map { String(decoding: $0, as: UTF8.self).debugDescription }), rest \(self.rest)"
                + (self.isTooLong ? ", too long" : "")
        }
    }

    struct Golden: CustomStringConvertible, Sendable {
        var delimiter: LineDelimiter
        var stream: String
        var lines: [String]
        var rest: Int

        var description: String { "\(self.delimiter): \(self.stream.debugDescription)" }
    }

    static let golden: [Golden] = [
        Golden(delimiter: .lf, stream: "", lines: [], rest: 0),
        Golden(delimiter: .lf, stream: "\n", lines: [""], rest: 0),
        Golden(delimiter: .lf, stream: "a\nb\r\n\n\nc", lines: ["a", "b\r", "", ""], rest: 1),
        Golden(delimiter: .lf, stream: "ä€🎉\nx", lines: ["ä€🎉"], rest: 1),
        Golden(delimiter: .crlf, stream: "a\r\nb\nc\r\n\r\n\rd\r\r\ne\r", lines: ["a", "b\nc", "", "\rd\r"], rest: 2),
        Golden(delimiter: .crlf, stream: "\n\r\n\r\n\n", lines: ["\n", ""], rest: 1),
        Golden(
            delimiter: .lfOrCRLF,
            stream: "a\r\nb\nc\r\r\n\n\r\n\rd\n\r",
            lines: ["a", "b", "c\r", "", "", "\rd"],
            rest: 1
        ),
        Golden(delimiter: .nul, stream: "a\n\0\0b\r\n", lines: ["a\n", ""], rest: 3),
        // A delimiter that overlaps with itself, and one with a repeated beginning.
        Golden(delimiter: bytes("aa"), stream: "xaaaaabaa", lines: ["x", "", "ab"], rest: 0),
        Golden(delimiter: bytes("aab"), stream: "xaaabaabaa", lines: ["xa", ""], rest: 2),
        Golden(
            delimiter: bytes("-\r\n"),
            stream: "a-\rb--\r\n-\r\n",
            lines: ["a-\rb-", ""],
            rest: 0
        ),
    ]

    static func decode(
        _ pieces: [ArraySlice<UInt8>],
        _ delimiter: LineDelimiter,
        limit: Int = LineDecoder.defaultMaximumLength
    ) -> Decoded {
        var decoder = LineDecoder(delimiter: delimiter, maximumLength: limit)
        var decoded = Decoded()
        var fed = 0
        for piece in pieces {
            decoder.append(ByteBuffer(bytes: piece))
            fed += piece.count
            do throws(LineDecoder.TooLong) {
                while let line = try decoder.next() { decoded.lines.append(Array(line.readableBytesView)) }
            } catch {
                decoded.isTooLong = true
                #expect(error.limit == limit)
                #expect(decoder.bufferedBytes == 0)
                #expect(throws: LineDecoder.TooLong.self) { try decoder.next() }
                return decoded
            }
            #expect(decoder.bufferedBytes <= fed)
        }
        decoded.rest = decoder.bufferedBytes
        return decoded
    }

    @Test(arguments: golden) func everySplitGivesTheSameLines(golden: Golden) {
        let expected = Decoded(lines: golden.lines.map { Array($0.utf8) }, rest: golden.rest)
        forEverySplit(Array(golden.stream.utf8)) { pieces in
            #expect(Self.decode(pieces, golden.delimiter) == expected)
        }
    }

    /// The lines of a whole stream, found in the simplest way.
    private func reference(_ stream: [UInt8], _ delimiter: LineDelimiter, limit: Int) -> Decoded {
        var decoded = Decoded()
        var line: [UInt8] = []
        for byte in stream {
            line.append(byte)
            guard line.suffix(delimiter.bytes.count).elementsEqual(delimiter.bytes) else { continue }
            line.removeLast(delimiter.bytes.count)
            if delimiter == .lfOrCRLF, line.last == 0x0D { line.removeLast() }
            if line.count > limit {
                decoded.isTooLong = true
                return decoded
            }
            decoded.lines.append(line)
            line = []
        }
        decoded.rest = line.count
        return decoded
    }

    @Test func randomStreamsInRandomPiecesAreReadAsTheSimplestReaderDoes() throws {
        var generator = SeededGenerator(seed: 7)
        let delimiters: [LineDelimiter] = try [
            .lf, .crlf, .lfOrCRLF, .nul, LineDelimiter(bytes: [0x0D, 0x0D]), LineDelimiter(bytes: [0, 0x0A, 0]),
        ]
        for _ in 0..<600 {
            let delimiter = try #require(delimiters.randomElement(using: &generator))
            let alphabet: [UInt8] = [0x0D, 0x0A, 0, 0x61, 0xC3, 0xA4]
            let stream = (0..<Int.random(in: 0..<200, using: &generator)).map { _ in
                alphabet.randomElement(using: &generator) ?? 0
            }
            let pieces = generator.pieces(of: stream)
            let limit = Int.random(in: 30...300, using: &generator)
            let expected = self.reference(stream, delimiter, limit: limit)
            let decoded = Self.decode(pieces, delimiter, limit: limit)
            // A line without an end is rejected as soon as it is certain to be too long.
            let mayBeTooLong = expected.rest > limit
            #expect(decoded.lines == expected.lines)
            #expect(decoded.isTooLong == expected.isTooLong || mayBeTooLong)
        }
    }

    // MARK: The limit

    struct Limit: CustomStringConvertible, Sendable {
        var delimiter: LineDelimiter
        var stream: String
        var lines: [String]
        var isTooLong: Bool

        var description: String { "\(self.delimiter): \(self.stream.debugDescription)" }
    }

    @Test(arguments: [
        Limit(delimiter: .lf, stream: "abcd\n", lines: ["abcd"], isTooLong: false),
        Limit(delimiter: .lf, stream: "abcd", lines: [], isTooLong: false),
        Limit(delimiter: .lf, stream: "a\nabcde", lines: ["a"], isTooLong: true),
        Limit(delimiter: .lf, stream: "a\n\nabcde\nb\n", lines: ["a", ""], isTooLong: true),
        Limit(delimiter: .lf, stream: "abcd\r\n", lines: [], isTooLong: true),
        Limit(delimiter: .crlf, stream: "abcd\r\nabcd\r", lines: ["abcd"], isTooLong: false),
        Limit(delimiter: .crlf, stream: "abcd\rx", lines: [], isTooLong: true),
        Limit(delimiter: .crlf, stream: "abcde", lines: [], isTooLong: true),
        Limit(delimiter: .lfOrCRLF, stream: "abcd\r\nabcd\nabcd\r", lines: ["abcd", "abcd"], isTooLong: false),
        Limit(delimiter: .lfOrCRLF, stream: "abcd\rx", lines: [], isTooLong: true),
        Limit(delimiter: .lfOrCRLF, stream: "abcd\r\r\n", lines: [], isTooLong: true),
        Limit(
            delimiter: bytes("=-="),
            stream: "abcd=-=abcd=-",
            lines: ["abcd"],
            isTooLong: false
        ),
        Limit(delimiter: bytes("=-="), stream: "abcd=-x", lines: [], isTooLong: true),
        Limit(delimiter: bytes("=-="), stream: "abcd-=", lines: [], isTooLong: true),
    ])
    func oneByteMoreThanTheLimitIsTooLongInEverySplit(limit: Limit) {
        forEverySplit(Array(limit.stream.utf8)) { pieces in
            let decoded = Self.decode(pieces, limit.delimiter, limit: 4)
            #expect(decoded.lines == limit.lines.map { Array($0.utf8) })
            #expect(decoded.isTooLong == limit.isTooLong)
        }
    }

    @Test(arguments: [1_048_575, 1_048_576, 1_048_577]) func mebibytePassesAndOneByteMoreDoesNot(length: Int) {
        let stream = [UInt8](repeating: 0x78, count: length) + [0x0A]
        for size in [stream.count, 65_536, 4_099] {
            let pieces = stride(from: 0, to: stream.count, by: size).map { stream[$0..<min($0 + size, stream.count)] }
            let decoded = Self.decode(pieces, .lf)
            #expect(decoded.isTooLong == (length > 1_048_576))
            #expect(decoded.lines.map(\.count) == (length > 1_048_576 ? [] : [length]))
        }
    }

    // MARK: Memory

    @Test func keptLineDoesNotKeepTheReadThatBroughtIt() throws {
        var decoder = LineDecoder(delimiter: .lf)
        var read = ByteBuffer(repeating: 0x78, count: 60_000)
        read.writeString("\nshort\n")
        decoder.append(read)
        let long = try #require(try decoder.next())
        let short = try #require(try decoder.next())
        #expect(long.readableBytes == 60_000 && String(buffer: short) == "short")
        #expect(short.capacity < 1_024)
        #expect(decoder.bufferedBytes == 0)
    }

    @Test func manyLinesInSmallReadsDoNotAddUp() throws {
        var decoder = LineDecoder(delimiter: .crlf)
        for number in 0..<20_000 {
            decoder.append(ByteBuffer(string: "line \(number)\r"))
            #expect(try decoder.next() == nil)
            decoder.append(ByteBuffer(string: "\nnext"))
            #expect(String(buffer: try #require(try decoder.next())) == (number == 0 ? "line 0" : "nextline \(number)"))
            #expect(decoder.bufferedBytes == 4)
        }
    }

    @Test func lineIsReturnedWithItsDelimiterAsItCame() throws {
        var decoder = LineDecoder(delimiter: .lfOrCRLF)
        decoder.append(ByteBuffer(string: "a\r\nb\n\r\nc"))
        var lines: [String] = []
        while let line = try decoder.nextWithDelimiter() { lines.append(String(buffer: line)) }
        #expect(lines == ["a\r\n", "b\n", "\r\n"])
        #expect(decoder.bufferedBytes == 1)
    }
}
