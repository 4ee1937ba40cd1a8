// SPDX-License-Identifier: Apache-2.0
package import HHSocket
import NIOConcurrencyHelpers
package import NIOCore

/// An account that has room for a number of bytes, and tells what is held.
package final class CountingAccount: LinkAccount {
    private struct State {
        var bytes = 0
        var mostBytes = 0
        var isCondemned = false
        var counts: [Resource: Int] = [:]
    }

    private let maximum: Int
    private let state = NIOLockedValueBox(State())
    package let pauseInLongUnits: TimeAmount?

    /// - Parameter pause: The pause in long units; none by default.
    package init(maximum: Int = .max, pause: TimeAmount? = nil) {
        self.maximum = maximum
        self.pauseInLongUnits = pause
    }

    /// The number of bytes that are held.
    package var bytes: Int { self.state.withLockedValue { $0.bytes } }

    /// The largest number of bytes that were held.
    package var mostBytes: Int { self.state.withLockedValue { $0.mostBytes } }
    /// Whether the connection is to be closed.
    package var isCondemned: Bool { self.state.withLockedValue { $0.isCondemned } }

    /// The number of these resources, of those that are counted.
    package func count(of resource: Resource) -> Int { self.state.withLockedValue { $0.counts[resource, default: 0] } }

    package func held(_ change: Int) {
        self.state.withLockedValue { state in
            state.bytes += change
            state.mostBytes = max(state.mostBytes, state.bytes)
        }
    }

    package func counts(_ change: Int, of resource: Resource) {
        self.state.withLockedValue { $0.counts[resource, default: 0] += change }
    }

    package func hasRoom(forLast bytes: Int) -> Bool { self.bytes + bytes <= self.maximum }

    package func condemn() { self.state.withLockedValue { $0.isCondemned = true } }
}
