// SPDX-License-Identifier: Apache-2.0
/// The encoding of numbers with a variable length.
@_documentation(visibility: internal)
public protocol VarintCoding: PackedCoding, WireKeyCoding {
    static func value(_ varint: UInt64) -> Value
    static func varint(_ value: Value) -> UInt64
}

extension VarintCoding {
    @inlinable public static var wireType: UInt32 { 0 }
    @inlinable public static var zero: Value { Self.value(0) }

    @inlinable
    @inline(__always)
    public static func isZero(_ value: Value) -> Bool { Self.varint(value) == 0 }

    @inlinable
    @inline(__always)
    public static func decode(from decoder: inout MessageDecoder) -> Value { Self.value(decoder.varint()) }

    @inlinable
    @inline(__always)
    public static func encode(_ value: Value, to encoder: inout MessageEncoder) {
        encoder.prepend(varint: Self.varint(value))
    }

    /// Any deterministic order suffices, so negative numbers may come last.
    @inlinable
    public static func precedes(_ one: Value, _ other: Value) -> Bool { Self.varint(one) < Self.varint(other) }

    @inlinable
    public static func decodePacked(_ values: inout [Value], from decoder: inout MessageDecoder) {
        // Few numbers are read into the stack, and the array is allocated when their number is known.
        if decoder.end - decoder.cursor <= 32 {
            withUnsafeTemporaryAllocation(of: Value.self, capacity: 32) { memory in
                var count = 0
                while decoder.cursor < decoder.end {
                    memory.initializeElement(at: count, to: Self.decode(from: &decoder))
                    count += 1
                }
                decoder.charge(count * MemoryLayout<Value>.stride)
                if decoder.hasFailed { return }
                let numbers = UnsafeBufferPointer(rebasing: memory[..<count])
                if values.isEmpty { values = [Value](numbers) } else { values.append(contentsOf: numbers) }
            }
            return
        }
        let count = decoder.countOfVarints()
        decoder.charge(count * MemoryLayout<Value>.stride)
        if decoder.hasFailed { return }
        guard values.isEmpty else {
            values.reserveCapacity(values.count + count)
            for _ in 0..<count { values.append(Self.decode(from: &decoder)) }
            return
        }
        values = [Value](unsafeUninitializedCapacity: count) { memory, initialized in
            guard var target = memory.baseAddress else { return }
            let last = target + count
            var next = decoder.cursor
            // The last byte of the range ends a number, so no number extends beyond it.
            while target < last {
                var value = UInt64(next[0])
                if value < 0x80 {
                    next += 1
                    // Small numbers often occur together.
                    while last - target > 8,
                        UnsafeRawPointer(next).loadUnaligned(as: UInt64.self) & 0x8080_8080_8080_8080 == 0
                    {
                        target.initialize(to: Self.value(value))
                        for index in 0..<7 { (target + 1 + index).initialize(to: Self.value(UInt64(next[index]))) }
                        value = UInt64(next[7])
                        target += 8
                        next += 8
                    }
                } else {
                    var byte = UInt64(next[1])
                    value = value & 0x7F | byte &<< 7
                    if byte < 0x80 {
                        next += 2
                    } else {
                        byte = UInt64(next[2])
                        value = value & 0x3FFF | byte &<< 14
                        if byte < 0x80 {
                            next += 3
                        } else {
                            decoder.cursor = next
                            value = decoder.longVarint()
                            if decoder.hasFailed { break }
                            next = decoder.cursor
                        }
                    }
                }
                target.initialize(to: Self.value(value))
                target += 1
            }
            if !decoder.hasFailed { decoder.cursor = next }
            initialized = target - (last - count)
        }
    }

    @inlinable
    public static func encodePacked(_ values: [Value], to encoder: inout MessageEncoder) {
        values.withUnsafeBufferPointer { values in
            guard let first = values.baseAddress else { return }
            var next = first + values.count
            while next > first {
                // The numbers of up to three bytes, while enough bytes remain for any of them.
                let start = encoder.start
                var cursor = encoder.cursor
                while next > first, cursor - start >= 3 {
                    let value = Self.varint((next - 1).pointee)
                    if value < 0x80 {
                        cursor -= 1
                        cursor[0] = UInt8(truncatingIfNeeded: value)
                    } else if value < 0x4000 {
                        cursor -= 2
                        cursor[0] = UInt8(truncatingIfNeeded: value | 0x80)
                        cursor[1] = UInt8(truncatingIfNeeded: value &>> 7)
                    } else if value < 0x20_0000 {
                        cursor -= 3
                        cursor[0] = UInt8(truncatingIfNeeded: value | 0x80)
                        cursor[1] = UInt8(truncatingIfNeeded: value &>> 7 | 0x80)
                        cursor[2] = UInt8(truncatingIfNeeded: value &>> 14)
                    } else {
                        break
                    }
                    next -= 1
                }
                encoder.cursor = cursor
                guard next > first else { return }
                next -= 1
                encoder.prepend(varint: Self.varint(next.pointee))
            }
        }
    }
}

extension VarintCoding where Value: FixedWidthInteger {
    @inlinable
    @inline(__always)
    public static func value(_ varint: UInt64) -> Value { Value(truncatingIfNeeded: varint) }

    /// A negative number takes 64 bits.
    @inlinable
    @inline(__always)
    public static func varint(_ value: Value) -> UInt64 { UInt64(truncatingIfNeeded: value) }
}

extension MessageDecoder {
    /// The number of varints up to the end of the innermost message; fails if the last one does not end there.
    @usableFromInline
    mutating func countOfVarints() -> Int {
        var (next, count) = (self.cursor, 0)
        // Each ends with a byte whose highest bit is clear.
        while self.end - next >= 8 {
            let word = UnsafeRawPointer(next).loadUnaligned(as: UInt64.self)
            // The sum of the eight bytes, each of which is 0 or 1.
            count += Int(truncatingIfNeeded: (((~word & 0x8080_8080_8080_8080) >> 7) &* 0x0101_0101_0101_0101) >> 56)
            next += 8
        }
        while next < self.end {
            if next.pointee < 0x80 { count += 1 }
            next += 1
        }
        guard self.cursor < self.end, (self.end - 1).pointee >= 0x80 else { return count }
        // The error is the first one, which may be in a number before the last.
        while !self.hasFailed { _ = self.varint() }
        return 0
    }
}

/// Numbers without zigzag; a negative one takes ten bytes.
@_documentation(visibility: internal)
public enum WireInt32: VarintCoding {
    public typealias Value = Int32
}

@_documentation(visibility: internal)
public enum WireInt64: VarintCoding {
    public typealias Value = Int64
}

@_documentation(visibility: internal)
public enum WireUInt32: VarintCoding {
    public typealias Value = UInt32
}

@_documentation(visibility: internal)
public enum WireUInt64: VarintCoding {
    public typealias Value = UInt64
}

/// Numbers in zigzag: the sign is the lowest bit, so that those of small magnitude are short.
@_documentation(visibility: internal)
public enum WireSInt32: VarintCoding {
    public typealias Value = Int32

    @inlinable public static func value(_ varint: UInt64) -> Int32 {
        let bits = UInt32(truncatingIfNeeded: varint)
        return Int32(bitPattern: bits >> 1) ^ -Int32(bitPattern: bits & 1)
    }
    @inlinable public static func varint(_ value: Int32) -> UInt64 {
        UInt64(UInt32(bitPattern: value << 1 ^ value >> 31))
    }
}

@_documentation(visibility: internal)
public enum WireSInt64: VarintCoding {
    public typealias Value = Int64

    @inlinable public static func value(_ varint: UInt64) -> Int64 {
        Int64(bitPattern: varint >> 1) ^ -Int64(bitPattern: varint & 1)
    }
    @inlinable public static func varint(_ value: Int64) -> UInt64 { UInt64(bitPattern: value << 1 ^ value >> 63) }
}

@_documentation(visibility: internal)
public enum WireBool: VarintCoding {
    public typealias Value = Bool

    @inlinable public static func value(_ varint: UInt64) -> Bool { varint != 0 }
    @inlinable public static func varint(_ value: Bool) -> UInt64 { value ? 1 : 0 }
}

/// The numbers of an enumeration.
@_documentation(visibility: internal)
public enum WireEnum<Enum: ProtobufEnum>: PackedCoding {
    @inlinable public static var wireType: UInt32 { 0 }
    @inlinable public static var zero: Enum { Enum() }
    @inlinable public static func isZero(_ value: Enum) -> Bool { value.rawValue == 0 }

    @inlinable
    public static func decode(from decoder: inout MessageDecoder) -> Enum { Self.decodeKnown(from: &decoder) ?? Enum() }

    /// Nil after an error, and for a number that the enumeration does not know.
    @inlinable
    public static func decodeKnown(from decoder: inout MessageDecoder) -> Enum? {
        let number = Int32(truncatingIfNeeded: decoder.varint())
        return decoder.hasFailed ? nil : Enum(rawValue: Int(number))
    }

    @inlinable
    public static func encode(_ value: Enum, to encoder: inout MessageEncoder) {
        encoder.prepend(varint: UInt64(bitPattern: Int64(Int32(truncatingIfNeeded: value.rawValue))))
    }

    @inlinable
    public static func decodePacked(_ values: inout [Enum], from decoder: inout MessageDecoder) {
        while decoder.cursor < decoder.end { values.append(Self.decode(from: &decoder)) }
    }

    @inlinable
    public static func encodePacked(_ values: [Enum], to encoder: inout MessageEncoder) {
        for value in values.reversed() { Self.encode(value, to: &encoder) }
    }
}
