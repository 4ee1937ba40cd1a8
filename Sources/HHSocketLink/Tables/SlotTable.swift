// SPDX-License-Identifier: Apache-2.0
/// The name of an element of a ``SlotTable``; invalid once that element has been removed.
@usableFromInline
package struct SlotKey: Hashable, Sendable {
    @usableFromInline package let index: UInt32
    @usableFromInline let generation: UInt32

    @inlinable
    init(index: UInt32, generation: UInt32) {
        self.index = index
        self.generation = generation
    }
}

/// Elements in numbered slots, which are reused. A key whose element has been removed finds nothing, even if its slot
/// has another element.
///
/// Whoever stores an index while its element is in the table accesses the element without the check of a key. Every
/// operation but ``keys(where:)`` takes constant time, and none copies an element.
///
/// Its state is not private, so that the code is specialised in the modules that use it.
@usableFromInline
package struct SlotTable<Element: ~Copyable>: ~Copyable {
    @usableFromInline
    struct Slot {
        /// Odd while the slot has an element. Each insertion and each removal adds one.
        @usableFromInline var generation: UInt32
        /// The next free slot, if this one is free.
        @usableFromInline var nextFree: UInt32

        @inlinable
        init(generation: UInt32, nextFree: UInt32) {
            self.generation = generation
            self.nextFree = nextFree
        }

        /// Takes the slot, the first free one, for an element, and returns the generation of its key.
        @inlinable
        @inline(__always)
        mutating func fill(_ firstFree: inout UInt32) -> UInt32 {
            self.generation &+= 1
            firstFree = self.nextFree
            return self.generation
        }

        /// Makes the slot, which has this index, the first free one.
        @inlinable
        @inline(__always)
        mutating func free(_ index: UInt32, _ firstFree: inout UInt32) {
            self.generation &+= 1
            self.nextFree = firstFree
            firstFree = index
        }
    }

    /// The end of the list of free slots.
    @inlinable static var none: UInt32 { .max }

    @usableFromInline var slots = Slab<Slot>()
    /// The memory of a free slot is not initialised.
    @usableFromInline var elements = Slots<Element>()
    /// The slot that became free last.
    @usableFromInline var firstFree = Self.none
    /// The generation of new slots, so that the keys of elements from before ``releaseMemory(keeping:)`` match none.
    @usableFromInline var firstGeneration: UInt32 = 0
    /// The number of elements.
    @usableFromInline package internal(set) var count = 0

    @inlinable
    package init() {}

    @inlinable
    deinit {
        for index in self.indices where self.hasElement(at: index) {
            self.elements[Int(index)].deinitialize(count: 1)
        }
    }

    /// The indices of all slots, with and without an element.
    @inlinable package var indices: Range<UInt32> { 0..<UInt32(self.slots.count) }

    /// Whether the slot at this index, if there is one, has an element.
    @inlinable
    @inline(__always)
    package func hasElement(at index: UInt32) -> Bool {
        Int(index) < self.slots.count && self.slots[Int(index)].generation & 1 == 1
    }

    /// Whether this key's element is in the table.
    @inlinable
    @inline(__always)
    package func contains(_ key: SlotKey) -> Bool {
        Int(key.index) < self.slots.count && self.slots[Int(key.index)].generation == key.generation
    }

    /// The key of the element at this index.
    @inlinable
    @inline(__always)
    package func key(at index: UInt32) -> SlotKey {
        SlotKey(index: index, generation: self.slots[Int(index)].generation)
    }

    /// The element at an index, which must have one.
    @inlinable
    @inline(__always)
    package subscript(index: UInt32) -> Element {
        @inline(__always)
        _read {
            assert(self.hasElement(at: index))
            yield self.elements[Int(index)].pointee
        }
        @inline(__always)
        _modify {
            assert(self.hasElement(at: index))
            yield &self.elements[Int(index)].pointee
        }
    }

    /// Changes an element in its place, and returns the result of `body`; nil if the element has been removed.
    @inlinable
    @discardableResult
    @inline(__always)
    package mutating func with<Result>(_ key: SlotKey, _ body: (inout Element) -> Result) -> Result? {
        guard self.contains(key) else { return nil }
        return body(&self.elements[Int(key.index)].pointee)
    }

    /// Adds an element in the slot that became free last, or in a new one.
    @inlinable
    @inline(__always)
    package mutating func insert(_ element: consuming Element) -> SlotKey {
        if self.firstFree == Self.none { self.addSlot() }
        let index = self.firstFree
        let generation = self.slots[Int(index)].fill(&self.firstFree)
        self.elements[Int(index)].initialize(to: element)
        self.count += 1
        return SlotKey(index: index, generation: generation)
    }

    @inlinable
    @inline(never)
    mutating func addSlot() {
        // Every slot has an element, since none is free.
        self.elements.reserve(self.slots.count) { _ in true }
        self.firstFree = UInt32(self.slots.count)
        self.slots.append(Slot(generation: self.firstGeneration, nextFree: Self.none))
    }

    /// Removes an element and returns it; nil if it has been removed before.
    @inlinable
    @discardableResult
    package mutating func remove(_ key: SlotKey) -> Element? {
        guard self.contains(key) else { return nil }
        let element = self.elements[Int(key.index)].move()
        self.vacate(key.index)
        return element
    }

    /// Frees the slot of an element that has nothing left to release, since its references were moved out or never
    /// were. The element is not deinitialised, which would cost a call for each reference, even to nil.
    @inlinable
    @inline(__always)
    package mutating func vacate(_ index: UInt32) {
        assert(self.hasElement(at: index))
        self.slots[Int(index)].free(index, &self.firstFree)
        self.count -= 1
    }

    /// The keys of the elements that satisfy `predicate`, in the order of their slots.
    @inlinable
    package func keys(where predicate: (borrowing Element) -> Bool) -> [SlotKey] {
        var keys: [SlotKey] = []
        for index in self.indices where self.hasElement(at: index) && predicate(self[index]) {
            keys.append(self.key(at: index))
        }
        return keys
    }

    /// Releases the memory of all slots if there is no element and there are more than `count` slots.
    ///
    /// - Returns: Whether it was released.
    @inlinable
    package mutating func releaseMemory(keeping count: Int) -> Bool {
        guard self.count == 0, self.slots.count > count else { return false }
        for index in self.slots.indices {
            self.firstGeneration = max(self.firstGeneration, self.slots[index].generation)
        }
        self.slots = Slab()
        self.elements = Slots()
        self.firstFree = Self.none
        return true
    }
}

// Proof of Sendable: a table has one owner, and only the table accesses its memory.
extension SlotTable: @unchecked Sendable where Element: Sendable, Element: ~Copyable {}

extension SlotTable {
    /// A copy of an element, or of what is read of it; nil if the element has been removed.
    @inlinable
    @inline(__always)
    package subscript(key: SlotKey) -> Element? { self.contains(key) ? self.elements[Int(key.index)].pointee : nil }
}
