/// Serials in flight, to small numbers. Open addressing over one array: serials are handed out in order, so that they
/// lie side by side, and a look-up is one step as a rule.
struct SerialMap: Sendable {
    private struct Slot: Sendable {
        /// Zero is an empty slot; no request has that serial.
        var serial: UInt32 = 0
        var value: UInt32 = 0
    }

    private var slots: [Slot]
    private(set) var count = 0

    init() {
        self.slots = Array(repeating: Slot(), count: 64)
    }

    private var mask: Int { self.slots.count - 1 }

    subscript(serial: UInt32) -> UInt32? {
        guard let index = self.index(of: serial) else { return nil }
        return self.slots[index].value
    }

    func contains(_ serial: UInt32) -> Bool { self.index(of: serial) != nil }

    /// Sets the value of a serial other than zero, new or not.
    mutating func set(_ serial: UInt32, _ value: UInt32) {
        assert(serial != 0)
        if let index = self.index(of: serial) {
            self.slots[index].value = value
            return
        }
        if (self.count + 1) * 4 > self.slots.count * 3 { self.grow() }
        self.insert(Slot(serial: serial, value: value))
        self.count += 1
    }

    @discardableResult
    mutating func remove(_ serial: UInt32) -> UInt32? {
        guard var hole = self.index(of: serial) else { return nil }
        let value = self.slots[hole].value
        // Move later members of the run back, so that no look-up stops at the hole.
        var index = (hole + 1) & self.mask
        while self.slots[index].serial != 0 {
            let home = Int(self.slots[index].serial) & self.mask
            if (index - home) & self.mask >= (index - hole) & self.mask {
                self.slots[hole] = self.slots[index]
                hole = index
            }
            index = (index + 1) & self.mask
        }
        self.slots[hole] = Slot()
        self.count -= 1
        return value
    }

    private func index(of serial: UInt32) -> Int? {
        guard serial != 0 else { return nil }
        var index = Int(serial) & self.mask
        while true {
            let found = self.slots[index].serial
            if found == serial { return index }
            if found == 0 { return nil }
            index = (index + 1) & self.mask
        }
    }

    private mutating func insert(_ slot: Slot) {
        var index = Int(slot.serial) & self.mask
        while self.slots[index].serial != 0 { index = (index + 1) & self.mask }
        self.slots[index] = slot
    }

    private mutating func grow() {
        let old = self.slots
        self.slots = Array(repeating: Slot(), count: old.count * 2)
        for slot in old where slot.serial != 0 { self.insert(slot) }
    }
}
