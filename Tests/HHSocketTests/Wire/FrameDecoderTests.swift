// SPDX-License-Identifier: Apache-2.0
import NIOCore
import Testing

@testable import HHSocket
@testable import HHSocketLink

@Suite struct FrameDecoderTests {
    // MARK: Limits

    @Test(arguments: DecoderSetup.all, [0, 1, 100])
    func aPayloadOfExactlyTheLimitIsAccepted(_ setup: DecoderSetup, limit: Int) {
        let frames = randomFrames(payloadLengths: [limit, limit], direction: setup.direction, seed: 2)
        var decoder = setup.decoder(maximumPayloadLength: limit)
        var decoded = Decoded()
        decoder.feed(FrameEncoder(direction: setup.direction).encode(frames)[...], by: setup.use, into: &decoded)
        #expect(decoded == Decoded(outputs: frames.map { .frame($0) }))
    }

    /// The error of a frame of type 77, serial 88 that announces too long a payload.
    private static func tooLarge(
        _ setup: DecoderSetup,
        _ header: ArraySlice<UInt8>,
        length: Int,
        limit: Int
    ) -> FrameError {
        let reading = header.withUnsafeBytes { setup.format.plan(for: setup.direction).reading(of: $0, limit: limit) }
        return FrameError.payloadTooLarge(length: length, limit: limit, type: 77, serial: 88).seen(reading)
    }

    @Test(arguments: DecoderSetup.all, [0, 1, 100])
    func aHeaderThatAnnouncesMoreThanTheLimitIsRefusedBeforeItsPayloadComes(_ setup: DecoderSetup, limit: Int) {
        let encoder = FrameEncoder(direction: setup.direction)
        let good = randomFrames(payloadLengths: [0, limit], direction: setup.direction, seed: 3)
        let bad = Frame(type: 77, serial: 88, payload: ByteBuffer(repeating: 9, count: limit + 1))
        let header = encoder.encode([bad]).prefix(setup.direction.headerLength)
        let error = Self.tooLarge(setup, header, length: limit + 1, limit: limit)
        for pieces in [[encoder.encode(good) + header], [encoder.encode(good)] + header.map { [$0] }] {
            var decoder = setup.decoder(maximumPayloadLength: limit)
            var decoded = Decoded()
            for piece in pieces { decoder.feed(piece[...], by: setup.use, into: &decoded) }
            // The frames before it were returned.
            #expect(decoded == Decoded(outputs: good.map { .frame($0) }, error: error))
        }
    }

    @Test(arguments: DecoderSetup.all)
    func theLargestLengthThereIsIsRefused(_ setup: DecoderSetup) {
        let words = setup.direction == .request ? "0000004D 00000058" : "0000004D 00000058 000000C8"
        let header = bytes(hex: words + "FFFFFFFF")
        let decoded = setup.decode([header[...]])
        let limit = Frame.defaultMaximumPayloadLength
        #expect(decoded == Decoded(error: Self.tooLarge(setup, header[...], length: 0xFFFF_FFFF, limit: limit)))
        #expect(decoded.error?.description.contains("4294967295") == true)
    }

    @Test(arguments: DecoderSetup.all)
    func afterAnErrorEveryCallThrowsItAgainAndNothingIsKept(_ setup: DecoderSetup) {
        let encoder = FrameEncoder(direction: setup.direction)
        let bad = encoder.encode([Frame(type: 77, serial: 88, payload: ByteBuffer(repeating: 9, count: 11))])
        let good = encoder.encode([Frame(type: 77, serial: 89)])
        let error = Self.tooLarge(setup, bad.prefix(setup.direction.headerLength), length: 11, limit: 10)
        for cut in [0, 1, setup.direction.headerLength] {
            var decoder = setup.decoder(maximumPayloadLength: 10)
            var decoded = Decoded()
            decoder.feed(bad[..<cut], by: setup.use, into: &decoded)
            decoder.feed(bad[cut...], by: setup.use, into: &decoded)
            for _ in 0..<3 {
                var later = Decoded()
                decoder.feed(good[...], by: setup.use, into: &later)
                #expect(later == Decoded(error: error))
                #expect(decoder.bufferedBytes == 0)
                #expect(decoder.bufferedCapacity == 0)
            }
        }
    }

    @Test func aLimitBelowZeroIsZero() {
        #expect(FrameDecoder(direction: .request, maximumPayloadLength: -1).maximumPayloadLength == 0)
    }

    /// In formats whose headers have their own length.
    @Test func aHeaderThatIsNotHereYetCountsNothing() throws {
        var header = ByteBuffer()
        header.writeMultipleIntegers(64 as UInt32, 200 as UInt32, 1_000 as UInt32, 1 as UInt32, 500 as UInt32)
        var decoder = FrameDecoder(direction: .response, format: .mars)
        decoder.append(header)
        let frame = try decoder.next()
        #expect(frame == nil)
        let found = decoder.arriving()
        let arriving = try #require(found)
        #expect((arriving.serial, arriving.receivedBytes, arriving.length) == (1, 0, 500))
    }

    // MARK: Checksums

    @Test(arguments: DecoderSetup.all)
    func aWrongChecksumSpoilsThatFrameAlone(_ setup: DecoderSetup) {
        let encoder = FrameEncoder(direction: setup.direction)
        let frames = randomFrames(payloadLengths: [20, 0, 600], direction: setup.direction, seed: 4)
        let last = Frame(type: 1000, serial: 50, payload: ByteBuffer(string: "hello"))
        for spoiled in frames {
            let sound = encoder.encode([spoiled])
            let checksum = Adler32.checksum(spoiled.payload)
            // Every bit of the trailer.
            for bit in 0..<32 {
                var stream = sound
                stream[sound.count - 1 - bit / 8] ^= 1 << UInt8(bit % 8)
                stream += encoder.encode([last])
                let mismatch = FrameDecoder.ChecksumMismatch(received: checksum ^ 1 << bit, computed: checksum)
                let expected = Decoded(outputs: [.corrupt(spoiled, mismatch), .frame(last)])
                #expect(setup.decode([stream[...]]) == expected)
                #expect(setup.decode(FrameSplittingTests.pieces(of: stream, size: 5)) == expected)
            }
        }
    }

    @Test(arguments: DecoderSetup.all)
    func aByteChangedInThePayloadIsNoticed(_ setup: DecoderSetup) {
        let encoder = FrameEncoder(direction: setup.direction)
        let frame = Frame(type: 1000, serial: 50, payload: ByteBuffer(string: "Wikipedia"))
        let next = Frame(type: 1001, serial: 51)
        for index in 0..<9 {
            var stream = encoder.encode([frame, next])
            stream[setup.direction.headerLength + index] ^= 0x20
            let decoded = setup.decode([stream[...]])
            #expect(decoded.error == nil)
            #expect(decoded.outputs.count == 2)
            guard case .corrupt(let spoiled, let mismatch) = decoded.outputs.first else {
                Issue.record("byte \(index) changed unnoticed")
                continue
            }
            #expect(spoiled.type == 1000 && spoiled.serial == 50)
            #expect(mismatch.received == 0x11E6_0398)
            #expect(mismatch.computed == Adler32.checksum(spoiled.payload))
            #expect(decoded.outputs.last == .frame(next))
        }
    }

    @Test(arguments: DecoderSetup.all)
    func anEmptyPayloadNeedsTheTrailerOne(_ setup: DecoderSetup) {
        let words = setup.direction == .request ? "000003E8 00000032" : "000003E8 00000032 000000C8"
        #expect(
            setup.decode([bytes(hex: words + "00000000 00000000")[...]]).outputs
                == [.corrupt(Frame(type: 1000, serial: 50), .init(received: 0, computed: 1))]
        )
    }

    // MARK: Memory

    /// The memory that a partly received frame may hold for `received` bytes: buffers double.
    static func allowance(received: Int) -> Int { max(64, 2 * received) }

    @Test(arguments: DecoderSetup.all)
    func memoryGrowsWithTheBytesThatCameNotWithTheLengthAnnounced(_ setup: DecoderSetup) {
        // The header announces 16 MiB, the limit.
        let words = setup.direction == .request ? "000003E8 00000032" : "000003E8 00000032 000000C8"
        let header = bytes(hex: words + "01000000")
        var decoder = setup.decoder()
        var decoded = Decoded()
        var received = 0
        var piece = header
        for size in [1, 10, 100, 1_000, 10_000, 100_000] {
            decoder.feed(piece[...], by: setup.use, into: &decoded)
            received += piece.count
            #expect(decoder.bufferedBytes == received)
            #expect(decoder.bufferedCapacity >= received)
            #expect(decoder.bufferedCapacity <= Self.allowance(received: received))
            piece = [UInt8](repeating: 0xAA, count: size)
        }
        #expect(decoded == Decoded())
    }

    @Test(arguments: DecoderSetup.all)
    func aLargeFrameThatCameInPiecesKeepsNoLargeBuffer(_ setup: DecoderSetup) {
        let frames = randomFrames(payloadLengths: [1 << 20], direction: setup.direction, seed: 5)
        let stream = FrameEncoder(direction: setup.direction).encode(frames)
        var decoder = setup.decoder()
        var decoded = Decoded()
        for piece in FrameSplittingTests.pieces(of: stream, size: 1 << 16) {
            decoder.feed(piece, by: setup.use, into: &decoded)
        }
        #expect(decoded.frames == frames)
        #expect(decoder.bufferedCapacity <= 1 << 16)
    }

    @Test func aFrameThatIsNotWantedIsLeftBeforeItsChecksumIsComputed() throws {
        let frame = Frame(type: 1000, serial: 50, payload: ByteBuffer(string: "payload"))
        var bytes = ByteBuffer()
        FrameEncoder(direction: .request).encode(frame, into: &bytes)
        // With a wrong checksum, which would be noticed first if it were computed first.
        bytes.setInteger(0 as UInt32, at: bytes.writerIndex - 4)
        var decoder = FrameDecoder(direction: .request)
        decoder.append(bytes)
        var asked: [UInt32] = []
        let left = decoder.soundHeader { header in
            asked.append(header.serial)
            return false
        }
        #expect(left == nil)
        #expect(asked == [50])
        #expect(decoder.soundHeader() == nil)
        guard case .corrupt(let corrupt, _)? = try decoder.next() else {
            Issue.record("the frame has a wrong checksum")
            return
        }
        #expect(corrupt == frame)
    }

    @Test func theRestOfAReadDoesNotKeepTheReadsBuffer() throws {
        let encoder = FrameEncoder(direction: .response)
        var read = ByteBuffer()
        encoder.encode(Frame(type: 1000, serial: 50, payload: ByteBuffer(repeating: 1, count: 1 << 18)), into: &read)
        read.writeBytes([0, 0, 3])
        var decoder = FrameDecoder(direction: .response)
        decoder.append(read)
        #expect(try decoder.next() != nil)
        #expect(try decoder.next() == nil)
        #expect(decoder.bufferedBytes == 3)
        #expect(decoder.bufferedCapacity <= 64)
    }

    // MARK: Who owns a payload

    @Test(arguments: [FrameDirection.request, .response], [0, 1, 100, 512])
    func payloadsUpToTheCopyLimitAreCopiedAndLargerOnesAreSlices(direction: FrameDirection, copyLimit: Int) throws {
        let lengths = [0, 1, 99, 100, 101, 511, 512, 513, 5_000]
        let frames = randomFrames(payloadLengths: lengths, direction: direction, seed: 6)
        let read = ByteBuffer(bytes: FrameEncoder(direction: direction).encode(frames))
        var decoder = FrameDecoder(direction: direction, copyLimit: copyLimit)
        decoder.append(read)
        for length in lengths {
            guard case .frame(let frame) = try decoder.next() else {
                Issue.record("no frame for a payload of \(length) bytes")
                return
            }
            #expect(frame.payload.readableBytes == length)
            #expect(frame.payload.sharesStorage(with: read) == (length > copyLimit), "a payload of \(length) bytes")
        }
    }

    @Test(arguments: [0, 512])
    func aPayloadKeptOutlivesTheFramesAfterIt(copyLimit: Int) throws {
        let frames = randomFrames(payloadLengths: [30, 600, 30, 600, 30], direction: .request, seed: 8)
        let stream = FrameEncoder(direction: .request).encode(frames)
        for size in [7, 100, stream.count] {
            let setup = DecoderSetup(direction: .request, use: .owned, copyLimit: copyLimit)
            let kept = setup.decode(FrameSplittingTests.pieces(of: stream, size: size)).frames
            #expect(kept == frames)
        }
    }

    @Test func borrowedPayloadsLieInTheBytesGiven() throws {
        let frames = randomFrames(payloadLengths: [1, 600, 30], direction: .response, seed: 9)
        let stream = FrameEncoder(direction: .response).encode(frames)
        var decoder = FrameDecoder(direction: .response)
        var inside = 0
        try stream.withUnsafeBytes { bytes in
            try decoder.decode(bytes) { view in
                guard let outer = bytes.baseAddress, let inner = view.payload.baseAddress else { return }
                if inner >= outer, inner + view.payload.count <= outer + bytes.count { inside += 1 }
            }
        }
        #expect(inside == frames.count)
    }
}

extension ByteBuffer {
    /// Whether the readable bytes lie in the memory of `other`.
    func sharesStorage(with other: ByteBuffer) -> Bool {
        guard self.readableBytes > 0 else { return false }
        return self.withUnsafeReadableBytes { mine in
            other.withUnsafeReadableBytes { theirs in
                guard let mine = mine.baseAddress, let start = theirs.baseAddress else { return false }
                return mine >= start && mine < start + theirs.count
            }
        }
    }
}
