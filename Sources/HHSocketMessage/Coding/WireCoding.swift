// SPDX-License-Identifier: Apache-2.0
/// The encoding of a value of a field on the wire. Used by generated code.
@_documentation(visibility: internal)
public protocol WireCoding {
    /// The type of the value in Swift.
    associatedtype Value: Hashable & Sendable

    /// The lower three bits of a field's tag.
    static var wireType: UInt32 { get }
    /// The value of a field that was not sent.
    static var zero: Value { get }

    static func isZero(_ value: Value) -> Bool
    /// Reads a value; after an error, the result is arbitrary.
    static func decode(from decoder: inout MessageDecoder) -> Value
    /// Reads a value; nil for a number that a closed enumeration does not declare.
    static func decodeKnown(from decoder: inout MessageDecoder) -> Value?
    /// Writes a value before the written ones.
    static func encode(_ value: Value, to encoder: inout MessageEncoder)
}

@_documentation(visibility: internal)
extension WireCoding {
    @inlinable
    public static func decodeKnown(from decoder: inout MessageDecoder) -> Value? { Self.decode(from: &decoder) }
}

/// The encoding of values that may be the keys of a map.
@_documentation(visibility: internal)
public protocol WireKeyCoding: WireCoding {
    /// Whether a key comes before another one where maps are sorted.
    static func precedes(_ one: Value, _ other: Value) -> Bool
}

/// The encoding of values that may be packed.
@_documentation(visibility: internal)
public protocol PackedCoding: WireCoding {
    /// Appends all values up to the end of the innermost message.
    static func decodePacked(_ values: inout [Value], from decoder: inout MessageDecoder)
    /// Writes values, without their length, before the written ones.
    static func encodePacked(_ values: [Value], to encoder: inout MessageEncoder)
}
