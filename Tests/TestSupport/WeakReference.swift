// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers

/// A weak reference, which tells whether an object still exists.
package final class WeakReference<Object: AnyObject & Sendable>: Sendable {
    private struct Reference: Sendable {
        weak var object: Object?
    }

    private let reference = NIOLockedValueBox(Reference())

    package var object: Object? { self.reference.withLockedValue { $0.object } }

    package init() {}

    package func set(_ object: Object) {
        self.reference.withLockedValue { $0.object = object }
    }
}
