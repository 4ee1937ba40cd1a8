// SPDX-License-Identifier: Apache-2.0
/// A map from serials in flight to small numbers.
///
/// The low bits of a serial select its slot. Serials are issued in order, so those in flight collide only if a call
/// takes very long. The younger of two that collide is stored in a dictionary. So almost every operation takes one
/// step, whatever the number of serials.
struct SerialMap: ~Copyable {
    struct Slot {
        /// Zero is an empty slot; no request has that serial.
        var serial: UInt32 = 0
        var value: UInt32 = 0
    }

    private var slots: Slab<Slot>
    /// The serials whose slot is occupied by another.
    private var displaced: [UInt32: UInt32] = [:]
    private(set) var count = 0

    init() {
        self.slots = Slab(repeating: Slot(), count: 64)
    }

    private func index(_ serial: UInt32) -> Int { Int(serial) & (self.slots.count - 1) }

    subscript(serial: UInt32) -> UInt32? {
        let slot = self.slots[self.index(serial)]
        if slot.serial == serial { return serial == 0 ? nil : slot.value }
        return self.displaced.isEmpty ? nil : self.displaced[serial]
    }

    func contains(_ serial: UInt32) -> Bool { self[serial] != nil }

    /// Sets the value of a serial other than zero, new or not.
    mutating func set(_ serial: UInt32, _ value: UInt32) {
        assert(serial != 0)
        let index = self.index(serial)
        if self.slots[index].serial == serial {
            self.slots[index].value = value
        } else if !self.displaced.isEmpty, self.displaced[serial] != nil {
            self.displaced[serial] = value
        } else {
            self.count += 1
            if self.count * 4 > self.slots.count * 3 { self.grow() }
            self.insert(serial, value)
        }
    }

    @discardableResult
    mutating func remove(_ serial: UInt32) -> UInt32? {
        let index = self.index(serial)
        let slot = self.slots[index]
        if slot.serial == serial {
            guard serial != 0 else { return nil }
            self.slots[index].serial = 0
            self.count -= 1
            return slot.value
        }
        guard !self.displaced.isEmpty, let value = self.displaced.removeValue(forKey: serial) else { return nil }
        self.count -= 1
        return value
    }

    private mutating func insert(_ serial: UInt32, _ value: UInt32) {
        let index = self.index(serial)
        if self.slots[index].serial == 0 {
            self.slots[index] = Slot(serial: serial, value: value)
        } else {
            self.displaced[serial] = value
        }
    }

    private mutating func grow() {
        var slots = Slab(repeating: Slot(), count: self.slots.count * 2)
        let displaced = self.displaced
        swap(&self.slots, &slots)
        self.displaced = [:]
        for index in slots.indices where slots[index].serial != 0 {
            self.insert(slots[index].serial, slots[index].value)
        }
        for (serial, value) in displaced { self.insert(serial, value) }
    }
}
