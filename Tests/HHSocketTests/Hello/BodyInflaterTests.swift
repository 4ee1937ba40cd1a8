// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// The stepwise inflater, compared with inflating in one call.
@Suite struct BodyInflaterTests {
    /// Inflates in steps, each of which adds at most `count` bytes.
    private func inflate(_ body: ByteBuffer, limit: Int, atMost count: Int) throws(EnvelopeError) -> ByteBuffer {
        var inflater = BodyInflater(body, limit: limit)
        var length = 0
        while true {
            let whole = try inflater.next(count)
            #expect(inflater.length - length <= count)
            #expect(inflater.length <= limit)
            length = inflater.length
            if let whole {
                #expect(whole.readableBytes == length)
                return whole
            }
            #expect(length > 0)
        }
    }

    @Test(arguments: [1, 2, 4_095, 4_096, 1 << 20])
    func everyBodyIsTheSameInParts(count: Int) throws {
        var generator = SeededGenerator(seed: 7)
        for length in [0, 1, 2, 100, 4_096, count > 2 ? 300_000 : 5_000] {
            for kinds in [1, 4, 256] {
                let body = (0..<length).map { _ in UInt8(Int.random(in: 0..<kinds, using: &generator)) }
                let compressed = ByteBuffer(bytes: try Oracle.compress(body))
                #expect(try self.inflate(compressed, limit: 1 << 20, atMost: count) == ByteBuffer(bytes: body))
                #expect(try self.inflate(compressed, limit: length, atMost: count) == ByteBuffer(bytes: body))
                guard length > 0 else { continue }
                #expect(throws: EnvelopeError.bodyTooLarge(limit: length - 1)) {
                    try self.inflate(compressed, limit: length - 1, atMost: count)
                }
            }
        }
    }

    @Test(arguments: [1, 100, 1 << 20])
    func everyPrefixAndEveryFlawIsTheSameErrorInParts(count: Int) throws {
        let compressed = try Oracle.compress((0..<2_000).map { UInt8($0 & 7) })
        var flawed = compressed.indices.map { Array(compressed[..<$0]) }
        flawed += compressed.indices.map { index in
            var bytes = compressed
            bytes[index] ^= 0x55
            return bytes
        }
        flawed.append(compressed + [0])
        for bytes in flawed {
            let body = ByteBuffer(bytes: bytes)
            func result(
                _ inflate: () throws(EnvelopeError) -> ByteBuffer
            ) -> Result<ByteBuffer, EnvelopeError> {
                Result(catching: inflate)
            }
            let expected = result { () throws(EnvelopeError) in try Envelope.inflate(body, limit: 1 << 16) }
            let parts = result { () throws(EnvelopeError) in
                try self.inflate(body, limit: 1 << 16, atMost: count)
            }
            #expect(parts == expected)
        }
    }

    @Test func aBombStopsAtTheLimit() throws {
        let bomb = ByteBuffer(bytes: try Oracle.zeros(1 << 28))
        #expect(throws: EnvelopeError.bodyTooLarge(limit: 1 << 20)) {
            try self.inflate(bomb, limit: 1 << 20, atMost: 256 << 10)
        }
    }
}
