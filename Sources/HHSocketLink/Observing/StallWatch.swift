// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Detects that bytes waiting for the peer make no progress. The number of confirmed bytes is compared from one window
/// to the next, which distinguishes a slow link from a stalled one. The time is passed in.
///
/// A stalled link is abandoned one to two windows later; one that carries ``minimumRate`` is never abandoned.
package struct StallWatch: Sendable {
    /// The number of bytes per second below which a link makes no progress.
    package static let minimumRate = 128

    private var window: (begun: NIODeadline, passed: Int)?

    package init() {}

    /// Compares the progress with that at the beginning of the window. Call it periodically.
    ///
    /// - Parameters:
    ///   - isWaiting: Whether bytes wait. While none do there is no window.
    ///   - passed: The number of bytes that the peer has confirmed since the connection began.
    ///   - length: The length of the window.
    /// - Returns: Whether too few bytes passed within a window that is over.
    package mutating func isStalled(isWaiting: Bool, passed: Int, within length: TimeAmount, now: NIODeadline) -> Bool {
        guard isWaiting else {
            self.window = nil
            return false
        }
        guard let window = self.window else {
            self.window = (now, passed)
            return false
        }
        let time = now - window.begun
        guard time >= length else { return false }
        let expected = Double(Self.minimumRate) * Double(time.nanoseconds) / 1e9
        if Double(passed - window.passed) < expected { return true }
        self.window = (now, passed)
        return false
    }

    /// The end of the window; nil while there is none.
    package func nextCheck(within length: TimeAmount) -> NIODeadline? {
        self.window?.begun.advanced(clamping: length)
    }

    /// Ends the window, because no bytes wait.
    package mutating func stop() {
        self.window = nil
    }
}
