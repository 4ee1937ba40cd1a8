// SPDX-License-Identifier: Apache-2.0
import Benchmark
import HHSocket

#if canImport(CDeflate)
import CDeflate
#endif

/// Checksums alone. Throughput counts payloads.
func checksumBenchmarks() {
    let algorithms: [(name: String, algorithm: WireFormat.Checksum.Algorithm)] = [
        ("adler32", .adler32), ("crc32", .crc32), ("crc32c", .crc32c),
    ]
    for (name, algorithm) in algorithms {
        checksumBenchmarks(name, lengths: [16, 128, 4_096, 65_536]) { algorithm.checksum($0) }
    }
    // If libdeflate is installed: the fastest adler32 that distributions have.
    #if canImport(CDeflate)
    checksumBenchmarks("adler32 by libdeflate", lengths: [128, 4_096, 65_536]) {
        libdeflate_adler32(1, $0.baseAddress, $0.count)
    }
    #endif
}

/// Measures `checksum` of payloads that start after a request's header: few payloads are aligned to a vector's width.
private func checksumBenchmarks(
    _ name: String,
    lengths: [Int],
    checksum: @escaping @Sendable (UnsafeRawBufferPointer) -> UInt32
) {
    for length in lengths {
        Benchmark("\(name), \(length) B") { benchmark in
            let headerLength = 12
            let frame = (0..<headerLength + length).map { UInt8(truncatingIfNeeded: $0 &* 31) }
            frame.withUnsafeBytes { frame in
                let payload = UnsafeRawBufferPointer(rebasing: frame[headerLength...])
                benchmark.startMeasurement()
                for _ in benchmark.scaledIterations { blackHole(checksum(payload)) }
                benchmark.stopMeasurement()
            }
        }
    }
}
