// SPDX-License-Identifier: Apache-2.0
import NIOCore
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// Limits that depend on the type of a frame, and on its sender.
@Suite struct FrameLimitTests {
    private static let limit = 128 << 10

    private static func setups() -> [DecoderSetup] {
        [WireFormat.standard, .plain, .tgcd].flatMap { DecoderSetup.all($0, .request) }
    }

    private static func decoder(_ setup: DecoderSetup) -> FrameDecoder {
        var decoder = setup.decoder()
        decoder.accept(hellosUpTo: self.limit)
        return decoder
    }

    private static func frame(_ type: UInt32, serial: UInt32, _ length: Int) -> Frame {
        Frame(type: type, serial: serial, payload: ByteBuffer(repeating: 7, count: length))
    }

    private static func hello(_ length: Int) -> Frame {
        self.frame(FrameType.hello, serial: FrameSerial.hello, length)
    }

    /// Only its header must have arrived; further bytes make no difference.
    @Test(arguments: FrameLimitTests.setups()) func helloThatIsTooLongIsRefusedByItsHeader(_ setup: DecoderSetup) {
        let encoder = FrameEncoder(direction: .request, format: setup.format)
        let before = Self.frame(100, serial: 50, 10)
        let stream = encoder.encode([before, Self.hello(Self.limit + 1), before])
        let start = encoder.encode([before]).count
        let headerLength = encoder.encode([Self.hello(Self.limit + 1)]).count - Self.limit - 1
        for count in [start + headerLength, start + headerLength + 1_000, stream.count] {
            for pieces in [[stream[..<count]], [stream[..<start], stream[start..<count]]] {
                var (decoder, decoded) = (Self.decoder(setup), Decoded())
                for piece in pieces where decoded.error == nil { decoder.feed(piece, by: setup.use, into: &decoded) }
                #expect(decoded.frames.map(\.serial) == [50])
                #expect(decoded.error?.code == .payloadTooLarge)
                #expect(decoded.error?.type == FrameType.hello)
                #expect(decoded.error?.serial == FrameSerial.hello)
                #expect(decoded.error?.message.contains("hello") == true)
                #expect(decoder.bufferedBytes == 0)
            }
        }
        var (decoder, decoded) = (Self.decoder(setup), Decoded())
        for byte in stream[..<(start + headerLength)] where decoded.error == nil {
            decoder.feed([byte], by: setup.use, into: &decoded)
        }
        #expect(decoded.error?.code == .payloadTooLarge)
    }

    /// Hellos up to the limit, and other frames of any length, in one read and in pieces.
    @Test(arguments: FrameLimitTests.setups()) func otherFramesPass(_ setup: DecoderSetup) {
        let frames = [
            Self.hello(Self.limit), Self.frame(100, serial: 50, Self.limit + 1), Self.frame(100, serial: 3, 200_000),
            Self.frame(FrameType.hello, serial: 4, 200_000), Self.frame(2, serial: 3, 200_000), Self.hello(0),
        ]
        let stream = FrameEncoder(direction: .request, format: setup.format).encode(frames)
        for size in [stream.count, 150_000, 65_536, 4_099] {
            var (decoder, decoded) = (Self.decoder(setup), Decoded())
            var rest = stream[...]
            while !rest.isEmpty {
                decoder.feed(rest.prefix(size), by: setup.use, into: &decoded)
                rest = rest.dropFirst(size)
            }
            #expect(decoded.error == nil)
            #expect(decoded.frames.map(\.payload.readableBytes) == frames.map(\.payload.readableBytes))
            #expect(decoded.frames.map(\.serial) == frames.map(\.serial))
        }
    }

    @Test(arguments: FrameLimitTests.setups()) func limitMayGrowBetweenFrames(_ setup: DecoderSetup) {
        let frames = [Self.frame(100, serial: 50, 1_000), Self.frame(100, serial: 51, 100_000)]
        let encoder = FrameEncoder(direction: .request, format: setup.format)
        var (decoder, decoded) = (setup.decoder(maximumPayloadLength: 1_000), Decoded())
        decoder.feed(encoder.encode([frames[0]])[...], by: setup.use, into: &decoded)
        decoder.accept(payloadsUpTo: 100_000)
        #expect(decoder.maximumPayloadLength == 100_000)
        decoder.feed(encoder.encode([frames[1]])[...], by: setup.use, into: &decoded)
        #expect(decoded == Decoded(outputs: decoded.outputs))
        #expect(decoded.frames.map(\.serial) == [50, 51])
        // The limit may also shrink.
        decoder.accept(payloadsUpTo: 1_000)
        decoder.feed(encoder.encode([frames[1]])[...], by: setup.use, into: &decoded)
        #expect(decoded.error?.code == .payloadTooLarge)
        #expect(decoded.error?.message.contains("1000") == true)
    }
}
