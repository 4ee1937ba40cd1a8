// SPDX-License-Identifier: Apache-2.0
import Foundation
import NIOCore
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// A frame and its bytes, written by hand from the protocol's description and not by the encoder.
struct GoldenFrame: CustomTestStringConvertible, Sendable {
    var name: String
    var direction: FrameDirection
    var frame: Frame
    var hex: String
    var format = WireFormat.standard

    var testDescription: String { self.name }
    var bytes: [UInt8] { HHSocketTests.bytes(hex: self.hex) }

    static let all = standard + presets

    static let standard: [GoldenFrame] = [
        // type, serial, length, payload, adler32
        GoldenFrame(
            name: "a request",
            direction: .request,
            frame: Frame(type: 1000, serial: 50, payload: ByteBuffer(string: "hello")),
            hex: "000003E8 00000032 00000005 68656C6C6F 062C0215"
        ),
        GoldenFrame(
            name: "a request with the checksum everyone knows",
            direction: .request,
            frame: Frame(type: 101, serial: 51, payload: ByteBuffer(string: "Wikipedia")),
            hex: "00000065 00000033 00000009 57696B697065646961 11E60398"
        ),
        GoldenFrame(
            name: "a request without payload, whose trailer is 1",
            direction: .request,
            frame: Frame(type: 16, serial: 0xFFFF_FFFF),
            hex: "00000010 FFFFFFFF 00000000 00000001"
        ),
        GoldenFrame(
            name: "a request of the largest type, whose payload is one zero byte",
            direction: .request,
            frame: Frame(type: 0x1FFF_FFFF, serial: 0x0102_0304, payload: ByteBuffer(bytes: [0])),
            hex: "1FFFFFFF 01020304 00000001 00 00010001"
        ),
        GoldenFrame(
            name: "the client's ping",
            direction: .request,
            frame: Frame(type: FrameType.heartbeat, serial: FrameSerial.clientPing),
            hex: "00000000 00000000 00000000 00000001"
        ),
        GoldenFrame(
            name: "the client's answer to the server's ping",
            direction: .request,
            frame: Frame(type: FrameType.heartbeat, serial: FrameSerial.serverPing),
            hex: "00000000 00000005 00000000 00000001"
        ),
        GoldenFrame(
            name: "the cancelling of request 50",
            direction: .request,
            frame: Frame(type: FrameType.cancel, serial: 50),
            hex: "00000002 00000032 00000000 00000001"
        ),
        GoldenFrame(
            name: "the cancelling of request 50, with a payload for the application",
            direction: .request,
            frame: Frame(type: FrameType.cancel, serial: 50, payload: ByteBuffer(string: "abc")),
            hex: "00000002 00000032 00000003 616263 024D0127"
        ),

        // type, serial, status, length, payload, adler32
        GoldenFrame(
            name: "a response",
            direction: .response,
            frame: Frame(type: 1000, serial: 50, status: .ok, payload: ByteBuffer(string: "hello")),
            hex: "000003E8 00000032 000000C8 00000005 68656C6C6F 062C0215"
        ),
        GoldenFrame(
            name: "a response without payload, whose trailer is 1",
            direction: .response,
            frame: Frame(type: 1000, serial: 50, status: .ok),
            hex: "000003E8 00000032 000000C8 00000000 00000001"
        ),
        GoldenFrame(
            name: "the answer to a type that the server does not know",
            direction: .response,
            frame: Frame(type: 999, serial: 52, status: .undefinedType),
            hex: "000003E7 00000034 00000191 00000000 00000001"
        ),
        GoldenFrame(
            name: "the answer to a request whose checksum was wrong",
            direction: .response,
            frame: Frame(type: 1000, serial: 53, status: .lostPacket),
            hex: "000003E8 00000035 0000012E 00000000 00000001"
        ),
        GoldenFrame(
            name: "a response with a status nobody listed",
            direction: .response,
            frame: Frame(
                type: 1000,
                serial: 54,
                status: Status(rawValue: 0x8000_0001),
                payload: ByteBuffer(string: "a")
            ),
            hex: "000003E8 00000036 80000001 00000001 61 00620062"
        ),
        GoldenFrame(
            name: "a go-away: reason, retry-after and another server",
            direction: .response,
            frame: Frame(
                type: FrameType.goAway,
                serial: FrameSerial.goAway,
                status: .ok,
                payload: ByteBuffer(
                    bytes: [0x0A, 7] + Array("restart".utf8) + [0x10, 0xDC, 0x0B, 0x1A, 13]
                        + Array("10.0.0.2:7000".utf8)
                )
            ),
            hex: "00000004 00000004 000000C8 0000001B 0A0772657374617274 10DC0B 1A0D31302E302E302E323A37303030 682806B3"
        ),
        GoldenFrame(
            name: "a push",
            direction: .response,
            frame: Frame(type: 2001, serial: FrameSerial.push, status: .ok, payload: ByteBuffer(string: "hi")),
            hex: "000007D1 00000001 000000C8 00000002 6869 013B00D2"
        ),
        GoldenFrame(
            name: "the server's ping",
            direction: .response,
            frame: Frame(type: FrameType.heartbeat, serial: FrameSerial.serverPing, status: .ping),
            hex: "00000000 00000005 00000000 00000000 00000001"
        ),
        GoldenFrame(
            name: "the server's answer to the client's ping",
            direction: .response,
            frame: Frame(type: FrameType.heartbeat, serial: FrameSerial.clientPing, status: .ok),
            hex: "00000000 00000000 000000C8 00000000 00000001"
        ),

        // The tests of hello check the content of these payloads, with equal bytes.
        GoldenFrame(
            name: "hello",
            direction: .request,
            frame: Frame(
                type: FrameType.hello,
                serial: FrameSerial.hello,
                payload: Self.payload(
                    "0801120B636F6D7072657373696F6E120B6964656D706F74656E637912086D657461646174612801"
                )
            ),
            hex:
                "00000003 00000003 00000028 0801120B636F6D7072657373696F6E120B6964656D706F74656E637912086D657461646174612801 03C50D1B"
        ),
        GoldenFrame(
            name: "the answer to hello",
            direction: .response,
            frame: Frame(
                type: FrameType.hello,
                serial: FrameSerial.hello,
                status: Status(rawValue: 200),
                payload: Self.payload("0801120B636F6D7072657373696F6E12086D65746164617461")
            ),
            hex: "00000003 00000003 000000C8 00000019 0801120B636F6D7072657373696F6E12086D65746164617461 5E370834"
        ),
        GoldenFrame(
            name: "the answer to hello of a server that speaks newer versions alone",
            direction: .response,
            frame: Frame(
                type: FrameType.hello,
                serial: FrameSerial.hello,
                status: Status(rawValue: 303),
                payload: Self.payload("0802")
            ),
            hex: "00000003 00000003 0000012F 00000002 0802 0014000B"
        ),
        GoldenFrame(
            name: "a request with metadata",
            direction: .request,
            frame: Frame(
                type: 0x8000_03E8,
                serial: 50,
                payload: Self.payload("000000180A0E0A0674656E616E74120461636D6510DC0B1A036B2D3168656C6C6F")
            ),
            hex:
                "800003E8 00000032 00000021 000000180A0E0A0674656E616E74120461636D6510DC0B1A036B2D3168656C6C6F 731F0868"
        ),
        GoldenFrame(
            name: "the beginning of a put",
            direction: .request,
            frame: Frame(type: 8, serial: 50, payload: Self.payload(Self.beginning)),
            hex: "00000008 00000032 0000003B \(Self.beginning) B6290FDD"
        ),
        GoldenFrame(
            name: "a request with a compressed body",
            direction: .request,
            frame: Frame(
                type: 0x4000_03E8,
                serial: 51,
                payload: Self.payload("789CCB48CDC9C9D751C820950200280E1301")
            ),
            hex: "400003E8 00000033 00000012 789CCB48CDC9C9D751C820950200280E1301 5C1C0778"
        ),
        GoldenFrame(
            name: "a response with metadata and a compressed body",
            direction: .response,
            frame: Frame(
                type: 0xC000_03E8,
                serial: 51,
                status: Status(rawValue: 200),
                payload: Self.payload("000000100A0E0A06726567696F6E120465752D31789CCB48CDC9C9D751C820950200280E1301")
            ),
            hex:
                "C00003E8 00000033 000000C8 00000026 000000100A0E0A06726567696F6E120465752D31789CCB48CDC9C9D751C820950200280E1301 C41E0B82"
        ),
    ]

    private static let beginning =
        """
        0A390A0161122B0903000000000000001220BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD19070000000\
        0000000
        """

    private static func payload(_ hex: String) -> ByteBuffer { ByteBuffer(bytes: HHSocketTests.bytes(hex: hex)) }
}

@Suite struct GoldenFrameTests {
    @Test(arguments: GoldenFrame.all)
    func encoderWritesTheGoldenBytes(_ golden: GoldenFrame) {
        let encoder = FrameEncoder(direction: golden.direction, format: golden.format)
        var buffer = ByteBuffer()
        encoder.encode(golden.frame, into: &buffer)
        #expect(Array(buffer.readableBytesView) == golden.bytes)
        #expect(encoder.encodedLength(payloadLength: golden.frame.payload.readableBytes) == golden.bytes.count)
    }

    @Test(arguments: GoldenFrame.all)
    func encoderWritesTheGoldenBytesPieceByPiece(_ golden: GoldenFrame) {
        let encoder = FrameEncoder(direction: golden.direction, format: golden.format)
        var buffer = ByteBuffer()
        encoder.encodeHeader(of: golden.frame, into: &buffer)
        buffer.writeImmutableBuffer(golden.frame.payload)
        encoder.encodeTrailer(of: golden.frame, into: &buffer)
        #expect(Array(buffer.readableBytesView) == golden.bytes)
    }

    @Test(arguments: GoldenFrame.all, DecoderUse.allCases)
    func decoderReadsTheGoldenBytes(_ golden: GoldenFrame, use: DecoderUse) {
        let setup = DecoderSetup(
            direction: golden.direction,
            use: use,
            copyLimit: FrameDecoder.defaultCopyLimit,
            format: golden.format
        )
        #expect(setup.decode([golden.bytes[...]]) == Decoded(outputs: [.frame(golden.frame)]))
    }

    @Test(arguments: [FrameDirection.request, .response], DecoderUse.allCases)
    func decoderReadsAllTheGoldenBytesOfOneRead(direction: FrameDirection, use: DecoderUse) {
        let golden = GoldenFrame.standard.filter { $0.direction == direction }
        let stream = golden.flatMap(\.bytes)
        let setup = DecoderSetup(direction: direction, use: use, copyLimit: FrameDecoder.defaultCopyLimit)
        #expect(setup.decode([stream[...]]).frames == golden.map(\.frame))
    }

    /// Authors of servers may rely on the examples of the description.
    @Test func theFramesInTheProtocolsDescriptionAreGolden() throws {
        let package = (0..<4).reduce(URL(fileURLWithPath: #filePath)) { url, _ in url.deletingLastPathComponent() }
        let page = try String(contentsOf: package.appendingPathComponent("Docs/Protocol.md"), encoding: .utf8)
        let examples = page.components(separatedBy: "\n").filter { line in
            line.count >= 24 && line.allSatisfy { $0 == " " || $0.isHexDigit }
        }
        #expect(examples.count >= 31)
        for example in examples {
            let isGolden = GoldenFrame.all.contains { $0.hex == example } || GoldenStream.all.contains(example)
            #expect(isGolden, "\(example)")
        }
    }

    /// The text frames, with their line ends escaped.
    @Test func theTextFramesInTheProtocolsDescriptionAreGolden() throws {
        let golden = SeparatedGoldenTests.golden.map { $0.2.replacingOccurrences(of: "\r\n", with: "\\r\\n") }
        let lines = try DocumentationPage("Docs/Protocol.md").blocks("").flatMap { $0.components(separatedBy: "\n") }
            .filter { $0.hasSuffix("-\\r\\n") }
        #expect(lines.count == 8)
        for line in lines { #expect(golden.contains(line), "\(line)") }
    }

    @Test func headersHaveTheLengthsOfTheProtocol() {
        #expect(FrameDirection.request.headerLength == 12)
        #expect(FrameDirection.response.headerLength == 16)
        #expect(Frame.trailerLength == 4)
        #expect(Frame.defaultMaximumPayloadLength == 16 * 1024 * 1024)
    }

    @Test(
        arguments: [
            (Status.ping, 0), (.ok, 200), (.partial, 206),
            (.serverLostConnection, 300), (.illegalLength, 301), (.lostPacket, 302), (.illegalFormat, 303),
            (.notModified, 304),
            (.undefinedType, 401), (.protobufFailed, 402), (.database, 403), (.unknown, 404), (.noPermission, 405),
            (.deadlineExceeded, 408), (.cancelledByServer, 409), (.emptyProtobuf, 456),
            (.overloaded, 503), (.draining, 504),
        ] as [(Status, UInt32)]
    )
    func statusesHaveTheNumbersOfTheProtocol(status: Status, number: UInt32) {
        #expect(status.rawValue == number)
        #expect(status.description == "\(number)")
    }
}
