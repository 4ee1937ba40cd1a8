// SPDX-License-Identifier: Apache-2.0
/// Names one attempt and the connection that came of it. Later ones have greater numbers.
@usableFromInline
package struct ConnectionID: Hashable, Sendable, CustomStringConvertible {
    @usableFromInline package var number: UInt64

    package init(number: UInt64) {
        self.number = number
    }

    // Written out, so that other modules compare numbers and do not call anybody for it.
    @inlinable
    package static func == (one: ConnectionID, other: ConnectionID) -> Bool { one.number == other.number }

    @usableFromInline
    package var description: String { "\(self.number)" }
}
