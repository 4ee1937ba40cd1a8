// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// Compression, compared with zlib's own one-call functions.
@Suite struct CompressionTests {
    private func inflate(_ bytes: [UInt8], limit: Int) throws(Zlib.Failure) -> ByteBuffer {
        var output = ByteBuffer()
        try Zlib.inflate(ByteBuffer(bytes: bytes), limit: limit, into: &output)
        return output
    }

    /// Bytes that are more or less compressible.
    private static func bodies() -> [[UInt8]] {
        var generator = SeededGenerator(seed: 3)
        return [0, 1, 2, 100, 4_095, 4_096, 4_097, 70_000, 300_000].flatMap { count in
            [1, 4, 256].map { kinds in
                (0..<count).map { _ in UInt8(Int.random(in: 0..<kinds, using: &generator)) }
            }
        }
    }

    @Test func zlibReadsWhatIsCompressedHere() throws {
        for body in Self.bodies() {
            var output = ByteBuffer(string: "before")
            guard Zlib.deflate(ByteBuffer(bytes: body), level: 6, into: &output) else {
                #expect(output == ByteBuffer(string: "before"))
                continue
            }
            #expect(output.readString(length: 6) == "before")
            #expect(output.readableBytes < body.count)
            #expect(try Oracle.uncompress(Array(output.readableBytesView), to: body.count) == body)
        }
    }

    @Test func outputOfZlibIsDecompressed() throws {
        for body in Self.bodies() {
            let compressed = try Oracle.compress(body)
            #expect(try self.inflate(compressed, limit: 1 << 20) == ByteBuffer(bytes: body))
        }
    }

    @Test func aBodyOfTheLimitIsReadAndOneByteMoreIsNot() throws {
        for limit in [0, 1, 4_095, 4_096, 4_097, 50_000] {
            let most = try Oracle.compress([UInt8](repeating: 9, count: limit))
            #expect(try self.inflate(most, limit: limit).readableBytes == limit)
            let more = try Oracle.compress([UInt8](repeating: 9, count: limit + 1))
            #expect(throws: Zlib.Failure.tooLarge) { try self.inflate(more, limit: limit) }
        }
    }

    @Test func memoryFollowsWhatComesOut() throws {
        for length in [1, 5_000, 100_000, 1 << 20] {
            let compressed = try Oracle.compress([UInt8](repeating: 9, count: length))
            #expect(try self.inflate(compressed, limit: 1 << 20).capacity <= max(Zlib.firstCapacity, 2 * length))
        }
        let odd = try Oracle.compress([UInt8](repeating: 9, count: 5_000))
        #expect(try self.inflate(odd, limit: 5_000).capacity == 8_192)
    }

    @Test func aBombDoesNotGoOff() throws {
        let bomb = ByteBuffer(bytes: try Oracle.zeros(1 << 28))
        #expect(bomb.readableBytes < 2 << 20)
        var output = ByteBuffer()
        #expect(throws: Zlib.Failure.tooLarge) { try Zlib.inflate(bomb, limit: 1 << 20, into: &output) }
        #expect(output.readableBytes == 1 << 20)
        #expect(output.capacity == 1 << 20)
        #expect(throws: EnvelopeError.bodyTooLarge(limit: 1 << 20)) {
            try Envelope.open(
                type: 77 | FrameType.compressionFlag,
                payload: bomb,
                agreedFlags: FrameType.compressionFlag,
                maximumBodyLength: 1 << 20
            )
        }
    }

    @Test func aStreamThatContinuesBehindItsEndIsRefused() throws {
        let compressed = try Oracle.compress([1, 2, 3])
        #expect(throws: Zlib.Failure.malformed("1 bytes follow its end")) {
            try self.inflate(compressed + [0], limit: 100)
        }
    }

    @Test func aWrongChecksumIsNoticed() throws {
        var compressed = try Oracle.compress([1, 2, 3])
        compressed[compressed.count - 1] ^= 1
        #expect(throws: Zlib.Failure.malformed("incorrect data check")) {
            try self.inflate(compressed, limit: 100)
        }
    }

    @Test func aStreamThatNeedsADictionaryIsRefused() throws {
        let error = #expect(throws: Zlib.Failure.self) {
            try self.inflate(bytes(hex: "78bb 00000001 00000000"), limit: 100)
        }
        #expect(error == .malformed("it needs a dictionary, which nobody has agreed on"))
    }

    @Test func noBytesAreNoStream() {
        #expect(throws: Zlib.Failure.malformed("its end is missing")) { try self.inflate([], limit: 100) }
    }
}
