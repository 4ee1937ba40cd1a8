// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Decides when freed memory is returned to the system. The time is passed in.
///
/// The C library keeps freed memory for later allocations. After a burst that may be much, and returning it takes
/// milliseconds: so it is done when much less is held than at the peak, and a few more times, since connections that
/// were busy release their reserved memory only later, and handlers the memory of their tasks.
struct MemoryReturn: Sendable {
    /// The number of freed bytes that are worth it.
    static let minimumBytes = 4 << 20
    /// The time between two returns, at least.
    static let interval = TimeAmount.seconds(3)

    /// The largest number of bytes that was held since the last return.
    private var height = 0
    /// The number of bytes since then that were freed without having been held.
    private var freed = 0
    private var last: NIODeadline?
    /// The number of returns that follow the last one.
    private var remaining = 0
    private static let repetitions = 2

    /// - Parameters:
    ///   - bytes: The number of bytes that are held now.
    ///   - height: The largest number that was held since the last call.
    ///   - freed: The number of uncharged bytes that were freed since the last call.
    /// - Returns: Whether to return memory now.
    mutating func isDue(bytes: Int, height: Int = 0, freed: Int = 0, now: NIODeadline) -> Bool {
        self.height = max(self.height, bytes, height)
        self.freed += freed
        guard self.last.map({ now - $0 >= Self.interval }) ?? true else { return false }
        if self.height - bytes + self.freed >= Self.minimumBytes {
            self.height = bytes
            self.freed = 0
            self.remaining = Self.repetitions
        } else if self.remaining > 0 {
            self.remaining -= 1
        } else {
            return false
        }
        self.last = now
        return true
    }
}
