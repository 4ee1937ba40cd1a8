// SPDX-License-Identifier: Apache-2.0
/// Identifies an attempt and the connection that results from it. Later ones have greater numbers.
@usableFromInline
package struct ConnectionID: Hashable, Sendable, CustomStringConvertible {
    @usableFromInline package var number: UInt64

    // Inlinable as the comparison below, since other modules use both for each call.
    @inlinable
    package init(number: UInt64) {
        self.number = number
    }

    // Written out, so that other modules compare numbers without a function call.
    @inlinable
    package static func == (one: ConnectionID, other: ConnectionID) -> Bool { one.number == other.number }

    @usableFromInline
    package var description: String { "\(self.number)" }
}
