// SPDX-License-Identifier: Apache-2.0
import NIOCore

@testable import InstrumentedHHSocketLink

/// One way to feed a decoder.
enum Use {
    case owned
    case borrowed
}

struct Setup {
    var direction: FrameDirection
    var format: WireFormat
    var maximumPayloadLength: Int
    var copyLimit: Int
    var maximumCorruptRun: Int

    init(_ input: inout Input, format: WireFormat) {
        let flags = input.byte()
        self.format = format
        self.direction = flags & 1 == 0 ? .request : .response
        self.maximumPayloadLength = [65_536, Frame.defaultMaximumPayloadLength, 64, 0][Int(flags >> 1 & 3)]
        self.copyLimit = [512, 16, 0, Int.max][Int(flags >> 3 & 3)]
        self.maximumCorruptRun = [3, 1, 2, 1_000][Int(flags >> 5 & 3)]
    }

    func decoder() -> FrameDecoder {
        FrameDecoder(
            direction: self.direction,
            format: self.format,
            maximumPayloadLength: self.maximumPayloadLength,
            copyLimit: self.copyLimit,
            maximumCorruptRun: self.maximumCorruptRun
        )
    }

    var encoder: FrameEncoder { FrameEncoder(direction: self.direction, format: self.format) }
}

/// The output of a decoder.
struct Decoded: Equatable {
    var outputs: [FrameDecoder.Output] = []
    /// The places of the frames on the wire, which only borrowing reports.
    var spans: [Span] = []
    var error: FrameError?

    struct Span {
        /// The number of bytes before it that belong to no frame.
        var skipped: Int
        var length: Int
    }

    static func == (one: Decoded, other: Decoded) -> Bool {
        one.outputs == other.outputs && one.error == other.error
    }
}

extension Setup {
    /// Feeds the stream in pieces, and checks the decoder after each.
    func decode(_ stream: ArraySlice<UInt8>, _ use: Use, pieces sizes: [Int]) -> Decoded {
        var decoder = self.decoder()
        var decoded = Decoded()
        var received = 0
        var pieces = Pieces(stream, sizes)
        while let piece = pieces.next() {
            received += piece.count
            self.feed(piece, to: &decoder, use, &decoded)
            self.check(decoder, received: received, decoded)
            if decoded.error != nil { break }
        }
        if let error = decoded.error { self.checkThatItStays(error, decoder, pieces.rest) }
        return decoded
    }

    private func feed(_ piece: ArraySlice<UInt8>, to decoder: inout FrameDecoder, _ use: Use, _ decoded: inout Decoded)
    {
        do throws(FrameError) {
            switch use {
            case .owned:
                decoder.append(ByteBuffer(bytes: piece))
                while let output = try decoder.next() { decoded.outputs.append(output) }
            case .borrowed:
                // A copy of only these bytes, so that the sanitizer detects reads beyond them.
                let copy = Array(piece)
                let result = copy.withUnsafeBytes { bytes -> Result<Void, FrameError> in
                    do throws(FrameError) {
                        try decoder.decode(bytes) { view in
                            decoded.outputs.append(self.output(view))
                            decoded.spans.append(.init(skipped: view.skippedBytes, length: view.frameLength))
                        }
                        return .success(())
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

    private func output(_ view: FrameDecoder.View) -> FrameDecoder.Output {
        if let error = view.malformation { return .malformed(error) }
        let plan = self.format.plan(for: self.direction)
        var frame = Frame(
            type: view.type,
            serial: view.serial,
            status: view.status,
            payload: ByteBuffer(bytes: view.payload),
            customFields: plan.customFields(in: view.header)
        )
        frame.isMarkedAsPush = plan.isMarkedAsPush(view.header)
        if let mismatch = view.mismatch { return .corrupt(frame, mismatch) }
        return .frame(frame)
    }

    /// Checks that only the bytes of an incomplete frame are kept, and that memory is proportional to the received
    /// bytes, not to the announced length.
    private func check(_ decoder: FrameDecoder, received: Int, _ decoded: Decoded) {
        let kept = decoder.bufferedBytes
        require(kept <= received, "\(kept) bytes are kept of \(received)")
        let capacity = decoder.bufferedCapacity
        require(capacity <= 2 * received + 1_024, "memory for \(capacity) bytes, and \(received) were received")
        require(capacity <= 2 * kept + (1 << 16), "memory for \(capacity) bytes, to keep \(kept)")
        if decoded.error != nil {
            require(kept == 0 && capacity == 0, "\(kept) bytes, memory for \(capacity), in a stream that has ended")
        }
        for case .frame(let frame) in decoded.outputs.suffix(1) {
            require(frame.payload.readableBytes <= self.maximumPayloadLength, "a payload over the limit")
        }
    }

    private func checkThatItStays(_ error: FrameError, _ decoder: FrameDecoder, _ rest: ArraySlice<UInt8>) {
        for use in [Use.owned, .borrowed] {
            var decoder = decoder
            for bytes in [rest, [], rest.prefix(1)] as [ArraySlice<UInt8>] {
                var decoded = Decoded()
                self.feed(bytes, to: &decoder, use, &decoded)
                require(decoded == Decoded(error: error), "\(error) was followed by \(decoded)")
                require(decoder.bufferedBytes == 0 && decoder.bufferedCapacity == 0, "bytes kept after \(error)")
            }
        }
        require(!error.message.isEmpty && !error.message.contains("\n"), "\(error) is not a line")
    }

    /// Checks that bytes have one meaning, however they are divided and decoded, and returns it.
    func decodeInEveryWay(_ stream: ArraySlice<UInt8>, pieces: [Int]) -> Decoded {
        let reference = self.decode(stream, .borrowed, pieces: [])
        for (use, sizes) in [
            (Use.owned, []), (.borrowed, pieces), (.owned, pieces), (.borrowed, [1]), (.owned, [1]),
        ] as [(Use, [Int])] {
            let decoded = self.decode(stream, use, pieces: sizes)
            require(decoded == reference, "\(use) in pieces of \(sizes): \(decoded)\nborrowed whole: \(reference)")
        }
        return reference
    }
}
