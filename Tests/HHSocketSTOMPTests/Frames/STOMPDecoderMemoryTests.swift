// SPDX-License-Identifier: Apache-2.0
import NIOCore
import TestSupport
import Testing

@testable import HHSocketSTOMP

/// The limits of a decoder, the memory that it and its frames hold, and the bytes that it searches.
@Suite struct STOMPDecoderMemoryTests {
    private static let limits: STOMPLimits = {
        var limits = STOMPLimits()
        limits.maximumHeaders = 2
        limits.maximumHeaderLength = 20
        limits.maximumBodyLength = 4
        return limits
    }()

    struct Limited: CustomStringConvertible, Sendable {
        var stream: String
        var kind: STOMPViolation.Kind?
        var text = ""

        var description: String { self.stream.debugDescription }
    }

    static let limited: [Limited] = [
        // 20 bytes up to the end of the blank line.
        Limited(stream: "MESSAGE\nabcd:fghij\n\n\0"),
        Limited(
            stream: "MESSAGE\nabcd:fghijk\n\n\0",
            kind: .headersTooLong,
            text: "the command and headers of a frame have more than 20 bytes"
        ),
        Limited(stream: "MESSAGE\n123456789012", kind: .headersTooLong),
        Limited(stream: "MESSAGEMESSAGEMESSAG", kind: .headersTooLong),
        Limited(stream: "MESSAGEMESSAGEMESSA"),
        // A fault before the limit, and one after it.
        Limited(stream: "MESSAGE\n12345\nabcdefghijkl", kind: .malformedHeader),
        Limited(stream: "MESSAGE\n12345678901234\n", kind: .headersTooLong),
        Limited(stream: "MESSAGE\n12345678901234\0", kind: .headersTooLong),
        Limited(stream: "MESSAGE\na:b\nc:d\n\n\0"),
        Limited(
            stream: "MESSAGE\na:b\nc:d\ne:f\n\n\0",
            kind: .tooManyHeaders,
            text: "a frame has more than 2 headers"
        ),
        Limited(stream: "MESSAGE\n\nabcd\0"),
        Limited(
            stream: "MESSAGE\n\nabcde",
            kind: .bodyTooLong,
            text: "a body of more than 4 bytes is over the limit of 4 (maximumBodyLength)"
        ),
    ]

    @Test(arguments: limited) func limitIsExceededAtTheSameByteInEverySplit(limited: Limited) {
        forEverySplit(Array(("\n\n" + limited.stream).utf8)) { pieces in
            let decoded = DecodedFrames(pieces, .v1_2, limits: Self.limits)
            #expect(decoded.violation?.kind == limited.kind)
            #expect(decoded.violation?.kind.isLimit ?? true || limited.kind == .malformedHeader)
            if !limited.text.isEmpty { #expect(decoded.violation?.description == limited.text) }
            let isWhole = limited.stream.hasSuffix("\0")
            #expect(decoded.frames.count == (limited.kind == nil && isWhole ? 1 : 0))
        }
    }

    @Test(arguments: ["5", "16777217", "18446744073709551617", "99999999999999999999999999"])
    func announcedLengthOverTheLimitIsRefusedBeforeTheBodyComes(length: String) {
        var limits = STOMPLimits()
        if length == "5" { limits.maximumBodyLength = 4 }
        let decoded = DecodedFrames("MESSAGE\ncontent-length:\(length)\n\n", .v1_2, limits: limits)
        #expect(decoded.violation?.kind == .bodyTooLong)
        #expect(decoded.violation?.description.hasSuffix("(maximumBodyLength)") == true)
    }

    @Test(arguments: [Int.max, Int.min, -1, 0]) func noLimitMakesArithmeticOverflow(limit: Int) {
        var limits = STOMPLimits()
        limits.maximumBodyLength = limit
        limits.maximumHeaders = limit
        for value in ["9223372036854775807", "18446744073709551616", "1073741825"] {
            let decoded = DecodedFrames("MESSAGE\ncontent-length:\(value)\n\nx\0", .v1_2, limits: limits)
            #expect(decoded.violation?.kind == (limit > 0 ? .bodyTooLong : .tooManyHeaders))
        }
        limits.maximumHeaderLength = limit
        let decoded = DecodedFrames("MESSAGE\n\nx\0", .v1_2, limits: limits)
        #expect(decoded.violation?.kind == (limit > 0 ? nil : .headersTooLong))
    }

    @Test func defaultsAreThoseOfTheDocumentation() {
        let limits = STOMPLimits()
        #expect(limits.maximumHeaders == 1_024)
        #expect(limits.maximumHeaderLength == 65_536)
        #expect(limits.maximumBodyLength == 16_777_216)
    }

    // MARK: Memory

    private func address(_ buffer: ByteBuffer) -> UnsafeRawPointer? {
        buffer.withUnsafeReadableBytes { $0.baseAddress.map { UnsafeRawPointer($0) } }
    }

    @Test func largeBodyIsASliceOfTheReadThatBroughtIt() throws {
        var read = ByteBuffer(string: "MESSAGE\na:b\ncontent-length:60000\n\n")
        let start = read.readableBytes
        read.writeRepeatingByte(0x78, count: 60_000)
        read.writeString("\0RECEIPT\n\n\0")
        var decoder = STOMPDecoder()
        decoder.append(read)
        let frame = try #require(try decoder.next())
        #expect(self.address(frame.body) == self.address(read).map { $0 + start })
        // Headers that are kept do not keep the body.
        #expect(self.address(frame.headers.bytes) != self.address(read))
        #expect(frame.headers == ["a": "b", "content-length": "60000"])
        #expect(try decoder.next() == STOMPFrame(.receipt))
        #expect(decoder.bufferedBytes == 0)
    }

    @Test func keptFrameDoesNotKeepTheReadThatBroughtIt() throws {
        var read = ByteBuffer()
        for number in 0..<1_000 { read.writeString("MESSAGE\nnumber:\(number)\n\nbody of \(number)\0\n") }
        var decoder = STOMPDecoder()
        decoder.append(read)
        for number in 0..<1_000 {
            let frame = try #require(try decoder.next())
            #expect(frame.headers["number"] == "\(number)" && frame.text == "body of \(number)")
            #expect(frame.body.capacity <= 128 && frame.headers.bytes.capacity <= 128)
        }
        #expect(try decoder.next() == nil)
        #expect(decoder.bufferedBytes == 0)
    }

    @Test func bytesAfterALargeBodyAreNotCopied() throws {
        var decoder = STOMPDecoder()
        decoder.append(ByteBuffer(string: "MESSAGE\ncontent-length:100000\n\n"))
        #expect(try decoder.next() == nil)
        decoder.append(ByteBuffer(repeating: 0x78, count: 90_000))
        #expect(try decoder.next() == nil)
        var read = ByteBuffer(repeating: 0x79, count: 10_000)
        read.writeString("\0MESSAGE\ncontent-length:50000\n\n")
        let start = read.readableBytes
        read.writeRepeatingByte(0x7A, count: 50_000)
        read.writeString("\0")
        decoder.append(read)
        #expect(decoder.bufferedBytes == 150_063)
        let body = try #require(try decoder.next()?.body)
        #expect(body.readableBytes == 100_000 && body.getInteger(at: body.writerIndex - 1, as: UInt8.self) == 0x79)
        let next = try #require(try decoder.next()?.body)
        #expect(self.address(next) == self.address(read).map { $0 + start })
        #expect(decoder.bufferedBytes == 0)
    }

    @Test func readsThatComeBeforeFramesAreTakenAreKeptInOrder() throws {
        var decoder = STOMPDecoder()
        decoder.append(ByteBuffer(string: "MESSAGE\ncontent-length:3\n\nab"))
        #expect(try decoder.next() == nil)
        for piece in ["c\0RECEI", "PT\na:b", "\n\n\0\n"] { decoder.append(ByteBuffer(string: piece)) }
        #expect(try decoder.next()?.text == "abc")
        #expect(try decoder.next() == STOMPFrame(.receipt, ["a": "b"]))
        #expect(try decoder.next() == nil && decoder.bufferedBytes == 0)
    }

    // MARK: Work

    /// Received bytes are searched only once: the next search begins after them.
    @Test func noByteOfAnUnfinishedFrameIsSearchedAgain() throws {
        var decoder = STOMPDecoder()
        let head = "MESSAGE\n" + String(repeating: "name:value\\n\n", count: 500)
        for (index, byte) in Array(head.utf8).enumerated() {
            decoder.append(ByteBuffer(bytes: [byte]))
            #expect(try decoder.next() == nil)
            #expect(decoder.searchedBytes == index + 1)
        }
        decoder.append(ByteBuffer(string: "\n"))
        for length in stride(from: 0, through: 100_000, by: 1_000) {
            #expect(try decoder.next() == nil)
            #expect(decoder.searchedBytes == head.utf8.count + 1 + length)
            #expect(decoder.searchedBytes == decoder.bufferedBytes)
            decoder.append(ByteBuffer(repeating: 0x78, count: 1_000))
        }
    }

    @Test func bodyWithContentLengthIsNotSearched() throws {
        var decoder = STOMPDecoder()
        let head = "MESSAGE\ncontent-length:1000000\n\n"
        decoder.append(ByteBuffer(string: head))
        for _ in 0..<1_000 {
            #expect(try decoder.next() == nil)
            decoder.append(ByteBuffer(repeating: 0, count: 1_000))
            #expect(decoder.searchedBytes == head.utf8.count)
        }
        #expect(try decoder.next() == nil)
        decoder.append(ByteBuffer(bytes: [0]))
        #expect(try decoder.next()?.body.readableBytes == 1_000_000)
    }

    @Test func heartBeatsKeepNothing() throws {
        var decoder = STOMPDecoder()
        for _ in 0..<10_000 {
            decoder.append(ByteBuffer(string: "\r"))
            #expect(try decoder.next() == nil)
            decoder.append(ByteBuffer(string: "\n\n"))
            #expect(try decoder.next() == nil)
            #expect(decoder.bufferedBytes == 0)
        }
    }

    /// Frames that are not taken keep the buffer of the read that brought them.
    @Test func framesThatAreLeftInTheirReadAreChargedForIt() throws {
        var decoder = STOMPDecoder()
        var read = ByteBufferAllocator().buffer(capacity: 256 << 10)
        read.writeString("MESSAGE\ncontent-length:200000\n\n" + String(repeating: "a", count: 200_000) + "\0")
        read.writeString("MESSAGE\n\n\0")
        decoder.append(read)
        #expect(try decoder.next()?.body.readableBytes == 200_000)
        #expect(decoder.bufferedBytes < 20)
        #expect(decoder.heldBytes >= read.storageCapacity)
        #expect(try decoder.next() != nil)
        #expect(decoder.heldBytes == 0)
    }
}
