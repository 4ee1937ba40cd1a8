import NIOCore
import TestSupport

@testable import HHSocket

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

/// The two ways to use a decoder.
enum DecoderUse: CaseIterable, CustomStringConvertible {
    /// `append` and `next`.
    case owned
    /// `decode`, whose frames are copied here so that they can be compared.
    case borrowed

    var description: String {
        switch self {
        case .owned: "owned"
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
            DecoderSetup(direction: direction, use: .borrowed, copyLimit: FrameDecoder.defaultCopyLimit),
        ]
    }

    var description: String { "\(self.direction)s, \(self.use), copies up to \(self.copyLimit) B" }

    func decoder(maximumPayloadLength: Int = Frame.defaultMaximumPayloadLength) -> FrameDecoder {
        FrameDecoder(
            direction: self.direction,
            format: self.format,
            maximumPayloadLength: maximumPayloadLength,
            copyLimit: self.copyLimit,
            maximumCorruptRun: self.maximumCorruptRun
        )
    }

    /// What a new decoder makes of a stream that arrives in `pieces`.
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

/// What came out of a decoder.
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
    /// Feeds one piece and collects what it completes.
    mutating func feed(_ piece: ArraySlice<UInt8>, by use: DecoderUse, into decoded: inout Decoded) {
        do throws(FrameError) {
            switch use {
            case .owned:
                self.append(ByteBuffer(bytes: piece))
                while let output = try self.next() { decoded.outputs.append(output) }
            case .borrowed:
                var outputs: [Output] = []
                defer { decoded.outputs += outputs }
                let buffer = ByteBuffer(bytes: piece)
                // The unsafe closure of a buffer cannot rethrow a typed error.
                let result = buffer.withUnsafeReadableBytes { bytes -> Result<Void, FrameError> in
                    do throws(FrameError) {
                        return .success(try self.decode(bytes) { outputs.append(Output(copying: $0)) })
                    } catch {
                        return .failure(error)
                    }
                }
                try result.get()
            }
        } catch {
            decoded.error = error
        }
    }
}

extension FrameDecoder.Output {
    init(copying view: FrameDecoder.View) {
        let frame = Frame(
            type: view.type,
            serial: view.serial,
            status: view.status,
            payload: ByteBuffer(bytes: view.payload)
        )
        self = view.mismatch.map { .corrupt(frame, $0) } ?? .frame(frame)
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
func randomFrames(payloadLengths: [Int], direction: FrameDirection, seed: UInt64) -> [Frame] {
    var random = SeededGenerator(seed: seed)
    return payloadLengths.map { length in
        Frame(
            type: UInt32.random(in: FrameType.application, using: &random),
            serial: UInt32.random(in: FrameSerial.firstRequest...UInt32.max, using: &random),
            status: direction == .request
                ? .ok : Status(rawValue: UInt32.random(in: 0...UInt32.max, using: &random)),
            payload: ByteBuffer(bytes: random.bytes(length))
        )
    }
}
