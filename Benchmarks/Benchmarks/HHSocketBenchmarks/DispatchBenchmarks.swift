// SPDX-License-Identifier: Apache-2.0
import Benchmark
@_spi(Benchmarks) import HHSocketRPC

/// The table that every call is in, and the heap of its deadlines. Throughput counts calls or deadlines.
func dispatchBenchmarks() {
    for inFlight in [64, 1_024, 16_384] {
        Benchmark("dispatch table, \(inFlight) in flight") {
            (_: Benchmark, calls: Shared<DispatchWorkload.Calls>) in
            precondition(calls.value.replace(operationsPerIteration) == operationsPerIteration)
        } setup: {
            Shared(DispatchWorkload.Calls(inFlight: inFlight))
        }
        Benchmark("deadline heap, \(inFlight) deadlines") {
            (_: Benchmark, deadlines: Shared<DispatchWorkload.Deadlines>) in
            precondition(deadlines.value.replace(operationsPerIteration) == operationsPerIteration)
        } setup: {
            Shared(DispatchWorkload.Deadlines(count: inFlight))
        }
    }
}
