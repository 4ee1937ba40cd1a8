// SPDX-License-Identifier: Apache-2.0
package import HHSocket
import NIOConcurrencyHelpers
package import NIOCore

/// An account that has room for a number of bytes, and tells what is held.
package final class CountingAccount: LinkAccount {
    private struct State {
        var bytes = 0
        var counts: [Resource: Int] = [:]
    }

    private let maximum: Int
    private let state = NIOLockedValueBox(State())

    package init(maximum: Int = .max) {
        self.maximum = maximum
    }

    /// The number of bytes that are held.
    package var bytes: Int { self.state.withLockedValue { $0.bytes } }

    /// The number of these resources, of those that are counted.
    package func count(of resource: Resource) -> Int { self.state.withLockedValue { $0.counts[resource, default: 0] } }

    package func held(_ change: Int) { self.state.withLockedValue { $0.bytes += change } }

    package func counts(_ change: Int, of resource: Resource) {
        self.state.withLockedValue { $0.counts[resource, default: 0] += change }
    }

    package func hasRoom(forLast bytes: Int) -> Bool { self.bytes + bytes <= self.maximum }

    package var pauseInLongUnits: TimeAmount? { nil }
}
