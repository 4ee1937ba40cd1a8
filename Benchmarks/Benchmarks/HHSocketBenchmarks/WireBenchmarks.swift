// SPDX-License-Identifier: Apache-2.0
import Benchmark
import HHSocket
import NIOCore

/// Parsing and encoding of frames alone, without a socket. Throughput counts frames.
func wireBenchmarks() {
    for length in [0, 16, 128, 4_096, 65_536] { wireBenchmarks(.standard, bodyLength: length) }
    // Small bodies show the cost of the other formats beside the standard one, larger ones that of their checksums.
    for format in [.tgcd, .plain, .mars, custom] {
        for length in [16, 4_096] { wireBenchmarks(format, bodyLength: length) }
    }
}

private func wireBenchmarks(_ format: WireFormat, bodyLength: Int) {
    let subject = "\(format.layout.name), body \(bodyLength) B"

    Benchmark("parse, borrowed, \(subject)") { (_: Benchmark, reads: [ByteBuffer]) in
        var decoder = FrameDecoder(direction: .response, format: format)
        var frames = 0
        for read in reads {
            try read.withUnsafeReadableBytes { bytes in
                try decoder.decode(bytes) { frame in
                    blackHole(frame.serial)
                    frames += frame.mismatch == nil ? 1 : 0
                }
            }
        }
        precondition(frames == operationsPerIteration)
    } setup: {
        reads(format, bodyLength: bodyLength)
    }

    Benchmark("parse, owned, \(subject)") { (_: Benchmark, reads: [ByteBuffer]) in
        var decoder = FrameDecoder(direction: .response, format: format)
        var frames = 0
        for read in reads {
            decoder.append(read)
            while let output = try decoder.next() {
                blackHole(output)
                frames += 1
            }
        }
        precondition(frames == operationsPerIteration)
    } setup: {
        reads(format, bodyLength: bodyLength)
    }

    Benchmark("encode, \(subject)") { benchmark in
        let encoder = FrameEncoder(direction: .request, format: format)
        var buffer = ByteBufferAllocator().buffer(capacity: 2 * readLength)
        let frame = Frame(type: 1000, serial: 50, payload: payload(bodyLength))
        benchmark.startMeasurement()
        for _ in benchmark.scaledIterations {
            if buffer.readableBytes >= readLength { buffer.clear() }
            encoder.encode(frame, into: &buffer)
        }
        benchmark.stopMeasurement()
        blackHole(buffer)
    }
}

/// A layout unlike any preset: other byte orders, a constant, a custom field, a length of the whole frame, crc32c.
private let custom: WireFormat = {
    let header: [WireFormat.Field] = [
        .constant([0xF0, 0xF0, 0x01]), .custom("flags", bytes: 1), .length(.little), .type(.little), .serial(),
    ]
    let layout = WireFormat.Layout(
        name: "custom",
        request: header,
        response: header,
        lengthCounts: .frame,
        checksum: .init(.crc32c)
    )
    do {
        return try WireFormat(layout)
    } catch {
        fatalError("\(error)")
    }
}()

/// The number of bytes of one read. Frames are not aligned with it.
private let readLength = 1 << 16

private func payload(_ length: Int) -> ByteBuffer {
    ByteBuffer(bytes: (0..<length).map { UInt8(truncatingIfNeeded: $0 &* 31) })
}

/// A stream of frames, divided into reads.
private func reads(_ format: WireFormat, bodyLength: Int) -> [ByteBuffer] {
    let encoder = FrameEncoder(direction: .response, format: format)
    let payload = payload(bodyLength)
    var stream = ByteBuffer()
    for index in 0..<operationsPerIteration {
        encoder.encode(Frame(type: 1000, serial: 50 + UInt32(index), status: .ok, payload: payload), into: &stream)
    }
    var reads: [ByteBuffer] = []
    while let bytes = stream.readBytes(length: min(readLength, stream.readableBytes)), !bytes.isEmpty {
        reads.append(ByteBuffer(bytes: bytes))
    }
    return reads
}
