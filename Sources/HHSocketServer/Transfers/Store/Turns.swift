// SPDX-License-Identifier: Apache-2.0
import DequeModule
import NIOConcurrencyHelpers

/// Grants each key to one task at a time, in the order in which they ask. A turn is short, so waiting cannot be
/// cancelled.
final class Turns<Key: Hashable & Sendable>: Sendable {
    private typealias Waiter = CheckedContinuation<Void, Never>

    /// The keys that are taken, and the tasks that wait for them.
    private let lines = NIOLockedValueBox<[Key: Deque<Waiter>]>([:])

    func take(_ key: Key) async {
        // Without a continuation if it is free.
        let isTaken = self.lines.withLockedValue { lines in
            if lines[key] != nil { return true }
            lines[key] = []
            return false
        }
        guard isTaken else { return }
        await withCheckedContinuation { (waiter: Waiter) in
            let isFree = self.lines.withLockedValue { lines in
                guard lines[key] != nil else {
                    lines[key] = []
                    return true
                }
                lines[key]?.append(waiter)
                return false
            }
            if isFree { waiter.resume() }
        }
    }

    func give(_ key: Key) {
        let next: Waiter? = self.lines.withLockedValue { lines in
            if let waiter = lines[key]?.popFirst() { return waiter }
            lines[key] = nil
            return nil
        }
        next?.resume()
    }
}
