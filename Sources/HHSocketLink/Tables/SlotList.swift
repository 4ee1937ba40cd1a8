// SPDX-License-Identifier: Apache-2.0
/// Elements of a ``SlotTable`` in a doubly linked list. Appending an element, moving it to the end and removing it take
/// constant time.
///
/// Its state is not private, so that the code is specialised in the modules that use it.
@usableFromInline
package struct SlotList<Element>: ~Copyable {
    @usableFromInline
    struct Link {
        @usableFromInline var element: Element
        @usableFromInline var previous: SlotKey?
        @usableFromInline var next: SlotKey?

        @inlinable
        init(_ element: Element) { self.element = element }
    }

    @usableFromInline var links = SlotTable<Link>()
    /// The element that was appended, or moved to the end, before all others.
    @usableFromInline package internal(set) var first: SlotKey?
    @usableFromInline var last: SlotKey?

    /// The number of slots that are kept even if there is no element.
    @inlinable static var slotsKept: Int { 16 }

    @inlinable
    package init() {}

    @inlinable package var count: Int { self.links.count }

    /// An element; nil if it has been removed.
    @inlinable
    package subscript(key: SlotKey) -> Element? { self.links[key]?.element }

    /// Changes an element in its place, and returns the result of `body`; nil if the element has been removed.
    @inlinable
    @discardableResult
    package mutating func with<Result>(_ key: SlotKey, _ body: (inout Element) -> Result) -> Result? {
        self.links.with(key) { body(&$0.element) }
    }

    @inlinable
    package mutating func append(_ element: Element) -> SlotKey {
        let key = self.links.insert(Link(element))
        self.attach(key)
        return key
    }

    /// Removes an element and returns it; nil if it has been removed before.
    @inlinable
    @discardableResult
    package mutating func remove(_ key: SlotKey) -> Element? {
        self.detach(key)
        let element = self.links.remove(key)?.element
        _ = self.links.releaseMemory(keeping: Self.slotsKept)
        return element
    }

    /// Moves an element behind all others.
    @inlinable
    package mutating func moveToEnd(_ key: SlotKey) {
        guard self.links.contains(key), key != self.last else { return }
        self.detach(key)
        self.attach(key)
    }

    @inlinable
    mutating func attach(_ key: SlotKey) {
        let last = self.last
        self.links.with(key) { ($0.previous, $0.next) = (last, nil) }
        if let last { self.links.with(last) { $0.next = key } } else { self.first = key }
        self.last = key
    }

    @inlinable
    mutating func detach(_ key: SlotKey) {
        guard let (previous, next) = self.links.with(key, { ($0.previous, $0.next) }) else { return }
        if let previous { self.links.with(previous) { $0.next = next } } else { self.first = next }
        if let next { self.links.with(next) { $0.previous = previous } } else { self.last = previous }
    }
}

extension SlotList: Sendable where Element: Sendable {}
extension SlotList.Link: Sendable where Element: Sendable {}
