// SPDX-License-Identifier: Apache-2.0

/// The order in which held requests are answered.
public enum MockReleaseOrder: Sendable, Hashable {
    /// The order in which they arrived.
    case inOrder
    /// The last one first.
    case reversed
    /// A random order, by the server's seeded generator.
    case shuffled

    func arrange<Element>(_ held: inout [Element], using generator: inout SplitMix) {
        if self == .reversed { held.reverse() }
        if self == .shuffled { held.shuffle(using: &generator) }
    }
}

/// A gate at which held requests wait for each other.
final class MockGate: Sendable {
    let count: Int
    let order: MockReleaseOrder

    init(count: Int, order: MockReleaseOrder) {
        self.count = count
        self.order = order
    }
}
