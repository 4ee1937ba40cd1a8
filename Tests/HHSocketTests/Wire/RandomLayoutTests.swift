// SPDX-License-Identifier: Apache-2.0
import HHSocketFormats
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// Encoded frames of any layout are decoded at every split.
@Suite struct RandomLayoutTests {
    static func randomLayout(_ random: inout SeededGenerator) -> WireFormat.Layout {
        func order() -> WireFormat.ByteOrder { Bool.random(using: &random) ? .big : .little }
        /// A random notation of a number, and whether its length varies, so that a separator must follow.
        func number(least: Int) -> (WireFormat.Number, isOpen: Bool) {
            switch Int.random(in: 0..<10, using: &random) {
            case 0: (.decimal, true)
            case 1: (.hexadecimal, true)
            case 2: (.decimal(digits: Int.random(in: 3 * least...20, using: &random)), false)
            case 3: (.hexadecimal(digits: Int.random(in: 2 * least...20, using: &random)), false)
            case 4...7: (.integer(order()), false)
            default:
                (
                    .integer(bytes: [1, 2, 3, 8].filter { $0 >= least }.randomElement(using: &random) ?? 8, order()),
                    false
                )
            }
        }
        let customs = (0..<Int.random(in: 0...2, using: &random)).map { number in
            WireFormat.Field.custom("field \(number)", bytes: Int.random(in: 1...9, using: &random))
        }
        func header(status: Bool, type: Bool) -> [WireFormat.Field] {
            // Each field with the ones that must follow it.
            var fields: [[WireFormat.Field]] = []
            func add(_ make: (WireFormat.Number) -> WireFormat.Field, least: Int = 1) {
                let (number, isOpen) = number(least: least)
                fields.append(
                    [make(number)]
                        + (isOpen
                            ? [.constant([[0x2D], [0x0D, 0x0A], [0]].randomElement(using: &random) ?? [0])] : [])
                )
            }
            if type { add { .type($0) } }
            add { .serial($0) }
            add({ .length($0) }, least: 2)
            if status { add { .status($0) } }
            if Bool.random(using: &random) {
                fields.append([.flags(0, bytes: [1, 2, 4].randomElement(using: &random) ?? 1)])
            }
            for custom in customs where Bool.random(using: &random) { fields.append([custom]) }
            for _ in 0..<Int.random(in: 0...2, using: &random) {
                fields.append([.constant(random.bytes(Int.random(in: 1...5, using: &random)))])
            }
            if Bool.random(using: &random), fields.joined().allSatisfy({ $0.width != nil }) {
                let length = fields.joined().reduce(4) { $0 + $1.largestWidth }
                fields.append([.headerLength(upTo: length + Int.random(in: 0...9, using: &random), order())])
            }
            return Array(fields.shuffled(using: &random).joined())
        }
        let responseStatus = Bool.random(using: &random)
        let checksum = WireFormat.Checksum(
            WireFormat.Checksum.Algorithm.allCases.randomElement(using: &random) ?? .crc32,
            width: Bool.random(using: &random) ? 4 : 8,
            order()
        )
        let tail = Int.random(in: 0..<3, using: &random) == 0 ? order() : nil
        let request = header(status: responseStatus && Bool.random(using: &random), type: true)
        let response = header(status: responseStatus, type: tail != nil || Int.random(in: 0..<5, using: &random) > 0)
        let hasOpenLength = [request, response].contains { $0.number(of: .length)?.width == nil }
        let scopes = WireFormat.LengthScope.allCases.filter { $0 != .frame || !hasOpenLength }
        return WireFormat.Layout(
            name: "random",
            request: request,
            response: response,
            lengthCounts: scopes.randomElement(using: &random) ?? .payload,
            checksum: Int.random(in: 0..<4, using: &random) == 0 ? nil : checksum,
            tail: tail,
            bodyEnd: Int.random(in: 0..<3, using: &random) == 0
                ? random.bytes(Int.random(in: 1...4, using: &random)) : nil,
            okStatus: responseStatus && Bool.random(using: &random) ? 0 : 200,
            statuses: responseStatus && Bool.random(using: &random) ? [1: .noPermission, 5: .unknown] : [:]
        )
    }

    @Test(arguments: 0..<20)
    func encodedFramesAreDecodedAtEverySplit(part: Int) throws {
        let count = scaled(5)
        for seed in UInt64(part * count)..<UInt64(part * count + count) {
            var random = SeededGenerator(seed: 1_000 + seed)
            let layout = Self.randomLayout(&random)
            let format = try WireFormat(layout)
            #expect(try WireFormat(json: format.json.utf8) == format)
            for direction in [FrameDirection.request, .response] {
                let frames = randomFrames(
                    payloadLengths: [0, Int.random(in: 0...20, using: &random), 3],
                    direction: direction,
                    seed: seed,
                    format: format
                )
                let encoder = FrameEncoder(direction: direction, format: format)
                let stream = encoder.encode(frames)
                let expected = Decoded(outputs: frames.map { .frame($0) })
                #expect(stream.count == frames.reduce(0) { $0 + encoder.encodedLength(of: $1) })
                for frame in frames {
                    let most = encoder.encodedLength(payloadLength: frame.payload.readableBytes)
                    #expect(encoder.encodedLength(of: frame) <= most)
                }
                for setup in DecoderSetup.all(format, direction) {
                    #expect(setup.decode([stream[...]]) == expected, "seed \(seed)")
                    #expect(setup.decodeOneByOne(stream) == expected, "seed \(seed)")
                    // The others differ only in copying.
                    guard setup.copyLimit == FrameDecoder.defaultCopyLimit else { continue }
                    for cut in 0...stream.count {
                        let decoded = setup.decode([stream[..<cut], stream[cut...]])
                        guard decoded != expected else { continue }
                        Issue.record("seed \(seed), cut at \(cut): \(decoded)")
                        return
                    }
                }
            }
        }
    }

    @Test func aPieceByPieceEncodedFrameIsTheSame() throws {
        for seed in 0..<100 as Range<UInt64> {
            var random = SeededGenerator(seed: seed)
            let format = try WireFormat(Self.randomLayout(&random))
            for direction in [FrameDirection.request, .response] {
                let encoder = FrameEncoder(direction: direction, format: format)
                for frame in randomFrames(
                    payloadLengths: [0, 33],
                    direction: direction,
                    seed: seed,
                    format: format
                ) {
                    var buffer = ByteBuffer()
                    encoder.encodeHeader(of: frame, into: &buffer)
                    buffer.writeImmutableBuffer(frame.payload)
                    encoder.encodeTrailer(of: frame, into: &buffer)
                    #expect(Array(buffer.readableBytesView) == encoder.encode([frame]))
                }
            }
        }
    }

    @Test func everyBitOfAChecksumMatters() throws {
        for algorithm in WireFormat.Checksum.Algorithm.allCases {
            for width in [4, 8] {
                for order in [WireFormat.ByteOrder.big, .little] {
                    let format = try WireFormat(
                        .init(
                            name: "checked",
                            request: [.type(), .serial(), .length()],
                            response: [.type(), .serial(), .length()],
                            checksum: .init(algorithm, width: width, order),
                            tail: .big
                        )
                    )
                    let frame = Frame(type: 1000, serial: 50, payload: ByteBuffer(string: "hello"))
                    let next = Frame(type: 1001, serial: 51)
                    let sound = FrameEncoder(direction: .request, format: format).encode([frame, next])
                    for bit in 0..<width * 8 {
                        var stream = sound
                        stream[17 + bit / 8] ^= 1 << UInt8(bit % 8)
                        for setup in DecoderSetup.all(format, .request) {
                            let decoded = setup.decode([stream[...]])
                            guard decoded.outputs.count == 2, decoded.outputs[1] == .frame(next),
                                case .corrupt(frame, let mismatch) = decoded.outputs[0]
                            else {
                                Issue.record("\(algorithm), \(width) bytes, bit \(bit): \(decoded)")
                                return
                            }
                            #expect(mismatch.received != mismatch.computed)
                            #expect(setup.decodeOneByOne(stream) == decoded)
                        }
                    }
                }
            }
        }
    }
}
