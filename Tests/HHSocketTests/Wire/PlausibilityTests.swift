// SPDX-License-Identifier: Apache-2.0
import NIOCore
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// Framing never guesses: a stream that contradicts its layout, or itself after a wrong checksum, ends.
@Suite struct PlausibilityTests {
    static let setups: [DecoderSetup] = [WireFormat.standard, .tgcd].flatMap { format in
        DecoderSetup.all(format, .request) + DecoderSetup.all(format, .response)
    }

    /// A frame's bytes with the last bit of its checksum inverted.
    static func corrupt(_ frame: Frame, _ setup: DecoderSetup) -> [UInt8] {
        var bytes = FrameEncoder(direction: setup.direction, format: setup.format).encode([frame])
        bytes[bytes.count - 1 - (setup.format == .tgcd ? 4 : 0)] ^= 1
        return bytes
    }

    static func sound(_ frame: Frame, _ setup: DecoderSetup) -> [UInt8] {
        FrameEncoder(direction: setup.direction, format: setup.format).encode([frame])
    }

    /// Decodes a stream, and checks that its division does not matter.
    static func decode(_ stream: [UInt8], _ setup: DecoderSetup) -> Decoded {
        let whole = setup.decode([stream[...]])
        #expect(setup.decodeOneByOne(stream) == whole)
        for cut in stride(from: 1, to: stream.count, by: 3) {
            #expect(setup.decode([stream[..<cut], stream[cut...]]) == whole, "cut at \(cut)")
        }
        return whole
    }

    @Test(arguments: setups)
    func afterAWrongChecksumAnUnusedTypeEndsTheStream(_ setup: DecoderSetup) {
        for type in [0x2000_0000, 0x4000_0010, 0x8000_03E8, .max] as [UInt32] {
            let stream =
                Self.corrupt(Frame(type: 1000, serial: 50), setup) + Self.sound(Frame(type: type, serial: 51), setup)
            let decoded = Self.decode(stream, setup)
            #expect(decoded.outputs.count == 1)
            #expect(decoded.error?.code == .implausible)
            #expect(decoded.error?.type == type)
            #expect(decoded.error?.serial == 51)
        }
    }

    @Test(arguments: setups)
    func theHeaderAloneSaysSoThatNoPayloadIsWaitedFor(_ setup: DecoderSetup) {
        let header =
            FrameEncoder(direction: setup.direction, format: setup.format)
            .encode([Frame(type: .max, serial: 51, payload: ByteBuffer(repeating: 1, count: 1_000))])
            .prefix(setup.direction.headerLength)
        let decoded = Self.decode(Self.corrupt(Frame(type: 1000, serial: 50), setup) + header, setup)
        #expect(decoded.error?.code == .implausible)
    }

    @Test(arguments: setups)
    func withoutAWrongChecksumSuchATypeIsAFrameLikeAnyOther(_ setup: DecoderSetup) {
        let frames = [Frame(type: 1000, serial: 50), Frame(type: .max, serial: 51), Frame(type: 17, serial: 52)]
        let decoded = Self.decode(frames.flatMap { Self.sound($0, setup) }, setup)
        #expect(decoded == Decoded(outputs: frames.map { .frame($0) }))
        // The same holds after an intact frame.
        let later = Self.decode(
            Self.corrupt(frames[0], setup) + Self.sound(frames[2], setup) + Self.sound(frames[1], setup),
            setup
        )
        #expect(later.frames == [frames[2], frames[1]])
        #expect(later.error == nil)
    }

    @Test(arguments: setups)
    func flagsThatWereAgreedOnArePlausible(_ setup: DecoderSetup) throws {
        let stream =
            Self.corrupt(Frame(type: 1000, serial: 50), setup)
            + Self.sound(Frame(type: 0x4000_03E8, serial: 51), setup)
            + Self.corrupt(Frame(type: 1000, serial: 52), setup)
            + Self.sound(Frame(type: 0xC000_03E8, serial: 53), setup)
        var decoder = setup.decoder()
        decoder.agreedFlags = 0x4000_0000
        var decoded = Decoded()
        decoder.feed(stream[...], by: setup.use, into: &decoded)
        #expect(decoded.frames == [Frame(type: 0x4000_03E8, serial: 51)])
        #expect(decoded.outputs.count == 3)
        #expect(decoded.error?.code == .implausible)
    }

    @Test(arguments: setups)
    func afterAWrongChecksumALengthOverTheLimitEndsTheStream(_ setup: DecoderSetup) {
        let stream =
            Self.corrupt(Frame(type: 1000, serial: 50), setup)
            + bytes(hex: setup.direction == .request ? "000003E8 00000033" : "000003E8 00000033 000000C8")
            + bytes(hex: "01000001")
        let decoded = Self.decode(stream, setup)
        #expect(decoded.outputs.count == 1)
        #expect(decoded.error?.code == .payloadTooLarge)
    }

    @Test(arguments: setups, [1, 2, 3, 10])
    func aRunOfWrongChecksumsEndsTheStream(_ setup: DecoderSetup, limit: Int) {
        var setup = setup
        setup.maximumCorruptRun = limit
        let sound = Frame(type: 1001, serial: 99, payload: ByteBuffer(string: "hi"))
        let spoiled = (0..<limit).map { Frame(type: 1000, serial: 50 + UInt32($0)) }
        // The stream continues after one less than the limit, twice, with an intact frame in between.
        let short = spoiled.dropLast().flatMap { Self.corrupt($0, setup) }
        let survivor = Self.decode(short + Self.sound(sound, setup) + short + Self.sound(sound, setup), setup)
        #expect(survivor.frames == [sound, sound])
        #expect(survivor.outputs.count == 2 * limit)
        #expect(survivor.error == nil)
        // At the limit, the last frame is still returned.
        let whole = spoiled.flatMap { Self.corrupt($0, setup) }
        let ended = Self.decode(Self.sound(sound, setup) + whole + Self.sound(sound, setup), setup)
        #expect(ended.outputs.count == 1 + limit)
        #expect(ended.frames == [sound])
        #expect(ended.error?.code == .corruptRun)
        #expect(ended.error?.serial == 49 + UInt32(limit))
    }

    @Test func theRunIsThreeByDefaultAndOneAtLeast() {
        #expect(FrameDecoder(direction: .request).maximumCorruptRun == 3)
        #expect(FrameDecoder(direction: .request, maximumCorruptRun: 0).maximumCorruptRun == 1)
        #expect(SocketConfiguration(servers: []).maximumCorruptRun == 3)
    }

    @Test(arguments: setups)
    func afterTheEndEveryCallThrowsAgainAndNothingIsKept(_ setup: DecoderSetup) {
        var decoder = setup.decoder()
        var decoded = Decoded()
        let spoiled = Self.corrupt(Frame(type: 1000, serial: 50), setup)
        decoder.feed((spoiled + spoiled + spoiled)[...], by: setup.use, into: &decoded)
        // The owning decoder throws in the call after the last frame, the borrowing one in the call itself.
        for _ in 0..<3 {
            var later = Decoded()
            decoder.feed(Self.sound(Frame(type: 1000, serial: 51), setup)[...], by: setup.use, into: &later)
            #expect(later.outputs.isEmpty)
            #expect(later.error?.code == .corruptRun)
            #expect(decoder.bufferedBytes == 0)
            #expect(decoder.bufferedCapacity == 0)
        }
    }

    // MARK: Headers that contradict their layout

    static let strict = WireFormat(
        known: WireFormat.Layout(
            name: "strict",
            request: [.constant([0xCA, 0xFE]), .type(), .serial(), .length(), .constant([1])],
            response: [.constant([0xCA, 0xFE]), .type(), .serial(), .length(), .constant([1])],
            lengthCounts: .frame,
            checksum: .init(.crc32),
            tail: .big
        )
    )

    static func strictFrame(
        magic: String = "CAFE",
        length: String = "0000001C",
        version: String = "01",
        payload: String = "68656C6C6F",
        checksum: String = "3610A686",
        tail: String = "000003E8"
    ) -> [UInt8] {
        bytes(hex: magic + "000003E8 00000032" + length + version + payload + checksum + tail)
    }

    @Test(arguments: DecoderSetup.all(strict, .request))
    func aHeaderThatContradictsItsLayoutEndsTheStream(_ setup: DecoderSetup) {
        let good = Self.strictFrame()
        let frame = Frame(type: 1000, serial: 50, payload: ByteBuffer(string: "hello"))
        #expect(Self.decode(good + good, setup) == Decoded(outputs: [.frame(frame), .frame(frame)]))
        let shortest = Self.strictFrame(length: "00000017", payload: "", checksum: "00000000")
        #expect(Self.decode(shortest, setup) == Decoded(outputs: [.frame(Frame(type: 1000, serial: 50))]))
        for (bad, code) in [
            (Self.strictFrame(magic: "CAFF"), .wrongConstant), (Self.strictFrame(version: "02"), .wrongConstant),
            (Array("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n".utf8), .wrongConstant),
            (Self.strictFrame(length: "00000016"), .frameTooShort),
            (Self.strictFrame(length: "00000000"), .frameTooShort),
            (Self.strictFrame(length: "FFFFFFFF"), .payloadTooLarge), (Self.strictFrame(tail: "000003E9"), .wrongTail),
            // A wrong tail proves more than a wrong checksum: the length was wrong.
            (Self.strictFrame(checksum: "3610A687", tail: "000003E9"), .wrongTail),
        ] as [([UInt8], FrameError.Code)] {
            let decoded = Self.decode(good + bad, setup)
            #expect(decoded.outputs == [.frame(frame)])
            #expect(decoded.error?.code == code)
            #expect(decoded.error?.message.isEmpty == false)
        }
        // A wrong checksum invalidates only its frame; the next bytes must follow the layout.
        let corrupt = Self.strictFrame(checksum: "3610A687")
        #expect(Self.decode(corrupt + good, setup).frames == [frame])
        #expect(Self.decode(corrupt + Self.strictFrame(magic: "CAFF"), setup).error?.code == .wrongConstant)
    }
}
