// SPDX-License-Identifier: Apache-2.0
import NIOCore
import Testing

@testable import HHSocket
@testable import HHSocketLink

@Suite struct FrameEncoderTests {
    @Test(arguments: [FrameDirection.request, .response])
    func framesAreAppendedToWhatTheBufferHolds(direction: FrameDirection) {
        let encoder = FrameEncoder(direction: direction)
        let frames = randomFrames(payloadLengths: [0, 7, 300], direction: direction, seed: 1)
        var buffer = ByteBuffer(string: "before")
        for frame in frames { encoder.encode(frame, into: &buffer) }
        #expect(buffer.readString(length: 6) == "before")
        #expect(Array(buffer.readableBytesView) == encoder.encode(frames))
        #expect(
            buffer.readableBytes
                == frames.reduce(0) { $0 + encoder.encodedLength(payloadLength: $1.payload.readableBytes) }
        )
    }

    @Test(arguments: [FrameDirection.request, .response])
    func onlyTheReadableBytesOfAPayloadAreSent(direction: FrameDirection) throws {
        let whole = ByteBuffer(string: "<<hello>>")
        let slice = try #require(whole.getSlice(at: 2, length: 5))
        var moved = whole
        moved.moveReaderIndex(forwardBy: 2)
        moved.moveWriterIndex(to: 7)
        let plain = Frame(type: 1000, serial: 50, payload: ByteBuffer(string: "hello"))
        let encoder = FrameEncoder(direction: direction)
        for payload in [slice, moved] {
            let frame = Frame(type: 1000, serial: 50, payload: payload)
            #expect(encoder.encode([frame]) == encoder.encode([plain]))
        }
    }

    @Test func aPayloadMayBeAPartOfTheBufferItIsEncodedInto() throws {
        var buffer = ByteBuffer(string: "hello")
        let payload = try #require(buffer.getSlice(at: 0, length: 5))
        FrameEncoder(direction: .request).encode(Frame(type: 1000, serial: 50, payload: payload), into: &buffer)
        #expect(
            Array(buffer.readableBytesView)
                == bytes(hex: "68656C6C6F 000003E8 00000032 00000005 68656C6C6F 062C0215")
        )
        #expect(payload == ByteBuffer(string: "hello"))
    }

    @Test func aRequestHasNoFieldForAStatus() {
        let encoder = FrameEncoder(direction: .request)
        let one = Frame(type: 1000, serial: 50, status: .ok)
        let other = Frame(type: 1000, serial: 50, status: .draining)
        #expect(encoder.encode([one]) == encoder.encode([other]))
    }
}
