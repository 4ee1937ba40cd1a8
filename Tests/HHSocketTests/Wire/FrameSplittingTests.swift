// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// The decoded frames do not depend on the division of the stream.
@Suite struct FrameSplittingTests {
    /// Lengths around the copy limit, around powers of two, and zero.
    static let payloadLengths = [0, 1, 3, 0, 1_023, 1_024, 1_025, 2_048, 2, 700, 0]

    @Test(arguments: DecoderSetup.all)
    func everySplitIntoTwoGivesTheSameFrames(_ setup: DecoderSetup) {
        let (stream, expected) = Self.stream(Self.payloadLengths, setup.direction)
        var boundaries = [0]
        for length in Self.payloadLengths {
            boundaries.append((boundaries.last ?? 0) + setup.direction.headerLength + length + Frame.trailerLength)
        }
        #expect(boundaries.last == stream.count)
        for cut in cuts(stream.count, around: boundaries) {
            let decoded = setup.decode([stream[..<cut], stream[cut...]])
            guard decoded != expected else { continue }
            Issue.record("cut at \(cut): \(decoded)")
            return
        }
    }

    @Test(arguments: DecoderSetup.all)
    func everySplitIntoThreeGivesTheSameFrames(_ setup: DecoderSetup) {
        let (stream, expected) = Self.stream([0, 5, 1, 0, 17], setup.direction)
        for first in 0...stream.count {
            for second in stride(from: first, through: stream.count, by: spaced(3)) {
                let decoded = setup.decode([stream[..<first], stream[first..<second], stream[second...]])
                guard decoded != expected else { continue }
                Issue.record("cut at \(first) and \(second): \(decoded)")
                return
            }
        }
    }

    @Test(arguments: DecoderSetup.all)
    func piecesOfAnyOneSizeGiveTheSameFrames(_ setup: DecoderSetup) {
        let (stream, expected) = Self.stream(Self.payloadLengths, setup.direction)
        for size in [1, 2, 3, 4, 5, 7, 11, 12, 13, 15, 16, 17, 19, 20, 21, 64, 1_000, 4_095, stream.count] {
            #expect(setup.decode(Self.pieces(of: stream, size: size)) == expected, "pieces of \(size) bytes")
        }
    }

    @Test(arguments: DecoderSetup.all)
    func piecesOfRandomSizesGiveTheSameFrames(_ setup: DecoderSetup) {
        for seed in 1...50 as ClosedRange<UInt64> {
            var random = SeededGenerator(seed: seed)
            let lengths = (0..<12).map { _ in
                Int.random(in: 0...(Bool.random(using: &random) ? 40 : 6_000), using: &random)
            }
            let (stream, expected) = Self.stream(lengths, setup.direction, seed: seed)
            var pieces: [ArraySlice<UInt8>] = []
            var rest = stream[...]
            while !rest.isEmpty {
                let size = Int.random(in: 0...(Bool.random(using: &random) ? 30 : 5_000), using: &random)
                pieces.append(rest.prefix(size))
                rest = rest.dropFirst(size)
            }
            #expect(setup.decode(pieces) == expected, "seed \(seed)")
        }
    }

    @Test(arguments: DecoderSetup.all.filter { $0.use == .owned })
    func readsHandedOverBeforeAnyFrameIsTakenAreJoined(_ setup: DecoderSetup) throws {
        let (stream, expected) = Self.stream(Self.payloadLengths, setup.direction)
        for size in [1, 13, 1_000] {
            var decoder = setup.decoder()
            var decoded = Decoded()
            for piece in Self.pieces(of: stream, size: size) { decoder.append(ByteBuffer(bytes: piece)) }
            while let output = try decoder.next() { decoded.outputs.append(output) }
            #expect(decoded == expected, "pieces of \(size) bytes")
        }
    }

    @Test(arguments: DecoderSetup.all.filter { $0.use == .owned })
    func readsHandedOverBetweenTwoFramesAreJoined(_ setup: DecoderSetup) throws {
        let (stream, expected) = Self.stream(Self.payloadLengths, setup.direction)
        var decoder = setup.decoder()
        var decoded = Decoded()
        // One frame is taken for every two pieces, so that the decoder falls behind.
        for (index, piece) in Self.pieces(of: stream, size: 100).enumerated() {
            decoder.append(ByteBuffer(bytes: piece))
            if index.isMultiple(of: 2), let output = try decoder.next() { decoded.outputs.append(output) }
        }
        while let output = try decoder.next() { decoded.outputs.append(output) }
        #expect(decoded == expected)
    }

    @Test(arguments: DecoderSetup.all)
    func nothingIsKeptOnceEveryFrameIsOut(_ setup: DecoderSetup) {
        let (stream, expected) = Self.stream(Self.payloadLengths, setup.direction)
        var decoder = setup.decoder()
        var decoded = Decoded()
        for piece in Self.pieces(of: stream, size: 700) { decoder.feed(piece, by: setup.use, into: &decoded) }
        #expect(decoded == expected)
        #expect(decoder.bufferedBytes == 0)
    }

    static func stream(
        _ payloadLengths: [Int],
        _ direction: FrameDirection,
        seed: UInt64 = 7
    ) -> (bytes: [UInt8], expected: Decoded) {
        let frames = randomFrames(payloadLengths: payloadLengths, direction: direction, seed: seed)
        return (FrameEncoder(direction: direction).encode(frames), Decoded(outputs: frames.map { .frame($0) }))
    }

    static func pieces(of stream: [UInt8], size: Int) -> [ArraySlice<UInt8>] {
        stride(from: 0, to: stream.count, by: size).map { stream[$0..<min($0 + size, stream.count)] }
    }
}
