import Benchmark
import HHSocket
import NIOCore

/// Parsing and encoding of frames alone, without a socket. Throughput counts frames.
let benchmarks: @Sendable () -> Void = {
    Benchmark.defaultConfiguration = .init(
        metrics: [.throughput, .wallClock],
        warmupIterations: 3,
        scalingFactor: .kilo,
        maxDuration: .seconds(1)
    )

    for length in [0, 16, 128, 4_096, 65_536] {
        Benchmark("parse, borrowed, body \(length) B") { (_: Benchmark, reads: [ByteBuffer]) in
            var decoder = FrameDecoder(direction: .response)
            var frames = 0
            for read in reads {
                try read.withUnsafeReadableBytes { bytes in
                    try decoder.decode(bytes) { frame in
                        blackHole(frame.serial)
                        frames += 1
                    }
                }
            }
            precondition(frames == framesPerIteration)
        } setup: {
            reads(bodyLength: length)
        }

        Benchmark("parse, owned, body \(length) B") { (_: Benchmark, reads: [ByteBuffer]) in
            var decoder = FrameDecoder(direction: .response)
            var frames = 0
            for read in reads {
                decoder.append(read)
                while let output = try decoder.next() {
                    blackHole(output)
                    frames += 1
                }
            }
            precondition(frames == framesPerIteration)
        } setup: {
            reads(bodyLength: length)
        }

        Benchmark("encode, body \(length) B") { benchmark in
            let encoder = FrameEncoder(direction: .request)
            var buffer = ByteBufferAllocator().buffer(capacity: 2 * readLength)
            let frame = Frame(type: 1000, serial: 50, payload: ByteBuffer(repeating: 0x5A, count: length))
            benchmark.startMeasurement()
            for _ in benchmark.scaledIterations {
                if buffer.readableBytes >= readLength { buffer.clear() }
                encoder.encode(frame, into: &buffer)
            }
            benchmark.stopMeasurement()
            blackHole(buffer)
        }
    }
}

/// The number of frames that one measurement is about: the scaling factor, by which results are divided.
private let framesPerIteration = 1_000
/// What one read brings, in bytes. Frames do not align with it.
private let readLength = 1 << 16

/// A stream of frames as reads bring it.
private func reads(bodyLength: Int) -> [ByteBuffer] {
    let encoder = FrameEncoder(direction: .response)
    let payload = ByteBuffer(bytes: (0..<bodyLength).map { UInt8(truncatingIfNeeded: $0 &* 31) })
    var stream = ByteBuffer()
    for index in 0..<framesPerIteration {
        encoder.encode(Frame(type: 1000, serial: 50 + UInt32(index), status: .ok, payload: payload), into: &stream)
    }
    var reads: [ByteBuffer] = []
    while let bytes = stream.readBytes(length: min(readLength, stream.readableBytes)), !bytes.isEmpty {
        reads.append(ByteBuffer(bytes: bytes))
    }
    return reads
}
