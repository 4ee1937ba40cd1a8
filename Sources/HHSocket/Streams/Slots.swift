// SPDX-License-Identifier: Apache-2.0
/// Names an element of ``Slots``; invalid once that was removed.
package struct SlotKey: Hashable, Sendable {
    var index: UInt32
    var generation: UInt32
}

/// Elements in places that are used again. A key whose element was removed finds nothing.
package struct Slots<Element> {
    fileprivate struct Place {
        var generation: UInt32
        var element: Element?
    }

    /// The number of empty places that are kept.
    private static var placesKept: Int { 16 }

    private var places: [Place] = []
    private var free: [UInt32] = []
    /// The generation of new places, so that old keys match none of them.
    private var firstGeneration: UInt32 = 0
    /// The largest generation of a place so far.
    private var lastGeneration: UInt32 = 0

    package init() {}

    /// The number of elements.
    package var count: Int { self.places.count - self.free.count }

    package mutating func insert(_ element: Element) -> SlotKey {
        if let index = self.free.popLast() {
            self.places[Int(index)].element = element
            return SlotKey(index: index, generation: self.places[Int(index)].generation)
        }
        self.places.append(Place(generation: self.firstGeneration, element: element))
        return SlotKey(index: UInt32(self.places.count - 1), generation: self.firstGeneration)
    }

    @discardableResult
    package mutating func remove(_ key: SlotKey) -> Element? {
        guard self.has(key), let element = self.places[Int(key.index)].element.take() else { return nil }
        self.places[Int(key.index)].generation &+= 1
        self.lastGeneration = max(self.lastGeneration, self.places[Int(key.index)].generation)
        self.free.append(key.index)
        if self.count == 0, self.places.count > Self.placesKept {
            self.firstGeneration = self.lastGeneration
            self.places = []
            self.free = []
        }
        return element
    }

    @inline(__always)
    package func has(_ key: SlotKey) -> Bool {
        key.index < self.places.count && self.places[Int(key.index)].generation == key.generation
    }

    /// Runs `body` with an element in place, and returns its result; nil without an element.
    ///
    /// For operations on each frame: the subscript copies an element that is read, and allocates memory for one that is
    /// changed.
    @discardableResult
    @inline(__always)
    mutating func with<Result>(_ key: SlotKey, _ body: (inout Element) -> Result) -> Result?
    where Element: SlotElement {
        guard self.has(key) else { return nil }
        return self.places[Int(key.index)].element?.inPlace(body)
    }

    package subscript(key: SlotKey) -> Element? {
        get { self.has(key) ? self.places[Int(key.index)].element : nil }
        _modify {
            if self.has(key) {
                yield &self.places[Int(key.index)].element
            } else {
                var none: Element?
                yield &none
            }
        }
    }

    /// The keys of all elements.
    package var keys: [SlotKey] {
        self.places.indices.compactMap { index in
            guard self.places[index].element != nil else { return nil }
            return SlotKey(index: UInt32(index), generation: self.places[index].generation)
        }
    }
}

/// An element that is changed in its place.
protocol SlotElement {}

extension SlotElement {
    @inline(__always)
    mutating func inPlace<Result>(_ body: (inout Self) -> Result) -> Result { body(&self) }
}

extension Slots: Sendable where Element: Sendable {}
extension Slots.Place: Sendable where Element: Sendable {}
