import Benchmark
import HHSocket

/// Checksums alone. Throughput counts payloads.
func checksumBenchmarks() {
    let algorithms: [(name: String, algorithm: WireFormat.Checksum.Algorithm)] = [
        ("adler32", .adler32), ("crc32", .crc32), ("crc32c", .crc32c),
    ]
    for (name, algorithm) in algorithms {
        for length in [16, 128, 4_096, 65_536] {
            Benchmark("\(name), \(length) B") { benchmark in
                let bytes = (0..<length).map { UInt8(truncatingIfNeeded: $0 &* 31) }
                bytes.withUnsafeBytes { bytes in
                    benchmark.startMeasurement()
                    for _ in benchmark.scaledIterations { blackHole(algorithm.checksum(bytes)) }
                    benchmark.stopMeasurement()
                }
            }
        }
    }
}
