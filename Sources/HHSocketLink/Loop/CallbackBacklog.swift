// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers

/// Counts the bytes that the socket thread has passed to the user's queue and that were not processed there, so that
/// nothing more is read from the network while the queue is behind. Any thread.
package final class CallbackBacklog: Sendable {
    private struct State {
        var bytes = 0
        var isFull = false
    }

    /// The number of bytes, 8 MiB, above which reading is held, until half of it remains.
    package static let limit = 8 << 20
    /// The cost of a callback besides the bytes of its frame: the closure, its block, and the objects that they refer
    /// to.
    private static let costOfCallback = 512

    /// The number of bytes from which on what is passed on is detached from the reads that it is a slice of.
    private static let muchBytes = 256 << 10

    private let state = NIOLockedValueBox(State())

    package init() {}

    /// Whether nothing more should be read for now.
    package var isFull: Bool { self.state.withLockedValue { $0.isFull } }

    /// Whether the queue is so far behind that received bytes may stay for long.
    package var isBehind: Bool { self.state.withLockedValue { $0.bytes >= Self.muchBytes } }

    /// Records that a callback with this number of bytes is handed over.
    ///
    /// - Returns: Whether from now on nothing more should be read.
    package func add(bytes: Int) -> Bool {
        self.state.withLockedValue { state in
            state.bytes += bytes + Self.costOfCallback
            guard !state.isFull, state.bytes > Self.limit else { return false }
            state.isFull = true
            return true
        }
    }

    /// Records that a callback has run.
    ///
    /// - Returns: Whether reading should continue from now on.
    package func remove(bytes: Int) -> Bool {
        self.state.withLockedValue { state in
            state.bytes -= bytes + Self.costOfCallback
            guard state.isFull, state.bytes <= Self.limit / 2 else { return false }
            state.isFull = false
            return true
        }
    }
}
