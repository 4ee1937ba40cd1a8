// SPDX-License-Identifier: Apache-2.0
import NIOCore

@testable import InstrumentedHHSocketLink

/// Any bytes as a stream.
enum StreamFuzz {
    static func run(_ bytes: [UInt8], format: WireFormat?) {
        var input = Input(bytes)
        guard let format = format ?? input.format() else { return }
        let setup = Setup(&input, format: format)
        let pieces = input.pieceSizes()
        let stream = input.rest
        let decoded = setup.decodeInEveryWay(stream, pieces: pieces)
        self.checkThatFramesBecomeTheSameBytes(decoded, setup, stream)
    }

    private static func checkThatFramesBecomeTheSameBytes(
        _ decoded: Decoded,
        _ setup: Setup,
        _ stream: ArraySlice<UInt8>
    ) {
        require(decoded.spans.count == decoded.outputs.count, "a frame has no place")
        let encoder = setup.encoder
        let layout = setup.format.layout
        // Digits have leading zeros and two cases, other flags than ours are accepted, and statuses may have one
        // meaning.
        let isUnique =
            layout.statuses.isEmpty
            && layout.header(setup.direction).allSatisfy { field in
                switch field.kind {
                case .flags: false
                default: !(field.number.map { NumberCode($0).isDigits } ?? false)
                }
            }
        var rest = stream
        for (output, span) in zip(decoded.outputs, decoded.spans) {
            rest = rest.dropFirst(span.skipped)
            let original = rest.prefix(span.length)
            rest = rest.dropFirst(span.length)
            guard case .frame(let frame) = output else { continue }
            var encoded = ByteBuffer()
            encoder.encode(frame, into: &encoded)
            let expected = encoder.encodedLength(of: frame)
            require(encoded.readableBytes == expected, "\(encoded.readableBytes) bytes instead of \(expected)")
            let most = encoder.encodedLength(payloadLength: frame.payload.readableBytes)
            require(expected <= most, "\(expected) bytes, and \(most) at most")
            var decoder = setup.decoder()
            decoder.append(encoded)
            require((try? decoder.next()) == .frame(frame), "\(frame) became \(encoded), and that another frame")
            // A header longer than in the layout is written without the excess.
            guard isUnique, span.length == expected else { continue }
            require(
                encoded.readableBytesView.elementsEqual(original),
                "\(frame) of \(Array(original)) became \(encoded)"
            )

            var pieces = ByteBuffer()
            encoder.encodeHeader(of: frame, into: &pieces)
            pieces.writeImmutableBuffer(frame.payload)
            encoder.encodeTrailer(of: frame, into: &pieces)
            require(pieces == encoded, "\(frame) encoded in pieces became \(pieces) and not \(encoded)")
        }
    }
}
