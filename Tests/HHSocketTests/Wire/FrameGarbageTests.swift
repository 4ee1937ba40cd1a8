// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// Nothing a peer sends may trap. A nonsensical stream ends in a typed error; bytes that look like frames are frames.
@Suite struct FrameGarbageTests {
    static let amount = 1 << 20

    @Test(arguments: DecoderSetup.all, [1, 2] as [UInt64])
    func randomBytesEndInATypedError(_ setup: DecoderSetup, seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let garbage = random.bytes(Self.amount)
        let outcome = Self.run(setup, over: garbage, random: &random)
        // A random length is almost never within the limit.
        #expect(outcome.errors > 0)
    }

    @Test(arguments: DecoderSetup.all, [3, 4] as [UInt64])
    func randomBytesWithPlausibleLengthsAreFramesWithWrongChecksums(_ setup: DecoderSetup, seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        var garbage: [UInt8] = []
        while garbage.count < Self.amount {
            let length = Int.random(in: 0...3_000, using: &random)
            // After a wrong checksum a type must be in use.
            garbage += [random.bytes(1)[0] & 0x1F]
            garbage += random.bytes(setup.direction.headerLength - 5)
            garbage += [0, 0, UInt8(length >> 8), UInt8(length & 0xFF)]
            garbage += random.bytes(length + Frame.trailerLength)
        }
        var setup = setup
        setup.maximumCorruptRun = .max
        let outcome = Self.run(setup, over: garbage, random: &random)
        #expect(outcome.errors == 0)
        #expect(outcome.corrupt > 300)
    }

    @Test(arguments: DecoderSetup.all, [5, 6] as [UInt64])
    func soundStreamsWithDamagedBytesEndInFramesOrATypedError(_ setup: DecoderSetup, seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let lengths = (0..<1_000).map { _ in Int.random(in: 0...2_000, using: &random) }
        let frames = randomFrames(payloadLengths: lengths, direction: setup.direction, seed: seed)
        var stream = FrameEncoder(direction: setup.direction).encode(frames)
        for _ in 0..<200 {
            let index = Int.random(in: stream.indices, using: &random)
            stream[index] = UInt8.random(in: 0...255, using: &random)
        }
        let outcome = Self.run(setup, over: stream, random: &random)
        #expect(outcome.corrupt > 0)
        #expect(outcome.frames > 0)
    }

    @Test(arguments: [FrameDirection.request, .response], [7, 8] as [UInt64])
    func garbageMeansTheSameHoweverItIsCutAndTaken(direction: FrameDirection, seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        var sawFrames = false
        var sawError = false
        for _ in 0..<scaled(12) {
            // Small words, so that some frames and then an error are likely.
            var garbage = random.bytes(1_000)
            for index in garbage.indices where index % 4 < 2 && Int.random(in: 0..<50, using: &random) > 0 {
                garbage[index] = 0
            }
            for index in garbage.indices where index % 4 == 2 && Int.random(in: 0..<8, using: &random) > 0 {
                garbage[index] = 0
            }
            let reference = DecoderSetup(direction: direction, use: .owned, copyLimit: 0).decode([garbage[...]])
            if !reference.outputs.isEmpty { sawFrames = true }
            if reference.error != nil { sawError = true }
            for setup in DecoderSetup.all where setup.direction == direction {
                for size in [1, 9, 64, 501] {
                    #expect(setup.decode(FrameSplittingTests.pieces(of: garbage, size: size)) == reference)
                }
            }
        }
        // With less effort there are too few rounds for that.
        #expect(effort < 1 || (sawFrames && sawError))
    }

    struct Outcome {
        var frames = 0
        var corrupt = 0
        var errors = 0
    }

    /// Feeds all bytes in pieces of random sizes. After an error, a new decoder continues after the piece.
    static func run(_ setup: DecoderSetup, over bytes: [UInt8], random: inout SeededGenerator) -> Outcome {
        var outcome = Outcome()
        var decoder = setup.decoder()
        var fed = 0
        var taken = 0
        var rest = bytes[...]
        while !rest.isEmpty {
            let size = Int.random(in: 0...(Bool.random(using: &random) ? 40 : 9_000), using: &random)
            let piece = rest.prefix(size)
            rest = rest.dropFirst(size)
            var decoded = Decoded()
            decoder.feed(piece, by: setup.use, into: &decoded)
            fed += piece.count
            for output in decoded.outputs {
                switch output {
                case .frame(let frame):
                    outcome.frames += 1
                    taken += frame.payload.readableBytes
                case .corrupt(let frame, let mismatch):
                    outcome.corrupt += 1
                    taken += frame.payload.readableBytes
                    #expect(mismatch.received != mismatch.computed)
                case .malformed(let error):
                    Issue.record("no format here has separators: \(error)")
                }
                taken += setup.direction.headerLength + Frame.trailerLength
            }
            if let error = decoded.error {
                outcome.errors += 1
                #expect([.payloadTooLarge, .implausible, .corruptRun].contains(error.code))
                decoder = setup.decoder()
                fed = 0
                taken = 0
            } else {
                #expect(decoder.bufferedBytes == fed - taken)
            }
        }
        return outcome
    }
}
