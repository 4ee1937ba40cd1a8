// SPDX-License-Identifier: Apache-2.0
import Benchmark
@_spi(Benchmarks) import HHSocket

/// Submissions to a socket's own thread, until they have run there. Throughput counts submissions, of all threads
/// together.
func submissionBenchmarks() {
    // Many for one measurement, so that the cost of waking the threads is negligible.
    let submissions = 1_000_000
    var configuration = Benchmark.defaultConfiguration
    configuration.scalingFactor = .mega
    configuration.warmupIterations = min(1, configuration.warmupIterations)
    for threads in [1, 4] {
        Benchmark("submission, \(threads == 1 ? "1 thread" : "\(threads) threads")", configuration: configuration) {
            (_: Benchmark, workload: SubmissionWorkload) in
            workload.submit(submissions / threads)
        } setup: {
            SubmissionWorkload(threads: threads)
        }
    }
}
