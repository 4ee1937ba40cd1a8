// SPDX-License-Identifier: Apache-2.0
/// Memory for values that are accessed by index, without the checks of an array: it has one owner, so accesses need not
/// check for sharing.
struct Slab<Element>: ~Copyable {
    private var base: UnsafeMutablePointer<Element>
    private var capacity: Int
    private(set) var count = 0

    init(minimumCapacity: Int = 16) {
        self.capacity = max(1, minimumCapacity)
        self.base = .allocate(capacity: self.capacity)
    }

    init(repeating element: Element, count: Int) {
        self.init(minimumCapacity: count)
        self.base.initialize(repeating: element, count: count)
        self.count = count
    }

    deinit {
        self.base.deinitialize(count: self.count)
        self.base.deallocate()
    }

    var indices: Range<Int> { 0..<self.count }

    subscript(index: Int) -> Element {
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

    @inline(__always)
    mutating func append(_ element: consuming Element) {
        if self.count == self.capacity { self.grow() }
        (self.base + self.count).initialize(to: element)
        self.count += 1
    }

    @inline(never)
    private mutating func grow() {
        let larger = UnsafeMutablePointer<Element>.allocate(capacity: self.capacity * 2)
        larger.moveInitialize(from: self.base, count: self.count)
        self.base.deallocate()
        self.base = larger
        self.capacity *= 2
    }
}

/// Memory for values whose presence only the owner knows: it stores and removes them, and must remove all of them
/// before the memory is released.
struct Places<Element: ~Copyable>: ~Copyable {
    private var base: UnsafeMutablePointer<Element>
    private var capacity: Int

    init() {
        self.capacity = 16
        self.base = .allocate(capacity: self.capacity)
    }

    deinit { self.base.deallocate() }

    /// The place at an index from 0 to the last one passed to ``reserve(_:isUsed:)``.
    @inline(__always)
    subscript(index: Int) -> UnsafeMutablePointer<Element> {
        precondition(index >= 0 && index < self.capacity)
        return self.base + index
    }

    /// Makes room for a value at `index`.
    ///
    /// - Parameter isUsed: Whether there is a value at an index.
    @inline(__always)
    mutating func reserve(_ index: Int, isUsed: (Int) -> Bool) {
        if index >= self.capacity { self.grow(index, isUsed) }
    }

    @inline(never)
    private mutating func grow(_ index: Int, _ isUsed: (Int) -> Bool) {
        let capacity = max(index + 1, self.capacity * 2)
        let larger = UnsafeMutablePointer<Element>.allocate(capacity: capacity)
        for place in 0..<self.capacity where isUsed(place) {
            (larger + place).moveInitialize(from: self.base + place, count: 1)
        }
        self.base.deallocate()
        self.base = larger
        self.capacity = capacity
    }
}
