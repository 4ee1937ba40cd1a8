// SPDX-License-Identifier: Apache-2.0
import NIOCore
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// The preset of text headers and separators, whose bytes were written by hand.
@Suite struct SeparatedGoldenTests {
    static let golden: [(FrameDirection, Frame, String)] = [
        (.request, Frame(type: 1000, serial: 50, payload: ByteBuffer(string: "hello")), "1000-50-5-\r\nhello-\r\n"),
        (.request, Frame(type: 2, serial: 50), "2-50-0-\r\n-\r\n"),
        (.request, Frame(type: 0, serial: 0), "0-0-0-\r\n-\r\n"),
        (
            .request, Frame(type: 16, serial: .max, payload: ByteBuffer(string: "a-\r\nb")),
            "16-4294967295-5-\r\na-\r\nb-\r\n"
        ),
        (
            .response, Frame(type: 1000, serial: 50, payload: ByteBuffer(string: "hi")),
            "1000-50-200-2-\r\nhi-\r\n"
        ),
        (
            .response, Frame(type: 1000, serial: 51, status: .undefinedType), "1000-51-401-0-\r\n-\r\n"
        ),
        (
            .response, Frame(type: 2001, serial: 1, payload: ByteBuffer(string: "-\r\n")),
            "2001-1-200-3-\r\n-\r\n-\r\n"
        ),
        (.response, Frame(type: 0, serial: 5, status: .ping), "0-5-0-0-\r\n-\r\n"),
    ]

    @Test(arguments: 0..<golden.count)
    func framesAreTheseBytes(index: Int) {
        let (direction, frame, text) = Self.golden[index]
        let encoder = FrameEncoder(direction: direction, format: .separated)
        #expect(String(decoding: encoder.encode([frame]), as: UTF8.self) == text)
        #expect(encoder.encodedLength(of: frame) == text.utf8.count)
        for setup in DecoderSetup.all(.separated, direction) {
            let stream = Array((text + text).utf8)
            let expected = Decoded(outputs: [.frame(frame), .frame(frame)])
            #expect(setup.decodeOneByOne(stream) == expected)
            for cut in 0...stream.count {
                #expect(setup.decode([stream[..<cut], stream[cut...]]) == expected, "cut at \(cut)")
            }
        }
    }

    @Test func leadingZerosAreRead() {
        let frame = Frame(type: 1000, serial: 50, payload: ByteBuffer(string: "hi"))
        for setup in DecoderSetup.all(.separated, .request) {
            #expect(setup.decodeOneByOne(Array("001000-00000000000050-02-\r\nhi-\r\n".utf8)).frames == [frame])
        }
    }

    @Test func aPieceByPieceEncodedFrameIsTheSame() {
        let encoder = FrameEncoder(direction: .response, format: .separated)
        for (_, frame, text) in Self.golden where text.split(separator: "-").count > 3 {
            var buffer = ByteBuffer()
            encoder.encodeHeader(of: frame, into: &buffer)
            buffer.writeImmutableBuffer(frame.payload)
            encoder.encodeTrailer(of: frame, into: &buffer)
            #expect(Array(buffer.readableBytesView) == encoder.encode([frame]))
        }
    }
}

/// In a format with separators, damage loses only the damaged frames.
@Suite struct ResynchronisationTests {
    private static let good = Frame(type: 1000, serial: 77, payload: ByteBuffer(string: "fine"))
    private static let goodText = "1000-77-4-\r\nfine-\r\n"

    struct Damage: Sendable, CustomTestStringConvertible {
        var text: String
        /// The code, type and serial of each malformed stretch.
        var expected: [Expected]
        var testDescription: String { self.text.debugDescription }

        struct Expected: Sendable, Equatable {
            var code: String
            var type: UInt32?
            var serial: UInt32?

            init(_ code: FrameError.Code, _ type: UInt32? = nil, _ serial: UInt32? = nil) {
                self.code = "\(code)"
                self.type = type
                self.serial = serial
            }
        }

        init(_ text: String, _ expected: Expected...) {
            self.text = text
            self.expected = expected
        }
    }

    static let damages: [Damage] = [
        // Lengths that are too short or too long by one.
        Damage("1000-50-4-\r\nhello-\r\n", .init(.wrongEnd, 1000, 50)),
        Damage("1000-50-6-\r\nhello-\r\n", .init(.wrongEnd, 1000, 50)),
        Damage("1000-50-0-\r\nhello-\r\n", .init(.wrongEnd, 1000, 50)),
        // The end is damaged: the bytes up to the next separator belong to the stretch.
        Damage("1000-50-5-\r\nhello-\r\r1000-51-2-\r\nhi-\r\n", .init(.wrongEnd, 1000, 50), .init(.illegalNumber)),
        // A length over the limit, and one over 32 bits.
        Damage("1000-50-99999999-\r\nhello-\r\n", .init(.payloadTooLarge, 1000, 50)),
        Damage("1000-50-99999999999-\r\nhello-\r\n", .init(.illegalNumber), .init(.illegalNumber)),
        // No header.
        Damage("-\r\n", .init(.illegalNumber)),
        Damage("nonsense-\r\n", .init(.illegalNumber)),
        Damage("1000 50 5-\r\nhello-\r\n", .init(.wrongConstant), .init(.illegalNumber)),
        Damage("1000-50--\r\n-\r\n", .init(.illegalNumber), .init(.illegalNumber)),
        Damage("+1000-50-0-\r\n-\r\n", .init(.illegalNumber), .init(.illegalNumber)),
        Damage("\r\n-\r\n", .init(.illegalNumber)),
        // The body of a frame without a header may look like a frame.
        Damage("x-\r\n1000-50-2-\r\nhi-\r\n", .init(.illegalNumber)),
    ]

    @Test(arguments: damages)
    func aDamagedFrameIsLostAlone(_ damage: Damage) {
        let stream = Array((Self.goodText + damage.text + Self.goodText + Self.goodText).utf8)
        var reference: Decoded?
        for setup in DecoderSetup.all(.separated, .request) {
            let whole = setup.decode([stream[...]])
            #expect(whole.error == nil)
            let found = whole.outputs.compactMap { output -> Damage.Expected? in
                guard case .malformed(let error) = output else { return nil }
                return .init(error.code, error.type, error.serial)
            }
            #expect(found == damage.expected, "\(setup): \(whole)")
            #expect(whole.frames.filter { $0 == Self.good }.count == 3)
            // The division of the stream does not matter.
            #expect(setup.decodeOneByOne(stream) == whole)
            for cut in 0...stream.count {
                guard setup.decode([stream[..<cut], stream[cut...]]) != whole else { continue }
                Issue.record("\(setup): cut at \(cut)")
                break
            }
            // Borrowed and owned frames agree.
            if let reference { #expect(whole == reference) } else { reference = whole }
        }
    }

    @Test func aRunOfStretchesEndsTheStream() {
        let stream = Array("1-\r\n2-\r\n3-\r\n\(Self.goodText)".utf8)
        for setup in DecoderSetup.all(.separated, .request) {
            let decoded = setup.decode([stream[...]])
            #expect(decoded.outputs.count == 3)
            #expect(decoded.error?.code == .corruptRun)
            #expect(setup.decodeOneByOne(stream) == decoded)
        }
    }

    @Test func aGoodFrameEndsTheRun() {
        let stream = Array(("x-\r\ny-\r\n" + Self.goodText).utf8)
        for setup in DecoderSetup.all(.separated, .request) {
            let decoded = setup.decode([(stream + stream + stream)[...]])
            #expect(decoded.error == nil)
            #expect(decoded.frames.count == 3)
        }
    }

    /// A format with separators whose headers announce their length.
    private static func announcing() throws -> WireFormat {
        let fields: [WireFormat.Field] = [.type(), .serial(), .length(), .headerLength(upTo: 24)]
        return try WireFormat(
            .init(name: "announcing", request: fields, response: fields + [.status()], bodyEnd: [0x0D, 0x0A])
        )
    }

    /// The search goes on behind the header, of which bytes may be missing.
    @Test func aHeaderThatAnnouncesMoreThanHasArrivedIsWaitedFor() throws {
        let format = try Self.announcing()
        let tooLong = bytes(hex: "000003E8 00000032 7FFFFFFF 00000014 61626364") + Array("rest\r\n".utf8)
        let stream = tooLong + FrameEncoder(direction: .request, format: format).encode([Self.good])
        for setup in DecoderSetup.all(format, .request) {
            let whole = setup.decode([stream[...]])
            #expect(whole.error == nil)
            #expect(whole.outputs.count == 2 && whole.frames == [Self.good], "\(setup): \(whole)")
            #expect(setup.decodeOneByOne(stream) == whole)
            for cut in 0...stream.count {
                #expect(setup.decode([stream[..<cut], stream[cut...]]) == whole, "\(setup): cut at \(cut)")
            }
        }
    }

    /// The length of an incomplete frame is not trusted, but its header is not behind bytes that are not there.
    @Test func aFrameWhoseHeaderIsIncompleteIsNotGivenUp() throws {
        var decoder = FrameDecoder(direction: .request, format: try Self.announcing())
        decoder.append(ByteBuffer(bytes: bytes(hex: "000003E8 00000032 00000010 00000014 6162")))
        #expect(try decoder.next() == nil)
        var isGivenUp = decoder.giveUp()
        #expect(!isGivenUp)
        decoder.append(ByteBuffer(bytes: bytes(hex: "6364 00")))
        #expect(try decoder.next() == nil)
        isGivenUp = decoder.giveUp()
        #expect(isGivenUp)
    }

    @Test func aHeaderWithoutAnEndIsRefusedAndGarbageIsNotKept() throws {
        for setup in DecoderSetup.all(.separated, .request) {
            var decoder = setup.decoder()
            var decoded = Decoded()
            let zeros = [UInt8](repeating: UInt8(ascii: "0"), count: 100_000)
            decoder.feed(zeros[...], by: setup.use, into: &decoded)
            #expect(decoder.bufferedBytes < 1_100)
            for byte in zeros.prefix(2_000) { decoder.feed([byte][...], by: setup.use, into: &decoded) }
            #expect(decoder.bufferedBytes < 1_100)
            guard case .malformed(let error)? = decoded.outputs.first, decoded.outputs.count == 1 else {
                Issue.record("\(decoded)")
                return
            }
            #expect(error.code == .headerTooLong)
            decoder.feed(Array(("-\r\n" + Self.goodText).utf8)[...], by: setup.use, into: &decoded)
            #expect(decoded.frames == [Self.good])
        }
    }

    /// A header of 1,024 bytes is the longest.
    @Test(arguments: [(1_024, true), (1_025, false)])
    func theLongestHeader(length: Int, isSound: Bool) {
        let rest = "1000-77-4-\r\n"
        let text = String(repeating: "0", count: length - rest.utf8.count) + rest + "fine-\r\n"
        for setup in DecoderSetup.all(.separated, .request) {
            let whole = setup.decode([Array(text.utf8)[...]])
            #expect((whole.frames == [Self.good]) == isSound)
            #expect(setup.decodeOneByOne(Array(text.utf8)) == whole)
        }
    }

    @Test func aFrameThatIsGivenUpReleasesWhatItsLengthWithheld() throws {
        for setup in DecoderSetup.all(.separated, .request) where setup.use == .owned {
            var decoder = setup.decoder()
            // Its wrong length includes two frames.
            decoder.append(ByteBuffer(string: "1000-50-500-\r\nhello-\r\n\(Self.goodText)\(Self.goodText)"))
            #expect(try decoder.next() == nil)
            #expect(decoder.arriving()?.serial == 50)
            var isGivenUp = decoder.giveUp { $0.serial == 51 }
            #expect(!isGivenUp)
            isGivenUp = decoder.giveUp { $0.serial == 50 }
            #expect(isGivenUp)
            guard case .malformed(let error)? = try decoder.next() else {
                Issue.record("nothing was given up")
                return
            }
            #expect((error.code, error.type, error.serial) == (.givenUp, 1000, 50))
            #expect(try decoder.next() == .frame(Self.good))
            #expect(try decoder.next() == .frame(Self.good))
            #expect(try decoder.next() == nil)
            isGivenUp = decoder.giveUp()
            #expect(!isGivenUp)
        }
    }

    /// Random damage in a long stream: the decoded frames are sent ones, in order.
    @Test func randomDamageLosesLittle() throws {
        for seed in 0..<UInt64(scaled(100)) {
            var random = SeededGenerator(seed: seed)
            let frames = (0..<30).map { index in
                Frame(
                    type: UInt32.random(in: 16...70_000, using: &random),
                    serial: 100 + UInt32(index),
                    payload: ByteBuffer(bytes: random.bytes(Int.random(in: 0...30, using: &random)))
                )
            }
            var stream = FrameEncoder(direction: .request, format: .separated).encode(frames)
            let damaged = Int.random(in: 0..<stream.count, using: &random)
            stream[damaged] ^= UInt8.random(in: 1...255, using: &random)
            for setup in DecoderSetup.all(.separated, .request) {
                let decoded = setup.decode([stream[...]])
                #expect(setup.decodeOneByOne(stream) == decoded, "seed \(seed)")
                guard decoded.error == nil else { continue }
                let known = decoded.frames.filter(frames.contains)
                var rest = known[...]
                for frame in frames where rest.first == frame { rest = rest.dropFirst() }
                #expect(rest.isEmpty, "seed \(seed): not in order: \(decoded)")
                // Neither type nor serial is protected, and a part of a body may look like a frame.
                #expect(decoded.frames.count - known.count <= 2, "seed \(seed): \(decoded)")
            }
        }
    }
}
