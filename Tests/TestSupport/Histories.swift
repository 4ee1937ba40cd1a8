// SPDX-License-Identifier: Apache-2.0
import Foundation

/// The thoroughness of tests that try random or all possible inputs, relative to `make test`: 1, or `HHSOCKET_EFFORT`.
///
/// `make soak` has 50, runs under a sanitizer less than 1.
package let effort = ProcessInfo.processInfo.environment["HHSOCKET_EFFORT"].flatMap { Double($0) } ?? 1

/// A number of repetitions, times ``effort``; at least 1.
package func scaled(_ count: Int) -> Int {
    max(1, Int(Double(count) * effort))
}

/// The number of random histories that a test runs through.
package let historyCount = scaled(2_000)

/// The distance between positions that a test tries, divided by ``effort``: every position is tried in a soak test.
package func spaced(_ distance: Int) -> Int {
    max(1, Int(Double(distance) / effort))
}

/// The positions at which a test cuts a stream of `count` bytes: all within 40 bytes of `boundaries`, and every
/// sixteenth of the others, which lie within payloads; more or fewer of these by ``effort``.
package func cuts(_ count: Int, around boundaries: [Int]) -> [Int] {
    let near = boundaries.flatMap { max(0, $0 - 40)...min(count, $0 + 40) }
    return Set(near + stride(from: 0, through: count, by: spaced(16))).sorted()
}

/// Leaves steps out of a script for as long as it still breaks a promise.
///
/// - Parameters:
///   - broken: The promise that the whole script breaks.
///   - run: Runs a script, and returns the promise that it breaks, if it breaks one.
package func shortened<Step>(_ script: [Step], _ broken: String, run: ([Step]) -> String?) -> ([Step], String) {
    var script = script
    var broken = broken
    var size = max(1, script.count / 2)
    while true {
        var index = 0
        while index < script.count {
            var shorter = script
            shorter.removeSubrange(index..<min(index + size, script.count))
            if let still = run(shorter) {
                script = shorter
                broken = still
            } else {
                index += size
            }
        }
        guard size > 1 else { return (script, broken) }
        size /= 2
    }
}

/// Runs a blocking function on a separate thread, so that it blocks no thread of Swift's tasks.
package func onItsOwnThread<T: Sendable>(_ body: @escaping @Sendable () -> T) async -> T {
    await withCheckedContinuation { continuation in
        Thread.detachNewThread { continuation.resume(returning: body()) }
    }
}
