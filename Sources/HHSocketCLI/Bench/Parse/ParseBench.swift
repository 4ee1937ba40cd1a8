// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// A benchmark of the frame parser alone, over a stream made once.
///
/// 64 MiB of request frames are fed in pieces of 64 KiB, the first of which is 5 bytes short, so that they do not align
/// with the frames. Each pass counts the frames and adds up their serials and lengths; a wrong sum is an error.
struct ParseBench {
    static let streamLength = 64 << 20
    static let pieceLength = 64 << 10
    static let firstPieceLength = pieceLength - 5
    static let type: UInt32 = 1000

    struct Failure: Error, CustomStringConvertible {
        var description: String
    }

    struct Result {
        var peer: String
        var body: Int
        var seconds: Double
        var frames: Int
        var bytes: Int

        var framesPerSecond: Double { Double(self.frames) / self.seconds }
        var gigabytesPerSecond: Double { Double(self.bytes) / self.seconds * 1e-9 }
    }

    /// The sums over the frames of one pass.
    private struct Sum: Equatable {
        var frames = 0
        var serials: UInt64 = 0
        var lengths = 0

        @inline(__always)
        mutating func add(serial: UInt32, length: Int) {
            self.frames += 1
            self.serials &+= UInt64(serial)
            self.lengths += length
        }
    }

    let body: Int
    private let format: WireFormat
    private let stream: ByteBuffer
    private let expected: Sum

    /// - Parameters:
    ///   - body: The length of each payload in bytes. One frame must fit the stream.
    ///   - format: The layout of frames.
    init(body: Int, format: WireFormat = .standard) {
        self.body = body
        self.format = format
        let encoder = FrameEncoder(direction: .request, format: format)
        let frameLength = encoder.encodedLength(payloadLength: body)
        var stream = ByteBuffer()
        stream.reserveCapacity(Self.streamLength)
        var expected = Sum()
        var filler = Filler(seed: 88_172_645)
        while stream.readableBytes + frameLength <= Self.streamLength {
            let serial = UInt32(expected.frames)
            let frame = Frame(type: Self.type, serial: serial, payload: filler.bytes(body))
            encoder.encode(frame, into: &stream)
            expected.add(serial: serial, length: body)
        }
        self.stream = stream
        self.expected = expected
    }

    private var pieces: [Range<Int>] {
        var pieces: [Range<Int>] = []
        var start = 0
        while start < self.stream.readableBytes {
            let length = start == 0 ? Self.firstPieceLength : Self.pieceLength
            let end = min(start + length, self.stream.readableBytes)
            pieces.append(start..<end)
            start = end
        }
        return pieces
    }

    /// Measures frames that are lent to a closure.
    func borrowed(seconds: Double) throws -> Result {
        let pieces = self.pieces
        return try self.measure("ours-borrowed", for: seconds) { sum in
            try self.stream.withUnsafeReadableBytes { bytes in
                var decoder = self.makeDecoder()
                for piece in pieces {
                    try decoder.decode(UnsafeRawBufferPointer(rebasing: bytes[piece])) { frame in
                        if frame.mismatch == nil { sum.add(serial: frame.serial, length: frame.payload.count) }
                    }
                }
            }
        }
    }

    /// Measures frames that outlive the read.
    func owned(seconds: Double) throws -> Result {
        let pieces = self.pieces.compactMap { self.stream.getSlice(at: $0.lowerBound, length: $0.count) }
        return try self.measure("ours-owned", for: seconds) { sum in
            var decoder = self.makeDecoder()
            for piece in pieces {
                decoder.append(piece)
                while let output = try decoder.next() {
                    if case .frame(let frame) = output {
                        sum.add(serial: frame.serial, length: frame.payload.readableBytes)
                    }
                }
            }
        }
    }

    private func makeDecoder() -> FrameDecoder {
        FrameDecoder(
            direction: .request,
            format: self.format,
            maximumPayloadLength: max(self.body, Frame.defaultMaximumPayloadLength)
        )
    }

    /// Makes one pass to warm up, then as many as `seconds` requires.
    private func measure(_ peer: String, for seconds: Double, _ pass: (inout Sum) throws -> Void) throws -> Result {
        let clock = ContinuousClock()
        func checkedPass() throws {
            var sum = Sum()
            try pass(&sum)
            guard sum == self.expected else {
                throw Failure(
                    description: """
                        \(peer) found \(sum.frames) frames of \(self.expected.frames), or not the serials and lengths \
                        that they were made with
                        """
                )
            }
        }
        try checkedPass()
        let start = clock.now
        var passes = 0
        var elapsed = 0.0
        repeat {
            try checkedPass()
            passes += 1
            elapsed = Self.seconds(clock.now - start)
        } while elapsed < seconds
        return Result(
            peer: peer,
            body: self.body,
            seconds: elapsed,
            frames: self.expected.frames * passes,
            bytes: self.stream.readableBytes * passes
        )
    }

    private static func seconds(_ duration: Duration) -> Double {
        let (seconds, attoseconds) = duration.components
        return Double(seconds) + Double(attoseconds) * 1e-18
    }
}
