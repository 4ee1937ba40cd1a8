import NIOConcurrencyHelpers

/// Says whether an object is still there.
final class WeakReference<Object: AnyObject & Sendable>: Sendable {
    private struct Reference: Sendable {
        weak var object: Object?
    }

    private let reference = NIOLockedValueBox(Reference())

    var object: Object? { self.reference.withLockedValue { $0.object } }

    func set(_ object: Object) {
        self.reference.withLockedValue { $0.object = object }
    }
}
