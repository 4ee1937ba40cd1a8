// SPDX-License-Identifier: Apache-2.0
import DequeModule
import NIOConcurrencyHelpers

/// A lock for each key, which tasks take in the order in which they ask. It is held for a short time, so waiting cannot
/// be cancelled.
final class KeyedLock<Key: Hashable & Sendable>: Sendable {
    private typealias Waiter = CheckedContinuation<Void, Never>

    /// The keys that are locked, and the tasks that wait for them.
    private let lines = NIOLockedValueBox<[Key: Deque<Waiter>]>([:])

    func lock(_ key: Key) async {
        // Without a continuation if it is free.
        let isLocked = self.lines.withLockedValue { lines in
            if lines[key] != nil { return true }
            lines[key] = []
            return false
        }
        guard isLocked else { return }
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

    func unlock(_ key: Key) {
        let next: Waiter? = self.lines.withLockedValue { lines in
            if let waiter = lines[key]?.popFirst() { return waiter }
            lines[key] = nil
            return nil
        }
        next?.resume()
    }
}
