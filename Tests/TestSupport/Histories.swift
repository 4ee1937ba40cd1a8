import Foundation

/// How many random histories a test runs through: 10,000, or what `HHSOCKET_HISTORIES` says.
package let historyCount = max(
    1,
    ProcessInfo.processInfo.environment["HHSOCKET_HISTORIES"].flatMap { Int($0) } ?? 10_000
)

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

/// Runs what blocks its thread on one of its own, so that Swift's tasks keep theirs.
package func onItsOwnThread<T: Sendable>(_ body: @escaping @Sendable () -> T) async -> T {
    await withCheckedContinuation { continuation in
        Thread.detachNewThread { continuation.resume(returning: body()) }
    }
}
