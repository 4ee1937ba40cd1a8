// SPDX-License-Identifier: Apache-2.0
import NIOCore

@testable import InstrumentedHHSocketLink

/// Any bytes as lines, in pieces and whole; and lines that are written and read.
enum LineFuzz {
    /// The output of a decoder.
    private struct Decoded: Equatable {
        var lines: [ByteBuffer] = []
        var rest = 0
        var isTooLong = false
    }

    static func run(_ bytes: [UInt8]) {
        var input = Input(bytes)
        let limit = [LineDecoder.defaultMaximumLength, 0, 3, 64, 1_000][Int(input.byte() % 5)]
        let delimiter = self.delimiter(&input)
        let pieces = input.pieceSizes()
        let stream = Array(input.rest)
        let whole = self.decode(stream, delimiter, limit, pieces: [])
        let split = self.decode(stream, delimiter, limit, pieces: pieces)
        require(whole == split, "whole \(whole)\nin pieces \(split)")
        self.checkAgainstTheSimplestReader(whole, stream, delimiter, limit)
        self.checkThatLinesAreReadAsTheyAreWritten(whole.lines, delimiter)
    }

    private static func delimiter(_ input: inout Input) -> LineDelimiter {
        switch input.byte() % 8 {
        case 0, 1: .lf
        case 2: .crlf
        case 3: .lfOrCRLF
        case 4: .nul
        case 5: (try? LineDelimiter(bytes: input.bytes(1 + Int(input.byte() % 4)))) ?? .lf
        // A delimiter that overlaps with itself.
        case 6: (try? LineDelimiter(bytes: [UInt8](repeating: 0x61, count: 1 + Int(input.byte() % 64)))) ?? .lf
        default: LineDelimiter(String(decoding: input.bytes(4), as: UTF8.self)) ?? .lf
        }
    }

    private static func decode(
        _ stream: [UInt8],
        _ delimiter: LineDelimiter,
        _ limit: Int,
        pieces sizes: [Int]
    ) -> Decoded {
        var decoder = LineDecoder(delimiter: delimiter, maximumLength: limit)
        var decoded = Decoded()
        var received = 0
        for piece in Pieces(stream[...], sizes) {
            received += piece.count
            decoder.append(ByteBuffer(bytes: piece))
            do throws(LineDecoder.TooLong) {
                while let line = try decoder.next() { decoded.lines.append(line) }
            } catch {
                decoded.isTooLong = true
                require(decoder.bufferedBytes == 0, "bytes are kept of a line that is too long")
                return decoded
            }
            require(decoder.bufferedBytes <= min(received, limit + LineDelimiter.maximumLength), "too much is kept")
        }
        decoded.rest = decoder.bufferedBytes
        return decoded
    }

    private static func checkAgainstTheSimplestReader(
        _ decoded: Decoded,
        _ stream: [UInt8],
        _ delimiter: LineDelimiter,
        _ limit: Int
    ) {
        var lines: [ByteBuffer] = []
        var line: [UInt8] = []
        for byte in stream {
            line.append(byte)
            guard line.suffix(delimiter.bytes.count).elementsEqual(delimiter.bytes) else { continue }
            line.removeLast(delimiter.bytes.count)
            if delimiter == .lfOrCRLF, line.last == 0x0D { line.removeLast() }
            guard line.count <= limit else { break }
            lines.append(ByteBuffer(bytes: line))
            line = []
        }
        require(decoded.lines == lines, "decoded \(decoded.lines)\nexpected \(lines)")
        require(decoded.isTooLong || decoded.rest == line.count, "\(decoded.rest) bytes are left, not \(line.count)")
        require(!decoded.isTooLong || line.count > limit, "a line of \(line.count) bytes is too long for \(limit)")
    }

    private static func checkThatLinesAreReadAsTheyAreWritten(_ lines: [ByteBuffer], _ delimiter: LineDelimiter) {
        var (language, out) = (LineLanguage(delimiter: delimiter), SendBytes())
        var written = ByteBuffer()
        var sent: [ByteBuffer] = []
        for line in lines.prefix(100) where !delimiter.occurs(in: line) {
            var outgoing = language.begin(LineUnit(line), into: &out)
            while var rest = outgoing {
                outgoing = language.nextPiece(of: &rest, limit: 1_000, into: &out) == .end ? nil : rest
            }
            while let bytes = out.popFirst() { written.writeImmutableBuffer(bytes) }
            if let bytes = out.takeGathered() { written.writeImmutableBuffer(bytes) }
            // The line's CR is taken as a part of the delimiter.
            let dropsCR = delimiter == .lfOrCRLF && line.readableBytesView.last == 0x0D
            sent.append(dropsCR ? line.getSlice(at: line.readerIndex, length: line.readableBytes - 1) ?? line : line)
        }
        let read = self.decode(
            Array(written.readableBytesView),
            delimiter,
            LineDecoder.defaultMaximumLength,
            pieces: []
        )
        require(read.lines == sent && read.rest == 0, "sent \(sent)\nread \(read)")
    }
}
