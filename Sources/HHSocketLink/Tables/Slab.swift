// SPDX-License-Identifier: Apache-2.0
/// Memory for values that are accessed by index, without the checks of an array: it has one owner, so accesses need not
/// check for sharing. Nothing is allocated for no values.
@usableFromInline
package struct Slab<Element>: ~Copyable {
    @usableFromInline var base: UnsafeMutablePointer<Element>
    @usableFromInline var capacity: Int
    @usableFromInline package internal(set) var count = 0

    @inlinable
    package init() {
        self.capacity = 0
        self.base = .ofNothing
    }

    @inlinable
    package init(repeating element: Element, count: Int) {
        self.capacity = count
        self.base = .allocate(capacity: count)
        self.base.initialize(repeating: element, count: count)
        self.count = count
    }

    @inlinable
    deinit {
        self.base.deinitialize(count: self.count)
        if self.capacity > 0 { self.base.deallocate() }
    }

    @inlinable package var indices: Range<Int> { 0..<self.count }

    @inlinable
    package subscript(index: Int) -> Element {
        @inline(__always)
        _read {
            precondition(index >= 0 && index < self.count)
            yield self.base[index]
        }
        @inline(__always)
        _modify {
            precondition(index >= 0 && index < self.count)
            yield &self.base[index]
        }
    }

    @inlinable
    @inline(__always)
    package mutating func append(_ element: consuming Element) {
        if self.count == self.capacity { self.grow() }
        (self.base + self.count).initialize(to: element)
        self.count += 1
    }

    @inlinable
    @inline(never)
    mutating func grow() {
        let capacity = max(4, self.capacity * 2)
        let larger = UnsafeMutablePointer<Element>.allocate(capacity: capacity)
        larger.moveInitialize(from: self.base, count: self.count)
        if self.capacity > 0 { self.base.deallocate() }
        self.base = larger
        self.capacity = capacity
    }
}

/// Memory for values whose presence only the owner knows: it stores and removes them, and must remove all of them
/// before the memory is released. Nothing is allocated for no values.
@usableFromInline
package struct Slots<Element: ~Copyable>: ~Copyable {
    @usableFromInline var base: UnsafeMutablePointer<Element>
    @usableFromInline var capacity: Int

    @inlinable
    package init() {
        self.capacity = 0
        self.base = .ofNothing
    }

    @inlinable
    deinit {
        if self.capacity > 0 { self.base.deallocate() }
    }

    /// The slot at an index from 0 to the last one passed to ``reserve(_:isUsed:)``.
    @inlinable
    @inline(__always)
    package subscript(index: Int) -> UnsafeMutablePointer<Element> {
        precondition(index >= 0 && index < self.capacity)
        return self.base + index
    }

    /// Makes room for a value at `index`.
    ///
    /// - Parameter isUsed: Whether there is a value at an index.
    @inlinable
    @inline(__always)
    package mutating func reserve(_ index: Int, isUsed: (Int) -> Bool) {
        if index >= self.capacity { self.grow(index, isUsed) }
    }

    @inlinable
    @inline(never)
    mutating func grow(_ index: Int, _ isUsed: (Int) -> Bool) {
        let capacity = max(index + 1, self.capacity * 2)
        let larger = UnsafeMutablePointer<Element>.allocate(capacity: capacity)
        for slot in 0..<self.capacity where isUsed(slot) {
            (larger + slot).moveInitialize(from: self.base + slot, count: 1)
        }
        if self.capacity > 0 { self.base.deallocate() }
        self.base = larger
        self.capacity = capacity
    }
}

extension UnsafeMutablePointer where Pointee: ~Copyable {
    /// A pointer for a capacity of 0, which is never followed.
    @inlinable static var ofNothing: Self {
        // An alignment is never 0.
        Self(bitPattern: MemoryLayout<Pointee>.alignment).unsafelyUnwrapped
    }
}
