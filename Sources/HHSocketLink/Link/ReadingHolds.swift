// SPDX-License-Identifier: Apache-2.0
/// Counts the reasons to suspend reading: each subscription that has fallen behind holds reading, and releases it when
/// it has caught up.
package struct ReadingHolds: Sendable {
    private var count = 0

    package init() {}

    /// - Returns: Whether reading must be suspended.
    package mutating func hold() -> Bool {
        self.count += 1
        return self.count == 1
    }

    /// - Returns: Whether reading must continue.
    package mutating func release() -> Bool {
        assert(self.count > 0, "reading is released as often as it was held")
        self.count = max(0, self.count - 1)
        return self.count == 0
    }
}
