// SPDX-License-Identifier: Apache-2.0
import Benchmark
import Foundation

/// All benchmarks. With `BENCH_QUICK` in the environment each benchmark runs for some milliseconds, which shows that it
/// works.
let benchmarks: @Sendable () -> Void = {
    let isQuick = ProcessInfo.processInfo.environment["BENCH_QUICK"] != nil
    // Each iteration is about a thousand operations, by which the results are divided, so that the clock's cost is
    // negligible.
    Benchmark.defaultConfiguration = .init(
        metrics: [.throughput, .wallClock],
        warmupIterations: isQuick ? 0 : 3,
        scalingFactor: .kilo,
        maxDuration: isQuick ? .milliseconds(5) : .seconds(1)
    )
    wireBenchmarks()
    checksumBenchmarks()
    dispatchBenchmarks()
    submissionBenchmarks()
    pushBenchmarks()
    messageBenchmarks()
    // Benchmarks run in this order until one fails, so this one's line in the output shows that none did.
    if isQuick { Benchmark("every benchmark has run") { _ in } }
}

/// The approximate number of operations of one iteration: the scaling factor.
let operationsPerIteration = 1_000

/// State that iterations share. A value would be copied for each.
final class Shared<Value: ~Copyable> {
    var value: Value

    init(_ value: consuming Value) {
        self.value = value
    }
}
