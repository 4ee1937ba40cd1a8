// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// One examination of a format in one direction.
struct VerifierRun {
    typealias Check = WireFormatVerifier.Check

    /// The frames and the error of a stream.
    private struct Decoded {
        var outputs: [FrameDecoder.Output] = []
        var error: FrameError?
        /// The number of remaining bytes.
        var rest = 0

        var summary: String {
            let error = self.error.map { ", and then the error \"\($0)\"" } ?? ""
            return "\(self.outputs.count) frames\(self.outputs.last.map { ", the last \($0)" } ?? "")\(error)"
        }
    }

    /// Every place is tried in streams up to this length; in others those near the frames' ends, and random ones.
    private static let longestTriedWhole = 2_048
    private static let limit = 1 << 20

    let format: WireFormat
    let direction: FrameDirection
    let encoder: FrameEncoder
    var random: SplitMix

    init(format: WireFormat, direction: FrameDirection, random: SplitMix) {
        self.format = format
        self.direction = direction
        self.encoder = FrameEncoder(direction: direction, format: format)
        self.random = random
    }

    func failure(_ check: Check, _ message: String) -> WireFormatVerifier.Failure {
        WireFormatVerifier.Failure(check: check, direction: self.direction, message: message)
    }

    mutating func randomBytes(_ count: Int) -> [UInt8] {
        (0..<count).map { _ in UInt8.random(in: 0...255, using: &self.random) }
    }

    private func decoder(limit: Int = Self.limit) -> FrameDecoder {
        FrameDecoder(direction: self.direction, format: self.format, maximumPayloadLength: limit)
    }

    // MARK: Frames

    /// - Returns: The bytes of each frame.
    func roundTrip(_ frames: [Frame]) throws -> [[UInt8]] {
        try frames.map { frame in
            if let refusal = self.encoder.refusal(of: frame) {
                throw self.failure(.roundTrip, "\(frame) cannot be encoded: \(refusal)")
            }
            let bytes = self.bytes(of: frame)
            guard self.bytes(of: frame) == bytes else {
                throw self.failure(.roundTrip, "\(frame) has other bytes when it is encoded again")
            }
            let decoded = self.decode([bytes[...]])
            try self.compare(decoded, with: [frame], check: .roundTrip, what: "the \(bytes.count) bytes of \(frame)")
            return bytes
        }
    }

    private func bytes(of frame: Frame) -> [UInt8] {
        var buffer = ByteBuffer()
        self.encoder.encode(frame, into: &buffer)
        return Array(buffer.readableBytesView)
    }

    mutating func pieces(_ frames: [Frame], _ bytes: [[UInt8]]) throws {
        let stream = bytes.flatMap { $0 }
        try self.compare(self.decode([stream[...]]), with: frames, check: .pieces, what: "frames that came together")
        let single = self.decode(stream.indices.map { stream[$0...$0] })
        try self.compare(single, with: frames, check: .pieces, what: "frames that came byte by byte")
        for position in self.positions(bytes) {
            let halves = self.decode([stream[..<position], stream[position...]])
            let what = "frames that were split after \(position) of \(stream.count) bytes"
            try self.compare(halves, with: frames, check: .pieces, what: what)
        }
        try self.randomPieces(frames, stream, times: 20)
    }

    mutating func randomPieces(_ frames: [Frame], _ stream: [UInt8], times: Int) throws {
        for _ in 0..<times {
            let pieces = self.cut(stream[...])
            let lengths = pieces.prefix(10).map { "\($0.count)" }.joined(separator: ", ")
            let what = "frames in pieces of \(lengths), … bytes"
            try self.compare(self.decode(pieces), with: frames, check: .pieces, what: what)
        }
    }

    /// Checks that the beginning of a stream decodes to the frames that are complete in it.
    mutating func truncation(_ frames: [Frame], _ bytes: [[UInt8]]) throws {
        let stream = bytes.flatMap { $0 }
        let ends = self.ends(bytes)
        for position in self.positions(bytes) {
            let whole = ends.prefix { $0 <= position }.count
            let decoded = self.decode([stream[..<position]])
            let what = "\(position) bytes, of which \(whole) frames are whole,"
            try self.compare(decoded, with: Array(frames.prefix(whole)), check: .truncation, what: what, isWhole: false)
        }
    }

    /// Checks beginnings of a stream again, followed by foreign memory.
    mutating func bytesBehind(_ bytes: [[UInt8]]) throws {
        let stream = bytes.flatMap { $0 }
        for position in self.positions(bytes) {
            let results = [0x00, 0xFF, 0x31].map { (filler: UInt8) -> Decoded in
                var buffer = ByteBuffer(bytes: stream[..<position])
                let end = buffer.writerIndex
                buffer.writeRepeatingByte(filler, count: 64)
                buffer.moveWriterIndex(to: end)
                var decoder = self.decoder()
                var decoded = Decoded()
                Self.feed(buffer, to: &decoder, &decoded)
                return decoded
            }
            for result in results where !Self.areSame(result, results[0]) {
                throw self.failure(
                    .bytesBehind,
                    "\(position) bytes mean something else with other memory behind them: \(result.summary), or "
                        + results[0].summary
                )
            }
        }
    }

    func limit(_ frames: [Frame]) throws {
        guard let frame = frames.max(by: { $0.payload.readableBytes < $1.payload.readableBytes }),
            frame.payload.readableBytes > 0
        else { return }
        let limit = frame.payload.readableBytes - 1
        let bytes = self.bytes(of: frame)
        let decoded = self.decode([bytes[...]], limit: limit)
        for case .frame(let found) in decoded.outputs where found.payload.readableBytes > limit {
            throw self.failure(.limit, "\(found) came out, though no more than \(limit) bytes are allowed")
        }
        let isRefused =
            decoded.error != nil || decoded.outputs.contains { if case .malformed = $0 { true } else { false } }
        guard isRefused else {
            throw self.failure(.limit, "a payload one byte over the limit of \(limit) is no error")
        }
    }

    // MARK: Bytes that are none

    mutating func damage(_ stream: [UInt8]) throws {
        for round in 0..<100 {
            let start = Int.random(in: 0..<max(1, stream.count - 512), using: &self.random)
            // Usually from the beginning of a frame.
            var bytes = Array(stream[(Bool.random(using: &self.random) ? 0 : start)...].prefix(2_048))
            for _ in 0..<Int.random(in: 1...8, using: &self.random) {
                guard let index = bytes.indices.randomElement(using: &self.random) else { continue }
                bytes[index] = UInt8.random(in: 0...255, using: &self.random)
            }
            try self.isSame(bytes, .damage, round: round)
        }
    }

    mutating func garbage() throws {
        for round in 0..<100 {
            // Small numbers are plausible lengths.
            let largest: UInt8 = [255, 127, 57, 8, 1][round % 5]
            let bytes = (0..<1_024).map { _ in UInt8.random(in: 0...largest, using: &self.random) }
            try self.isSame(bytes, .garbage, round: round)
        }
    }

    /// - Parameter round: The number of the round. Five of every 25 decode byte by byte, too, which takes much longer.
    private mutating func isSame(_ bytes: [UInt8], _ check: Check, round: Int) throws {
        let whole = self.decode([bytes[...]])
        guard whole.outputs.count <= bytes.count else {
            throw self.failure(check, "\(bytes.count) bytes are \(whole.outputs.count) frames, or more")
        }
        let single = round % 25 < 5 ? [bytes.indices.map { bytes[$0...$0] }] : []
        for pieces in single + [self.cut(bytes[...])] {
            let other = self.decode(pieces)
            guard Self.areSame(whole, other) else {
                throw self.failure(
                    check,
                    "\(bytes.count) bytes that came at once are \(whole.summary); in pieces they are \(other.summary)"
                )
            }
        }
    }

    /// An endless stream: of zeros, of random bytes, and of frames without their first byte.
    mutating func memory(_ stream: [UInt8]) throws {
        let (limit, read) = (4 << 10, 16 << 10)
        let random = self.randomBytes(read)
        var frames: [UInt8] = []
        while frames.count < read { frames += stream.dropFirst() }
        for bytes in [[UInt8](repeating: 0, count: read), random, frames] {
            var decoder = self.decoder(limit: limit)
            var decoded = Decoded()
            for _ in 0..<20 where decoded.error == nil {
                Self.feed(ByteBuffer(bytes: bytes), to: &decoder, &decoded)
                // The decoder's own allowance, and the read.
                guard decoder.bufferedBytes <= limit + (64 << 10) + bytes.count else {
                    throw self.failure(
                        .memory,
                        "\(decoder.bufferedBytes) bytes are held where payloads have \(limit) at most"
                    )
                }
            }
        }
    }

    // MARK: Time

    /// - Parameter large: A frame with 8 times the payload.
    func time(_ small: Frame, _ large: Frame) throws {
        guard self.encoder.refusal(of: small) == nil, self.encoder.refusal(of: large) == nil else { return }
        func seconds(_ frame: Frame, bestOf times: Int) -> Double {
            let bytes = self.bytes(of: frame)
            let pieces = stride(from: 0, to: bytes.count, by: 128).map { bytes[$0..<min(bytes.count, $0 + 128)] }
            // The processor's time of this thread, and the best: other threads do not count.
            return (0..<times).reduce(.infinity) { best, _ in
                let start = ThreadTime.seconds
                _ = self.decode(pieces)
                return min(best, ThreadTime.seconds - start)
            }
        }
        // The short one is over so soon that any disturbance would count for much.
        let (first, second) = (seconds(small, bestOf: 10), seconds(large, bestOf: 2))
        // 8 times the time is expected, and 64 times if every piece causes all earlier bytes to be examined.
        guard second > 0.05, second > first * 24 else { return }
        throw self.failure(
            .time,
            """
            a payload of \(large.payload.readableBytes) bytes in pieces of 128 takes \(Int(second / first)) times as long \
            as one of \(small.payload.readableBytes): all that has come is looked at again with each piece; remember how \
            far it was
            """
        )
    }

    // MARK: Decoding

    private func decode(_ pieces: [ArraySlice<UInt8>], limit: Int = Self.limit) -> Decoded {
        var decoder = self.decoder(limit: limit)
        var decoded = Decoded()
        for piece in pieces where decoded.error == nil { Self.feed(ByteBuffer(bytes: piece), to: &decoder, &decoded) }
        decoded.rest = decoder.bufferedBytes
        return decoded
    }

    private static func feed(_ bytes: ByteBuffer, to decoder: inout FrameDecoder, _ decoded: inout Decoded) {
        // A decoder that makes frames of nothing must not do so for ever.
        let most = decoded.outputs.count + decoder.bufferedBytes + bytes.readableBytes
        decoder.append(bytes)
        do throws(FrameError) {
            while decoded.outputs.count <= most, let output = try decoder.next() { decoded.outputs.append(output) }
        } catch {
            decoded.error = error
        }
    }

    private static func areSame(_ one: Decoded, _ other: Decoded) -> Bool {
        one.outputs == other.outputs && (one.error == nil) == (other.error == nil)
    }

    private func compare(
        _ decoded: Decoded,
        with frames: [Frame],
        check: Check,
        what: String,
        isWhole: Bool = true
    ) throws {
        if let error = decoded.error { throw self.failure(check, "\(what) are an error: \(error)") }
        for (index, output) in decoded.outputs.enumerated() {
            guard case .frame(let found) = output else {
                throw self.failure(check, "\(what) are no sound frames: \(output)")
            }
            guard index < frames.count else { throw self.failure(check, "\(what) are one frame more: \(found)") }
            guard Self.areSame(found, frames[index]) else {
                throw self.failure(
                    check,
                    "\(what) are another frame: \(found) instead of \(frames[index])"
                        + (found.description == frames[index].description ? ", with another payload" : "")
                )
            }
        }
        guard decoded.outputs.count == frames.count else {
            throw self.failure(check, "\(what) are \(decoded.outputs.count) frames instead of \(frames.count)")
        }
        guard !isWhole || decoded.rest == 0 else {
            throw self.failure(check, "\(what) leave \(decoded.rest) bytes")
        }
    }

    /// Compares frames. Custom fields are compared only if they are given: a frame without them gets zeros.
    private static func areSame(_ found: Frame, _ expected: Frame) -> Bool {
        found.type == expected.type && found.serial == expected.serial && found.status == expected.status
            && found.payload == expected.payload
            && (expected.customFields == nil || found.customFields == expected.customFields)
    }

    // MARK: Places

    private func ends(_ bytes: [[UInt8]]) -> [Int] {
        bytes.reduce(into: []) { $0.append(($0.last ?? 0) + $1.count) }
    }

    /// The places at which a stream is split.
    private mutating func positions(_ bytes: [[UInt8]]) -> [Int] {
        let ends = self.ends(bytes)
        let length = ends.last ?? 0
        guard length > Self.longestTriedWhole else { return Array(0...length) }
        var positions = Set(0...min(64, length))
        for end in ends { positions.formUnion(max(0, end - 64)...min(length, end + 64)) }
        for _ in 0..<200 { positions.insert(Int.random(in: 0...length, using: &self.random)) }
        return positions.sorted()
    }

    /// Random pieces.
    private mutating func cut(_ bytes: ArraySlice<UInt8>) -> [ArraySlice<UInt8>] {
        var pieces: [ArraySlice<UInt8>] = []
        var rest = bytes
        let longest = max([2, 20, 300, 5_000][Int.random(in: 0..<4, using: &self.random)], bytes.count / 500)
        while !rest.isEmpty {
            let count = min(rest.count, Int.random(in: 1...longest, using: &self.random))
            pieces.append(rest.prefix(count))
            rest = rest.dropFirst(count)
        }
        return pieces
    }
}
