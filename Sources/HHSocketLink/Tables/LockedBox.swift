// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers

/// A value under a lock, which may be noncopyable.
package final class LockedBox<Value: ~Copyable & Sendable>: @unchecked Sendable {
    // Proof of Sendable: the value is accessed only under the lock.
    private let lock = NIOLock()
    private var value: Value

    package init(_ value: consuming Value) {
        self.value = value
    }

    package func withLockedValue<Result>(_ body: (inout Value) -> Result) -> Result {
        self.lock.withLock { body(&self.value) }
    }
}
