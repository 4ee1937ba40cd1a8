// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

extension GoldenFrame {
    private static let hello = ByteBuffer(string: "hello")
    private static let sessionID: [UInt8] = [0xDE, 0xAD, 0xBE, 0xEF]
    /// Mars' client version, 200.
    private static let version: [UInt8] = [0, 0, 0, 200]

    private static var tgcdWithSessionID: WireFormat { WireFormat(known: .tgcd(sessionIDLength: 4)) }

    private static func golden(
        _ format: WireFormat,
        _ name: String,
        _ direction: FrameDirection,
        _ frame: Frame,
        _ hex: String
    ) -> GoldenFrame {
        GoldenFrame(name: "\(format): \(name)", direction: direction, frame: frame, hex: hex, format: format)
    }

    /// Frames of the other presets, written by hand as well.
    static let presets: [GoldenFrame] = tgcd + plain + mars

    private static let tgcd: [GoldenFrame] = [
        // type, serial, length, payload, adler32 in 8 bytes, type
        golden(
            .tgcd,
            "a request",
            .request,
            Frame(type: 1000, serial: 50, payload: hello),
            "000003E8 00000032 00000005 68656C6C6F 00000000062C0215 000003E8"
        ),
        golden(
            tgcdWithSessionID,
            "a request with a session id",
            .request,
            Frame(type: 1000, serial: 50, payload: hello, customFields: sessionID),
            "DEADBEEF 000003E8 00000032 00000005 68656C6C6F 00000000062C0215 000003E8"
        ),
        golden(
            .tgcd,
            "a request without payload",
            .request,
            Frame(type: 16, serial: 0xFFFF_FFFF),
            "00000010 FFFFFFFF 00000000 0000000000000001 00000010"
        ),
        golden(
            .tgcd,
            "the client's answer to the server's ping",
            .request,
            Frame(type: 0, serial: 5),
            "00000000 00000005 00000000 0000000000000001 00000000"
        ),
        // type, serial, code, length, payload, adler32 in 8 bytes, type
        golden(
            .tgcd,
            "a response",
            .response,
            Frame(type: 1000, serial: 50, payload: hello),
            "000003E8 00000032 000000C8 00000005 68656C6C6F 00000000062C0215 000003E8"
        ),
        golden(
            .tgcd,
            "a response with an error",
            .response,
            Frame(type: 999, serial: 52, status: .undefinedType),
            "000003E7 00000034 00000191 00000000 0000000000000001 000003E7"
        ),
        golden(
            .tgcd,
            "the server's ping",
            .response,
            Frame(type: 0, serial: 5, status: .ping),
            "00000000 00000005 00000000 00000000 0000000000000001 00000000"
        ),
        golden(
            .tgcd,
            "a push",
            .response,
            Frame(type: 2001, serial: 1, payload: ByteBuffer(string: "hi")),
            "000007D1 00000001 000000C8 00000002 6869 00000000013B00D2 000007D1"
        ),
    ]

    private static let plain: [GoldenFrame] = [
        // type, serial, length, payload
        golden(
            .plain,
            "a request",
            .request,
            Frame(type: 1000, serial: 50, payload: hello),
            "000003E8 00000032 00000005 68656C6C6F"
        ),
        golden(
            .plain,
            "the client's ping",
            .request,
            Frame(type: 0, serial: 0),
            "00000000 00000000 00000000"
        ),
        golden(
            .plain,
            "the client's answer to the server's ping",
            .request,
            Frame(type: 0, serial: 5),
            "00000000 00000005 00000000"
        ),
        golden(
            .plain,
            "the cancelling of request 50",
            .request,
            Frame(type: 2, serial: 50),
            "00000002 00000032 00000000"
        ),
        // type, serial, code, length, payload
        golden(
            .plain,
            "a response",
            .response,
            Frame(type: 1000, serial: 50, payload: hello),
            "000003E8 00000032 000000C8 00000005 68656C6C6F"
        ),
        golden(
            .plain,
            "a response with an error",
            .response,
            Frame(type: 999, serial: 52, status: .undefinedType),
            "000003E7 00000034 00000191 00000000"
        ),
        golden(
            .plain,
            "the answer to the client's ping",
            .response,
            Frame(type: 0, serial: 0),
            "00000000 00000000 000000C8 00000000"
        ),
        golden(
            .plain,
            "the server's ping",
            .response,
            Frame(type: 0, serial: 5, status: .ping),
            "00000000 00000005 00000000 00000000"
        ),
        golden(
            .plain,
            "a push",
            .response,
            Frame(type: 2001, serial: 1, payload: ByteBuffer(string: "hi")),
            "000007D1 00000001 000000C8 00000002 6869"
        ),
    ]

    private static let mars: [GoldenFrame] =
        [FrameDirection.request, .response].flatMap { direction in
            [
                // head length, client version, command, sequence, body length, body
                golden(
                    .mars,
                    "a \(direction)",
                    direction,
                    Frame(type: 1000, serial: 1, payload: hello, customFields: version),
                    "00000014 000000C8 000003E8 00000001 00000005 68656C6C6F"
                ),
                golden(
                    .mars,
                    "the no-op, or its answer, as a \(direction)",
                    direction,
                    Frame(type: 6, serial: 0xFFFF_FFFF, customFields: version),
                    "00000014 000000C8 00000006 FFFFFFFF 00000000"
                ),
            ]
        } + [
            golden(
                .mars,
                "a push",
                .response,
                Frame(type: 2001, serial: 0, payload: ByteBuffer(string: "hi"), customFields: [0, 0, 0, 0]),
                "00000014 00000000 000007D1 00000000 00000002 6869"
            )
        ]
}

@Suite struct PresetFrameTests {
    @Test func presetsBreakNoRule() throws {
        for (name, format) in WireFormat.presets {
            #expect(try WireFormat(format.layout) == format)
            #expect(format.description == name)
        }
        #expect(try WireFormat.tgcd(sessionIDLength: 0) == .tgcd)
        #expect(throws: WireFormatError.self) { try WireFormat.tgcd(sessionIDLength: -1) }
        #expect(throws: WireFormatError.self) { try WireFormat.tgcd(sessionIDLength: .max) }
    }

    @Test func pingsAndCancelsOfThePresets() {
        #expect(WireFormat.standard.clientPing == Frame(type: 0, serial: 0))
        #expect(WireFormat.standard.serverPing == Frame(type: 0, serial: 5, status: .ping))
        #expect(WireFormat.standard.cancel(serial: 50) == Frame(type: 2, serial: 50))
        #expect(WireFormat.plain.clientPing == Frame(type: 0, serial: 0))
        #expect(WireFormat.plain.serverPing == Frame(type: 0, serial: 5, status: .ping))
        #expect(WireFormat.plain.cancel(serial: 50) == Frame(type: 2, serial: 50))
        #expect(WireFormat.tgcd.clientPing == nil)
        #expect(WireFormat.tgcd.serverPing == Frame(type: 0, serial: 5, status: .ping))
        #expect(WireFormat.tgcd.cancel(serial: 50) == nil)
        #expect(WireFormat.mars.clientPing == Frame(type: 6, serial: 0xFFFF_FFFF))
        #expect(WireFormat.mars.serverPing == nil)
        #expect(WireFormat.mars.cancel(serial: 1) == nil)
    }

    @Test(arguments: [
        (WireFormat.standard, Frame(type: 0, serial: 5, status: .ping), true),
        (.standard, Frame(type: 0, serial: 49, status: .ping), true),
        (.standard, Frame(type: 0, serial: 0, status: .ok), false),
        (.standard, Frame(type: 0, serial: 50, status: .ping), false),
        (.standard, Frame(type: 1, serial: 5, status: .ping), false),
        (.tgcd, Frame(type: 0, serial: 5, status: .ping), true),
        (.tgcd, Frame(type: 0, serial: 5, status: .ok), true),
        (.tgcd, Frame(type: 0, serial: 50, status: .ok), false),
        (.mars, Frame(type: 6, serial: 0xFFFF_FFFF), false),
    ])
    func pingsThatAClientRecognises(format: WireFormat, frame: Frame, isPing: Bool) {
        #expect(format.isServerPing(frame) == isPing)
    }

    @Test func typesOfThePresets() {
        for format in [WireFormat.standard, .tgcd, .plain] {
            #expect(format.isApplicationType(16) && format.isApplicationType(0x1FFF_FFFF))
            #expect(!format.isApplicationType(15) && !format.isApplicationType(0x2000_0000))
            #expect(format.isControlType(15) && !format.isControlType(16) && !format.isControlType(0x2000_0000))
        }
        #expect(WireFormat.mars.isApplicationType(0) && WireFormat.mars.isApplicationType(.max))
        #expect(!WireFormat.mars.isApplicationType(6))
        #expect(WireFormat.mars.isControlType(6) && !WireFormat.mars.isControlType(7))
        #expect(WireFormat.mars.isPush(type: 100, serial: 0) && !WireFormat.mars.isPush(type: 100, serial: 1))
        #expect(WireFormat.standard.isPush(type: 100, serial: 1) && !WireFormat.standard.isPush(type: 100, serial: 0))
    }

    /// Mars' clients read a head of the length that it states.
    @Test(arguments: DecoderUse.allCases)
    func aLongerHeadThanOursIsReadAndItsRestSkipped(use: DecoderUse) {
        let stream = bytes(
            hex: """
                00000018 000000C8 000003E8 00000001 00000005 AABBCCDD 68656C6C6F
                00000014 000000C8 000003E8 00000002 00000002 6869
                """
        )
        let version: [UInt8] = [0, 0, 0, 200]
        let expected = Decoded(outputs: [
            .frame(Frame(type: 1000, serial: 1, payload: ByteBuffer(string: "hello"), customFields: version)),
            .frame(Frame(type: 1000, serial: 2, payload: ByteBuffer(string: "hi"), customFields: version)),
        ])
        for setup in DecoderSetup.all(.mars, .response) where setup.use == use {
            #expect(setup.decode([stream[...]]) == expected)
            #expect(setup.decodeOneByOne(stream) == expected)
            for cut in 0...stream.count { #expect(setup.decode([stream[..<cut], stream[cut...]]) == expected) }
        }
    }

    @Test(arguments: [20, 64, 19, 65, 0, 0xFFFF_FFFF] as [UInt32])
    func aHeadLengthOutsideItsRangeIsRefused(length: UInt32) {
        var stream = ByteBuffer()
        stream.writeMultipleIntegers(length, 200 as UInt32, 1000 as UInt32, 1 as UInt32, 0 as UInt32)
        stream.writeRepeatingByte(0xAA, count: 44)
        for setup in DecoderSetup.all(.mars, .request) {
            let decoded = setup.decode([Array(stream.readableBytesView)[...]])
            if (20...64).contains(length) {
                #expect(decoded.outputs.first == .frame(Frame(type: 1000, serial: 1, customFields: [0, 0, 0, 200])))
            } else {
                #expect(decoded.outputs.isEmpty)
                #expect(decoded.error?.code == .headerLength)
                #expect(decoded.error?.message.contains("\(length) bytes") == true)
            }
        }
    }

    static let setups: [DecoderSetup] = [WireFormat.tgcd, .plain, .mars, WireFormat(known: .tgcd(sessionIDLength: 7))]
        .flatMap { format in
            DecoderSetup.all(format, .request) + DecoderSetup.all(format, .response)
        }

    @Test(arguments: setups)
    func everySplitGivesTheSameFrames(_ setup: DecoderSetup) {
        let frames = randomFrames(
            payloadLengths: [0, 1, 3, 0, 1_024, 1_025, 2, 0],
            direction: setup.direction,
            seed: 21,
            format: setup.format
        )
        let encoder = FrameEncoder(direction: setup.direction, format: setup.format)
        let stream = encoder.encode(frames)
        let expected = Decoded(outputs: frames.map { .frame($0) })
        #expect(setup.decode([stream[...]]) == expected)
        #expect(setup.decodeOneByOne(stream) == expected)
        let boundaries = frames.indices.map { encoder.encode(Array(frames[...$0])).count }
        for cut in cuts(stream.count, around: boundaries) {
            let decoded = setup.decode([stream[..<cut], stream[cut...]])
            guard decoded != expected else { continue }
            Issue.record("cut at \(cut): \(decoded)")
            return
        }
        let short = Array(stream.prefix(70))
        let shortExpected = setup.decode([short[...]])
        for first in 0...short.count {
            for second in stride(from: first, through: short.count, by: spaced(4)) {
                guard setup.decode([short[..<first], short[first..<second], short[second...]]) != shortExpected
                else { continue }
                Issue.record("cut at \(first) and \(second)")
                return
            }
        }
    }

    @Test(arguments: setups, [31, 32] as [UInt64])
    func garbageEndsInFramesOrATypedErrorAndIsBounded(_ setup: DecoderSetup, seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let encoder = FrameEncoder(direction: setup.direction, format: setup.format)
        var errors = 0
        var outputs = 0
        for round in 0..<scaled(20) {
            var stream: [UInt8]
            if round.isMultiple(of: 4) {
                stream = random.bytes(Int.random(in: 0...300, using: &random))
            } else {
                // A sound stream with some damage.
                let lengths = (0..<5).map { _ in Int.random(in: 0...60, using: &random) }
                stream = encoder.encode(
                    randomFrames(
                        payloadLengths: lengths,
                        direction: setup.direction,
                        seed: random.next(),
                        format: setup.format
                    )
                )
                for _ in 0..<Int.random(in: 1...4, using: &random) {
                    let index = Int.random(in: stream.indices, using: &random)
                    stream[index] ^= 1 << UInt8.random(in: 0...7, using: &random)
                }
            }
            let reference = setup.decode([stream[...]])
            #expect(setup.decodeOneByOne(stream) == reference)
            outputs += reference.outputs.count
            if reference.error != nil { errors += 1 }
            var decoder = setup.decoder()
            var decoded = Decoded()
            decoder.feed(stream[...], by: setup.use, into: &decoded)
            #expect(decoder.bufferedCapacity <= FrameDecoderTests.allowance(received: stream.count))
        }
        // With less effort there are too few rounds for that.
        #expect(effort < 1 || outputs > 15)
        #expect(effort < 1 || errors > 1)
    }
}
