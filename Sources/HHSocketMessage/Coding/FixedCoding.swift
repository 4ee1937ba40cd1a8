// SPDX-License-Identifier: Apache-2.0
/// The encoding of numbers with four or eight bytes, in memory as on the wire.
@_documentation(visibility: internal)
public protocol FixedCoding: PackedCoding where Value: BitwiseCopyable {
    associatedtype Bits: FixedWidthInteger & BitwiseCopyable

    static func value(_ bits: Bits) -> Value
    static func bits(_ value: Value) -> Bits
}

extension FixedCoding {
    @inlinable public static var wireType: UInt32 { MemoryLayout<Bits>.size == 4 ? 5 : 1 }
    @inlinable public static var zero: Value { Self.value(0) }

    @inlinable
    @inline(__always)
    public static func isZero(_ value: Value) -> Bool { Self.bits(value) == 0 }

    @inlinable
    @inline(__always)
    public static func decode(from decoder: inout MessageDecoder) -> Value { Self.value(decoder.fixed(Bits.self)) }

    @inlinable
    @inline(__always)
    public static func encode(_ value: Value, to encoder: inout MessageEncoder) {
        encoder.prepend(fixed: Self.bits(value))
    }

    @inlinable
    public static func precedes(_ one: Value, _ other: Value) -> Bool { Self.bits(one) < Self.bits(other) }

    @inlinable
    public static func decodePacked(_ values: inout [Value], from decoder: inout MessageDecoder) {
        let size = MemoryLayout<Bits>.size
        let (count, rest) = (decoder.end - decoder.cursor).quotientAndRemainder(dividingBy: size)
        guard rest == 0 else { return decoder.fail(.truncated, at: decoder.end - rest) }
        decoder.charge(count * size)
        if decoder.hasFailed { return }
        guard values.isEmpty, Bits(1).littleEndian == 1 else {
            values.reserveCapacity(values.count + count)
            for _ in 0..<count { values.append(Self.decode(from: &decoder)) }
            return
        }
        let bytes = UnsafeRawBufferPointer(start: decoder.cursor, count: count * size)
        values = [Value](unsafeUninitializedCapacity: count) { memory, initialized in
            UnsafeMutableRawBufferPointer(memory).copyMemory(from: bytes)
            initialized = count
        }
        decoder.cursor = decoder.end
    }

    @inlinable
    public static func encodePacked(_ values: [Value], to encoder: inout MessageEncoder) {
        guard Bits(1).littleEndian == 1 else {
            for value in values.reversed() { Self.encode(value, to: &encoder) }
            return
        }
        values.withUnsafeBytes { encoder.prepend(bytes: $0) }
    }
}

extension FixedCoding where Value: FixedWidthInteger {
    @inlinable
    @inline(__always)
    public static func value(_ bits: Bits) -> Value { Value(truncatingIfNeeded: bits) }

    @inlinable
    @inline(__always)
    public static func bits(_ value: Value) -> Bits { Bits(truncatingIfNeeded: value) }
}

@_documentation(visibility: internal)
public enum WireFixed32: FixedCoding, WireKeyCoding {
    public typealias Value = UInt32
    public typealias Bits = UInt32
}

@_documentation(visibility: internal)
public enum WireFixed64: FixedCoding, WireKeyCoding {
    public typealias Value = UInt64
    public typealias Bits = UInt64
}

@_documentation(visibility: internal)
public enum WireSFixed32: FixedCoding, WireKeyCoding {
    public typealias Value = Int32
    public typealias Bits = UInt32
}

@_documentation(visibility: internal)
public enum WireSFixed64: FixedCoding, WireKeyCoding {
    public typealias Value = Int64
    public typealias Bits = UInt64
}

/// Negative zero does not count as zero: it is encoded.
@_documentation(visibility: internal)
public enum WireFloat: FixedCoding {
    public typealias Value = Float

    @inlinable public static func value(_ bits: UInt32) -> Float { Float(bitPattern: bits) }
    @inlinable public static func bits(_ value: Float) -> UInt32 { value.bitPattern }
}

/// Negative zero does not count as zero: it is encoded.
@_documentation(visibility: internal)
public enum WireDouble: FixedCoding {
    public typealias Value = Double

    @inlinable public static func value(_ bits: UInt64) -> Double { Double(bitPattern: bits) }
    @inlinable public static func bits(_ value: Double) -> UInt64 { value.bitPattern }
}
