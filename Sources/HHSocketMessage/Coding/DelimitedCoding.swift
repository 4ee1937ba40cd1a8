// SPDX-License-Identifier: Apache-2.0
public import HHSocketFoundation

/// Text, in UTF-8.
@_documentation(visibility: internal)
public enum WireString: WireKeyCoding {
    @inlinable public static var wireType: UInt32 { 2 }
    @inlinable public static var zero: String { "" }
    @inlinable public static func isZero(_ value: String) -> Bool { value.isEmpty }

    /// Unlike the others here not inlinable, because it does more work than a call costs.
    public static func decode(from decoder: inout MessageDecoder) -> String {
        let bytes = decoder.delimited()
        if bytes.isEmpty { return "" }
        return decoder.text(bytes)
    }

    public static func encode(_ value: String, to encoder: inout MessageEncoder) {
        encoder.prepend(text: value)
    }

    @inlinable
    public static func precedes(_ one: String, _ other: String) -> Bool {
        one.utf8.lexicographicallyPrecedes(other.utf8)
    }
}

/// Any bytes.
@_documentation(visibility: internal)
public enum WireBytes: WireCoding {
    @inlinable public static var wireType: UInt32 { 2 }
    @inlinable public static var zero: Data { Data() }
    @inlinable public static func isZero(_ value: Data) -> Bool { value.isEmpty }

    public static func decode(from decoder: inout MessageDecoder) -> Data {
        let bytes = decoder.delimited()
        if bytes.isEmpty { return Data() }
        decoder.charge(bytes.count)
        return decoder.hasFailed ? Data() : Data(bytes)
    }

    public static func encode(_ value: Data, to encoder: inout MessageEncoder) {
        value.withUnsafeBytes { bytes in encoder.prepend(bytes: bytes) }
        encoder.prepend(varint: UInt64(value.count))
    }
}

extension MessageDecoder {
    /// The text of these bytes, which were just read; fails if they are not UTF-8.
    fileprivate mutating func text(_ bytes: UnsafeBufferPointer<UInt8>) -> String {
        // Short texts require no memory; others have a header.
        if bytes.count > 15 { self.charge(bytes.count + 32) }
        if self.hasFailed { return "" }
        // The standard library's check exists only in new versions, and is slower for short texts.
        if UTF8Validator.isValid(UnsafeRawBufferPointer(bytes)) { return String(decoding: bytes, as: UTF8.self) }
        self.fail(.invalidUTF8(field: ""), at: bytes.baseAddress)
        return ""
    }
}
