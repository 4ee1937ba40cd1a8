import NIOCore

/// Decides whether bytes that wait for the peer get anywhere: how many have passed is compared from one window to the
/// next, so that a slow link is told from one that does not move. The time is passed in.
///
/// A link that stops moving is given up one to two windows later, and one on which ``minimumRate`` passes never.
package struct StallWatch: Sendable {
    /// Fewer bytes a second than this are no progress.
    package static let minimumRate = 128

    private var window: (begun: NIODeadline, passed: Int)?

    package init() {}

    /// Called from time to time.
    ///
    /// - Parameters:
    ///   - isWaiting: Whether bytes wait. While none does there is no window.
    ///   - passed: How many have passed since the beginning, as far as the peer has confirmed them.
    ///   - length: The window's.
    /// - Returns: Whether too few have passed within a window that is over.
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

    /// When the window is over; nil while there is none.
    package func nextLook(within length: TimeAmount) -> NIODeadline? {
        self.window?.begun.advanced(clamping: length)
    }

    /// Nothing waits any more.
    package mutating func stop() {
        self.window = nil
    }
}
