import NIOCore

@testable import InstrumentedHHSocket

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
        require(decoded.lengths.count == decoded.outputs.count, "a length for each frame")
        let encoder = setup.encoder
        var rest = stream
        for (output, length) in zip(decoded.outputs, decoded.lengths) {
            let original = rest.prefix(length)
            rest = rest.dropFirst(length)
            guard case .frame(let frame) = output else { continue }
            var encoded = ByteBuffer()
            encoder.encode(frame, into: &encoded)
            let expected = encoder.encodedLength(payloadLength: frame.payload.readableBytes)
            require(encoded.readableBytes == expected, "\(encoded.readableBytes) bytes instead of \(expected)")
            // A header longer than the layout says is written without what it had beyond that.
            guard length == expected else { continue }
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
