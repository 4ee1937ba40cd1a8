// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketFormats
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// Formats whose frames a codec reads and writes: whatever the codec does, the stream continues or ends with an error.
@Suite struct FrameCodecTests {
    static let uses: [DecoderUse] = [.owned, .borrowed]

    private func setup(
        _ format: WireFormat,
        _ direction: FrameDirection = .request,
        _ use: DecoderUse = .owned
    ) -> DecoderSetup {
        DecoderSetup(direction: direction, use: use, copyLimit: FrameDecoder.defaultCopyLimit, format: format)
    }

    // MARK: Frames

    @Test(arguments: uses)
    func framesComeOutAsBytes(use: DecoderUse) throws {
        let format = try NetstringCodec.format()
        let bytes = Array("12:101 50 hello,21:102 51 a long message,7:0 0 abc,".utf8)
        let frames = [
            Frame(type: 101, serial: 50, payload: ByteBuffer(string: "hello")),
            Frame(type: 102, serial: 51, payload: ByteBuffer(string: "a long message")),
            Frame(type: 0, serial: 0, payload: ByteBuffer(string: "abc")),
        ]
        let setup = self.setup(format, .request, use)
        #expect(setup.decode([bytes[...]]) == Decoded(outputs: frames.map { .frame($0) }))
        #expect(setup.decodeOneByOne(bytes) == Decoded(outputs: frames.map { .frame($0) }))
        #expect(FrameEncoder(direction: .request, format: format).encode(frames) == bytes)
    }

    @Test func responsesHaveAStatus() throws {
        let format = try NetstringCodec.format()
        let frame = Frame(type: 101, serial: 50, status: .noPermission, payload: ByteBuffer(string: "no"))
        let bytes = Array("13:101 50 405 no,".utf8)
        #expect(FrameEncoder(direction: .response, format: format).encode([frame]) == bytes)
        #expect(self.setup(format, .response).decode([bytes[...]]).frames == [frame])
    }

    /// A large frame, whose payload is a slice, followed by others in pieces of any length.
    @Test(arguments: uses, [1_000, 4_096, 100_000])
    func largeFramesInManyReads(use: DecoderUse, length: Int) throws {
        let format = try NetstringCodec.format()
        let frames = randomFrames(payloadLengths: [300_000, 0, 70_000, 3, 5_000], direction: .request, seed: 1)
        let bytes = FrameEncoder(direction: .request, format: format).encode(frames)
        let pieces = stride(from: 0, to: bytes.count, by: length).map { bytes[$0..<min(bytes.count, $0 + length)] }
        #expect(self.setup(format, .request, use).decode(pieces).frames == frames)
    }

    @Test func framesWithoutARuleAreDropped() throws {
        let rules = WireFormat.Rules(name: "bare", hasStatus: false, responsesHaveType: false)
        let format = try WireFormat(codec: NetstringCodec(), rules: rules)
        #expect(!format.hasStatus)
        #expect(!format.responsesHaveType)
        let bytes = Array("13:101 50 405 no,".utf8)
        let frame = try #require(self.setup(format, .response).decode([bytes[...]]).frames.first)
        #expect(frame == Frame(type: 16, serial: 50, payload: ByteBuffer(string: "no")))
    }

    /// Only the codec knows an incomplete frame.
    @Test func framesThatArriveAreNotKnown() throws {
        var decoder = self.setup(try NetstringCodec.format()).decoder()
        decoder.append(ByteBuffer(string: "12:101 50 he"))
        #expect(try decoder.next() == nil)
        #expect(decoder.arriving() == nil)
        #expect(decoder.bufferedBytes == 12)
        let isGivenUp = decoder.giveUp()
        #expect(!isGivenUp)
        decoder.append(ByteBuffer(string: "llo,"))
        #expect(try decoder.next() != nil)
        #expect(decoder.bufferedBytes == 0)
    }

    // MARK: Errors

    @Test(arguments: uses)
    func refusedBytesEndTheStream(use: DecoderUse) throws {
        let decoded = self.setup(try NetstringCodec.format(), .request, use).decode([Array("7:0 0 abc,x".utf8)[...]])
        #expect(decoded.frames.count == 1)
        #expect(decoded.error?.code == .codec)
        #expect(
            decoded.error?.message
                == "the codec of the wire format netstring has refused the bytes: 120 is where a digit or a colon belongs"
        )
    }

    @Test(
        arguments: [
            (.takesBytesOfNoFrame, "has taken 3 bytes and returned no frame"),
            (.inventsFrames, "without taking any bytes"),
            (.keepsItsBytes, "without taking any bytes"),
            (.writesToTheBytes, "has changed the bytes"),
        ] as [(FaultyCodec.Fault, String)],
        uses
    )
    func brokenRulesEndTheStream(fault: (FaultyCodec.Fault, String), use: DecoderUse) throws {
        let setup = self.setup(try .faulty(fault.0), .request, use)
        let decoded = setup.decode([Array("7:0".utf8)[...], Array(" 0 abc,".utf8)[...]])
        #expect(decoded.outputs.isEmpty)
        #expect(decoded.error?.code == .codec)
        #expect(decoded.error?.message.contains(fault.1) == true, "\(decoded.error?.message ?? "")")
    }

    @Test func anEndedStreamStaysSo() throws {
        var decoder = self.setup(try .faulty(.inventsFrames)).decoder()
        for _ in 0..<3 {
            decoder.append(ByteBuffer(string: "7:0 0 abc,"))
            #expect(throws: FrameError.self) { try decoder.next() }
            #expect(decoder.bufferedBytes == 0)
        }
    }

    @Test(arguments: uses)
    func bytesWithoutAFrameAreBounded(use: DecoderUse) throws {
        let setup = self.setup(try .faulty(.waitsForEver), .request, use)
        var decoder = setup.decoder(maximumPayloadLength: 1_000)
        var decoded = Decoded()
        for _ in 0..<(64 + 2) where decoded.error == nil {
            decoder.feed([UInt8](repeating: 0x31, count: 1_024)[...], by: use, into: &decoded)
            #expect(decoder.bufferedBytes <= 1_000 + (65 << 10))
        }
        #expect(decoded.error?.code == .payloadTooLarge)
        #expect(decoded.error?.message.contains("over the limit of 1000") == true)
        #expect(decoder.bufferedBytes == 0)
    }

    @Test(arguments: uses)
    func payloadsOverTheLimitAreRefusedThoughTheCodecTakesThem(use: DecoderUse) throws {
        let setup = self.setup(try .faulty(.trustsLengths), .request, use)
        var decoder = setup.decoder(maximumPayloadLength: 2)
        var decoded = Decoded()
        decoder.feed(Array("6:0 0 ab,7:9 8 abc,".utf8)[...], by: use, into: &decoded)
        #expect(decoded.frames.count == 1)
        #expect(decoded.error == .payloadTooLarge(length: 3, limit: 2, type: 9, serial: 8))
    }

    @Test func errorsOfFramesPassAsTheyAre() throws {
        struct Own: FrameCodec {
            static let error = FrameError.payloadTooLarge(length: 9, limit: 8, type: 7, serial: 6)

            mutating func decode(
                _ bytes: inout ByteBuffer,
                _ direction: FrameDirection,
                maximumPayloadLength: Int
            ) throws -> Frame? { throw Self.error }

            func encode(_ frame: Frame, _ direction: FrameDirection, into bytes: inout ByteBuffer) throws {}
        }
        let format = try WireFormat(codec: Own(), rules: .init(name: "own", hasStatus: true))
        #expect(self.setup(format).decode([[1]]).error == Own.error)
    }

    // MARK: Encoding

    @Test(
        arguments: [
            (.writesNothing, "has written nothing for"), (.refusesEverything, "it is broken"),
        ] as [(FaultyCodec.Fault, String)]
    )
    func framesThatCannotBeEncodedAreReported(fault: FaultyCodec.Fault, message: String) throws {
        let format = try WireFormat.faulty(fault)
        let frame = Frame(type: 101, serial: 50)
        let encoder = FrameEncoder(direction: .request, format: format)
        #expect(encoder.refusal(of: frame)?.code == .codec)
        var bytes = ByteBuffer(string: "before")
        encoder.encode(frame, into: &bytes)
        encoder.encodeHeader(of: frame, into: &bytes)
        encoder.encodeTrailer(of: frame, into: &bytes)
        #expect(String(buffer: bytes) == "before")
        let refusal = format.refusal(of: frame, .request)
        #expect(refusal?.code == .invalidArgument)
        #expect(refusal?.serial == 50)
        #expect(refusal?.message.contains(message) == true)
        #expect(WireFormat.standard.refusal(of: frame, .request) == nil)
    }

    // MARK: Formats

    struct Wrong: Sendable, CustomTestStringConvertible {
        var rule: WireFormatError.Rule
        var change: @Sendable (inout WireFormat.Rules) -> Void
        var testDescription: String { "\(self.rule)" }

        init(_ rule: WireFormatError.Rule, _ change: @escaping @Sendable (inout WireFormat.Rules) -> Void) {
            self.rule = rule
            self.change = change
        }
    }

    @Test(
        arguments: [
            Wrong(.serialZero) { $0.requestSerials = 0...9 }, Wrong(.pushIsResponse) { $0.push = .init(serial: 60) },
            Wrong(.pushWithoutFlags) { $0.push = .init(flag: 1) }, Wrong(.pushTypes) { $0.push = .init(types: 1...2) },
            Wrong(.pushWithoutType) {
                $0.responsesHaveType = false
                $0.push = .init(serial: 1)
            },
            Wrong(.heartbeatSerial) { $0.heartbeat = .init(type: 0, pingedBy: .client, clientSerial: 50) },
            Wrong(.bothPingWithoutStatus) { $0.heartbeat = .init(type: 0, pingedBy: .both) },
            Wrong(.noApplicationTypes) {
                $0.applicationTypes = 7...7
                $0.cancel = .init(type: 7)
            },
            Wrong(.heartbeatIsCancel) {
                $0.heartbeat = .init(type: 0, pingedBy: .client)
                $0.cancel = .init(type: 0)
            },
        ]
    )
    func rulesThatCannotWorkAreRefused(_ wrong: Wrong) throws {
        var rules = WireFormat.Rules(name: "wrong", hasStatus: false)
        _ = try WireFormat(codec: NetstringCodec(), rules: rules)
        wrong.change(&rules)
        let error = #expect(throws: WireFormatError.self) { try WireFormat(codec: NetstringCodec(), rules: rules) }
        #expect(error?.rule == wrong.rule)
    }

    @Test(
        arguments: [
            (.writesNothing, "written nothing"), (.refusesEverything, "it is broken"),
            (.keepsItsBytes, "without taking"),
            (.writesAnotherSerial, "decoded as frame type 0 serial 1"), (.waitsForEver, "the beginning of a frame"),
            (.writesNoStatus, "a server's ping (frame type 0 serial 5 status 0 0 B) is encoded, but then decoded as"),
        ] as [(FaultyCodec.Fault, String)]
    )
    func codecThatDoesNotHaveItsRulesFramesIsRefused(fault: FaultyCodec.Fault, message: String) {
        let error = #expect(throws: WireFormatError.self) { try NetstringCodec.format(FaultyCodec(fault)) }
        #expect(error?.rule == .codec)
        #expect(error?.message.contains(message) == true, "\(error?.message ?? "")")
    }

    @Test func aFormatEqualsItselfAndIsNoData() throws {
        let (one, other) = (try NetstringCodec.format(), try NetstringCodec.format())
        let copy = one
        #expect(one == copy)
        #expect(one != other)
        #expect(try one != WireFormat(one.layout))
        #expect(Set([one, copy, other]).count == 2)
        #expect(one.hasCodec)
        #expect(!WireFormat.standard.hasCodec)
        #expect(one.description == "netstring")
        #expect(one.json == "{}")
        #expect(throws: EncodingError.self) { try JSONEncoder().encode(one) }
        let error = #expect(throws: WireFormatError.self) { try WireFormat(json: one.json.utf8) }
        #expect(error?.rule == .malformed)
        // A codec with the rules of the standard format is not equal to it.
        let standard = WireFormat.standard.layout
        let rules = WireFormat.Rules(
            name: "standard",
            hasStatus: true,
            heartbeat: standard.heartbeat,
            push: standard.push,
            cancel: standard.cancel
        )
        let like = try WireFormat(codec: NetstringCodec(), rules: rules)
        #expect(like != .standard)
        #expect(!FrameEncoder(direction: .request, format: like).isStandard)
    }

    @Test func neitherHelloNorASubprotocolNorASharedPort() throws {
        let format = try NetstringCodec.format()
        #expect(!format.supportsHello)
        #expect(format.subprotocol == nil)
        #expect(format.mayBeginWithLetter)
        #expect(!format.resynchronises)
        #expect(format.largestPayload(in: .request) == Int(Int32.max))
    }
}
