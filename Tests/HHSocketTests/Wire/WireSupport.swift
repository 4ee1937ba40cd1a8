// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import NIOCore
import TestSupport

@testable import HHSocket
@testable import HHSocketLink

/// Bytes written as hexadecimal digits; spaces and line ends are for the reader.
func bytes(hex text: String) -> [UInt8] {
    var bytes: [UInt8] = []
    var high: Int?
    for digit in text where !digit.isWhitespace {
        guard let value = digit.hexDigitValue else { preconditionFailure("\(digit) is no hexadecimal digit") }
        if let first = high {
            bytes.append(UInt8(first << 4 | value))
            high = nil
        } else {
            high = value
        }
    }
    precondition(high == nil, "an odd number of digits")
    return bytes
}

/// The ways to use a decoder.
enum DecoderUse: CaseIterable, CustomStringConvertible {
    /// `append` and `next`.
    case owned
    /// `append`, and `soundHeader` and `takePayload` as far as they go, with `next` for the rest.
    case parts
    /// `decode`, whose frames are copied here so that they can be compared.
    case borrowed

    var description: String {
        switch self {
        case .owned: "owned"
        case .parts: "in parts"
        case .borrowed: "borrowed"
        }
    }
}

/// One way to set up and use a decoder; tests run over all of them.
struct DecoderSetup: CustomStringConvertible, Sendable {
    var direction: FrameDirection
    var use: DecoderUse
    var copyLimit: Int
    var format = WireFormat.standard
    var maximumCorruptRun = FrameDecoder.defaultMaximumCorruptRun

    static let all: [DecoderSetup] = [FrameDirection.request, .response].flatMap { direction in
        [
            DecoderSetup(direction: direction, use: .owned, copyLimit: 0),
            DecoderSetup(direction: direction, use: .owned, copyLimit: FrameDecoder.defaultCopyLimit),
            DecoderSetup(direction: direction, use: .owned, copyLimit: 1 << 20),
            DecoderSetup(direction: direction, use: .parts, copyLimit: 0),
            DecoderSetup(direction: direction, use: .parts, copyLimit: FrameDecoder.defaultCopyLimit),
            DecoderSetup(direction: direction, use: .borrowed, copyLimit: FrameDecoder.defaultCopyLimit),
        ]
    }

    var description: String {
        "\(self.format) \(self.direction)s, \(self.use), copies up to \(self.copyLimit) B"
    }

    /// Both ways to use a decoder, with and without copies.
    static func all(_ format: WireFormat, _ direction: FrameDirection) -> [DecoderSetup] {
        self.all.filter { $0.direction == direction }
            .map { setup in
                var setup = setup
                setup.format = format
                return setup
            }
    }

    /// Decodes `bytes` that arrive one by one with a new decoder.
    func decodeOneByOne(_ bytes: [UInt8]) -> Decoded { self.decode(bytes.indices.map { bytes[$0...$0] }) }

    func decoder(maximumPayloadLength: Int = Frame.defaultMaximumPayloadLength) -> FrameDecoder {
        FrameDecoder(
            direction: self.direction,
            format: self.format,
            maximumPayloadLength: maximumPayloadLength,
            copyLimit: self.copyLimit,
            maximumCorruptRun: self.maximumCorruptRun
        )
    }

    /// Decodes a stream that arrives in `pieces` with a new decoder.
    func decode(_ pieces: [ArraySlice<UInt8>]) -> Decoded {
        var decoder = self.decoder()
        var decoded = Decoded()
        for piece in pieces {
            decoder.feed(piece, by: self.use, into: &decoded)
            if decoded.error != nil { break }
        }
        return decoded
    }
}

/// The output of a decoder.
struct Decoded: Equatable {
    var outputs: [FrameDecoder.Output] = []
    var error: FrameError?

    var frames: [Frame] {
        self.outputs.compactMap {
            if case .frame(let frame) = $0 { frame } else { nil }
        }
    }
}

extension FrameDecoder {
    mutating func soundHeader(where isWanted: (FrameHeader) -> Bool = { _ in true }) -> FrameHeader? {
        self.input.withUnsafeReadableBytes { self.soundHeader(in: $0, where: isWanted) }
    }

    /// Feeds one piece and collects the completed frames.
    mutating func feed(_ piece: ArraySlice<UInt8>, by use: DecoderUse, into decoded: inout Decoded) {
        do throws(FrameError) {
            switch use {
            case .owned:
                self.append(ByteBuffer(bytes: piece))
                while let output = try self.next() { decoded.outputs.append(output) }
            case .parts:
                self.append(ByteBuffer(bytes: piece))
                while true {
                    while let header = self.soundHeader() {
                        decoded.outputs.append(.frame(Frame(header, self.takePayload(of: header))))
                    }
                    guard let output = try self.next() else { break }
                    decoded.outputs.append(output)
                }
            case .borrowed:
                var outputs: [Output] = []
                defer { decoded.outputs += outputs }
                let buffer = ByteBuffer(bytes: piece)
                let plan = self.plan
                try buffer.withUnsafeReadableBytes { bytes throws(FrameError) in
                    try self.decode(bytes) { outputs.append(Output(copying: $0, plan)) }
                }
            }
        } catch {
            decoded.error = error
        }
    }
}

extension FrameDecoder.Output {
    init(copying view: FrameDecoder.View, _ plan: HeaderPlan?) {
        if let error = view.malformation {
            self = .malformed(error)
            return
        }
        var frame = Frame(
            type: view.type,
            serial: view.serial,
            status: view.status,
            payload: ByteBuffer(bytes: view.payload),
            customFields: plan?.customFields(in: view.header)
        )
        frame.isMarkedAsPush = plan?.isMarkedAsPush(view.header) ?? false
        self = view.mismatch.map { [frame] in .corrupt(frame, $0) } ?? .frame(frame)
    }
}

extension FrameEncoder {
    func encode(_ frames: [Frame]) -> [UInt8] {
        var buffer = ByteBuffer()
        for frame in frames { self.encode(frame, into: &buffer) }
        return Array(buffer.readableBytesView)
    }
}

/// Frames whose payloads have the given lengths and random contents.
func randomFrames(
    payloadLengths: [Int],
    direction: FrameDirection,
    seed: UInt64,
    format: WireFormat = .standard
) -> [Frame] {
    var random = SeededGenerator(seed: seed)
    let plan = format.plan(for: direction)
    let layout = format.layout
    let largestStatus = layout.header(direction).number(of: .status)?.largest
    return payloadLengths.map { length in
        Frame(
            type: plan.hasType
                ? UInt32.random(in: layout.applicationTypes, using: &random) : layout.applicationTypes.lowerBound,
            serial: UInt32.random(in: layout.requestSerials, using: &random),
            status: largestStatus.map { plan.statuses.decoded(UInt32.random(in: 0...$0, using: &random)) } ?? .ok,
            payload: ByteBuffer(bytes: random.bytes(length)),
            customFields: plan.customLength == 0 ? nil : random.bytes(plan.customLength)
        )
    }
}
