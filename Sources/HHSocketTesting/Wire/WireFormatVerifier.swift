// SPDX-License-Identifier: Apache-2.0
public import HHSocket
public import NIOCore

/// Finds the usual errors of a ``/HHSocket/FrameCodec``: those of a codec that assumes that every read brings complete
/// frames and every peer behaves well. It needs no test framework, and accepts any ``/HHSocket/WireFormat``.
///
/// ```swift
/// try WireFormatVerifier(format).verify(
///     [Frame(type: 101, serial: 50, payload: ByteBuffer(string: "hello"))],
///     direction: .request
/// )
/// ```
///
/// Everything is repeatable: random numbers come from a seed. A codec that traps ends the process, which reveals the
/// error; the last line of the stack trace that belongs to the codec shows its place.
public struct WireFormatVerifier: Sendable {
    /// A fault that was found in a format.
    package struct Failure: Error, Sendable, CustomStringConvertible {
        /// The part of the examination.
        package var check: Check
        /// The frames that were examined.
        package var direction: FrameDirection
        /// The outcome, and the one that was expected.
        package var message: String

        package var description: String { "\(self.check), \(self.direction)s: \(self.message)" }
    }

    /// A part of the examination.
    package enum Check: Hashable, Sendable {
        /// An encoded frame is decoded as the same frame, with no bytes left; encoded again it has the same bytes.
        case roundTrip
        /// Frames that stick together are the same ones, however they are split: at every place, byte by byte, at
        /// random.
        case pieces
        /// The beginning of a frame is no frame, and no error.
        case truncation
        /// The memory after the received bytes makes no difference.
        case bytesBehind
        /// A payload over the limit is not returned.
        case limit
        /// Frames in which bytes were changed mean the same however they are split.
        case damage
        /// Random bytes decode the same however they are split, and a frame takes at least one of them.
        case garbage
        /// The memory for an endless stream is bounded.
        case memory
        /// The time for a large frame in small pieces is proportional to its length.
        case time
    }

    private typealias Maker =
        @Sendable (_ direction: FrameDirection, _ payload: ByteBuffer, _ number: UInt64) -> Frame

    /// The format that is examined.
    private let format: WireFormat
    private let seed: UInt64
    private let maker: Maker?

    /// - Parameters:
    ///   - format: The format to examine.
    ///   - seed: The seed for all random choices; 1 by default.
    ///   - maker: Makes random frames, some of which the codec may refuse, from the kind of frame, random bytes for
    ///     codecs that accept any payload, and a random number for type and serial. Nil, the default: their types and
    ///     serials are those of applications and of requests, their payloads are arbitrary bytes.
    public init(
        _ format: WireFormat,
        seed: UInt64 = 1,
        maker: (@Sendable (_ direction: FrameDirection, _ payload: ByteBuffer, _ number: UInt64) -> Frame)? = nil
    ) {
        self.format = format
        self.seed = seed
        self.maker = maker
    }

    /// Examines the format: with these frames, with random ones, and with bytes that are not frames. Takes about a
    /// second in a debug build.
    ///
    /// - Parameters:
    ///   - frames: Typical frames, with the special features of the format: at least one. Statuses are
    ///     ``/HHSocket/Status/ok`` if the format has none, and types those of applications if it has none.
    ///   - direction: The kind of frame.
    ///
    /// - Throws: The first fault that is found, with a description of it.
    public func verify(_ frames: [Frame], direction: FrameDirection) throws {
        var run = VerifierRun(format: self.format, direction: direction, random: SplitMix(seed: self.seed))
        guard !frames.isEmpty else { throw run.failure(.roundTrip, "there are no frames to examine") }
        let bytes = try run.roundTrip(frames)
        // A codec that reads beyond its bytes fails by chance where they are split, so the check for this comes first.
        try run.bytesBehind(bytes)
        try run.pieces(frames, bytes)
        try run.truncation(frames, bytes)
        try self.time(&run)
        let others = try self.randomFrames(&run)
        let otherBytes = try run.roundTrip(others)
        try run.randomPieces(others, otherBytes.flatMap { $0 }, times: 20)
        try run.limit(frames + others)
        try run.damage(bytes.flatMap { $0 } + otherBytes.flatMap { $0 }.prefix(16 << 10))
        try run.garbage()
        try run.memory(bytes.flatMap { $0 })
    }

    private func time(_ run: inout VerifierRun) throws {
        let (small, large) = (16 << 10, 128 << 10)
        guard self.format.largestPayload(in: run.direction) >= large else { return }
        let pair = (small: self.frame(payloadLength: small, &run), large: self.frame(payloadLength: large, &run))
        try run.time(pair.small, pair.large)
    }

    private func randomFrames(_ run: inout VerifierRun) throws -> [Frame] {
        // If lengths take one byte more, in all the ways to write them.
        let lengths = [
            0, 1, 2, 9, 10, 99, 100, 125, 126, 127, 128, 129, 254, 255, 256, 257, 999, 1_000, 1_024, 1_025, 16_383,
            16_384, 65_535, 65_536, 65_537,
        ]
        var frames: [Frame] = []
        let largest = self.format.largestPayload(in: run.direction)
        for length in lengths + lengths.prefix(20) where length <= largest {
            let frame = self.frame(payloadLength: length, &run)
            if run.encoder.refusal(of: frame) == nil { frames.append(frame) }
        }
        guard !frames.isEmpty else {
            let frame = self.frame(payloadLength: 1, &run)
            let reason = run.encoder.refusal(of: frame).map { "\($0)" } ?? "no reason"
            throw run.failure(.roundTrip, "no random frame can be encoded (\(reason)); give the verifier a maker")
        }
        return frames
    }

    private func frame(payloadLength length: Int, _ run: inout VerifierRun) -> Frame {
        let payload = ByteBuffer(bytes: run.randomBytes(length))
        if let maker = self.maker { return maker(run.direction, payload, run.random.next()) }
        let layout = self.format.layout
        let hasType = run.direction == .request || self.format.responsesHaveType
        return Frame(
            type: hasType
                ? UInt32.random(in: layout.applicationTypes, using: &run.random) : layout.applicationTypes.lowerBound,
            serial: UInt32.random(in: layout.requestSerials, using: &run.random),
            payload: payload
        )
    }
}
