// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The clock of the bench: that of the event loops, in nanoseconds.
enum Uptime {
    @inline(__always)
    static var now: UInt64 { NIODeadline.now().uptimeNanoseconds }

    /// Sleeps until `time`; returns at once if it has passed.
    static func sleep(until time: UInt64) async throws {
        let now = self.now
        guard time > now else { return }
        try await Task.sleep(for: .nanoseconds(Int64(clamping: time - now)), tolerance: .zero)
    }
}
