// SPDX-License-Identifier: Apache-2.0
/// Values that are not messages.
@_documentation(visibility: internal)
extension MessageDecoder {
    @inlinable
    public mutating func value<Coding: WireCoding>(_ value: inout Coding.Value, _ coding: Coding.Type) {
        value = Coding.decode(from: &self)
    }

    /// Reads a value for a oneof.
    @inlinable
    public mutating func read<Coding: WireCoding>(_ coding: Coding.Type) -> Coding.Value { Coding.decode(from: &self) }

    /// Reads a value of a field with presence.
    @inlinable
    public mutating func optional<Coding: WireCoding>(_ value: inout Coding.Value?, _ coding: Coding.Type) {
        value = Coding.decode(from: &self)
    }

    /// Reads an element of a repeated field.
    @inlinable
    @inline(never)
    public mutating func append<Coding: WireCoding>(_ values: inout [Coding.Value], _ coding: Coding.Type) {
        self.charge(MemoryLayout<Coding.Value>.stride)
        values.append(Coding.decode(from: &self))
    }

    /// Reads packed values.
    @inlinable
    @inline(never)
    public mutating func packed<Coding: PackedCoding>(_ values: inout [Coding.Value], _ coding: Coding.Type) {
        guard let outer = self.enter(isLevel: false) else { return }
        Coding.decodePacked(&values, from: &self)
        self.exit(to: outer, isLevel: false)
    }

    // MARK: Enumerations

    /// Reads a number of an enumeration. One that a closed enumeration does not know is kept as an unknown field, and
    /// the value stays as it is.
    @inlinable
    public mutating func enumeration<Enum: ProtobufEnum>(_ value: inout Enum, _ unknown: inout UnknownStorage) {
        if let known = WireEnum<Enum>.decodeKnown(from: &self) {
            value = known
        } else {
            self.keep(self.field, in: &unknown)
        }
    }

    /// Reads a number of an enumeration, of a field with presence.
    @inlinable
    public mutating func enumeration<Enum: ProtobufEnum>(_ value: inout Enum?, _ unknown: inout UnknownStorage) {
        if let known = WireEnum<Enum>.decodeKnown(from: &self) {
            value = known
        } else {
            self.keep(self.field, in: &unknown)
        }
    }

    /// Reads an element of a repeated enumeration.
    @inlinable
    @inline(never)
    public mutating func enumerations<Enum: ProtobufEnum>(_ values: inout [Enum], _ unknown: inout UnknownStorage) {
        guard let known = WireEnum<Enum>.decodeKnown(from: &self) else { return self.keep(self.field, in: &unknown) }
        self.charge(MemoryLayout<Enum>.stride)
        values.append(known)
    }

    /// Reads packed numbers of an enumeration.
    @inlinable
    @inline(never)
    public mutating func packedEnumerations<Enum: ProtobufEnum>(
        _ values: inout [Enum],
        tag: UInt32,
        unknown: inout UnknownStorage
    ) {
        guard let outer = self.enter(isLevel: false) else { return }
        while self.cursor < self.end {
            let start = self.cursor
            let number = Int32(truncatingIfNeeded: self.varint())
            if self.hasFailed { break }
            if let known = Enum(rawValue: Int(number)) {
                self.charge(MemoryLayout<Enum>.stride)
                values.append(known)
            } else {
                self.keep(tag >> 3, varint: UnsafeBufferPointer(start: start, count: self.cursor - start), in: &unknown)
            }
        }
        self.exit(to: outer, isLevel: false)
    }
}
