// SPDX-License-Identifier: Apache-2.0
public import HHSocketFoundation

/// The fields of a message that its `.proto` does not declare. They are kept as received, and encoded with it.
public struct UnknownStorage: Hashable, Sendable {
    /// Complete fields, one after another.
    @usableFromInline
    var bytes: [UInt8]

    @inlinable
    public init() { self.bytes = [] }

    /// The fields as encoded on the wire, each with its tag.
    public var data: Data { Data(self.bytes) }

    /// Whether there are no unknown fields.
    @inlinable
    public var isEmpty: Bool { self.bytes.isEmpty }

    /// Appends a number that a closed enumeration does not declare.
    mutating func append(number: UInt32, varint: UnsafeBufferPointer<UInt8>) {
        self.appendVarint(UInt64(number) << 3)
        self.bytes.append(contentsOf: varint)
    }

    /// Appends a field.
    ///
    /// - Parameter value: The value as on the wire, with its length if it is delimited by one.
    package mutating func append(number: UInt32, _ type: WireType, value: UnsafeRawBufferPointer) {
        self.appendVarint(UInt64(number) << 3 | UInt64(type.rawValue))
        self.bytes.append(contentsOf: value)
    }

    /// A field as received.
    package struct Field {
        package var number: UInt32
        package var type: WireType
        /// The whole field, with its tag.
        package var bytes: UnsafeRawBufferPointer
        /// The value, with its length if it is delimited by one.
        package var value: UnsafeRawBufferPointer

        /// The number and the type as on the wire.
        var tag: UInt32 { self.number << 3 | UInt32(self.type.rawValue) }
    }

    /// Calls `body` with each field, which lies in memory that is valid only until `body` returns.
    package func forEach(_ body: (Field) -> Void) {
        self.bytes.withUnsafeBytes { bytes in Self.forEach(in: bytes, body) }
    }

    /// Calls `body` with each field in `bytes`.
    static func forEach(in bytes: UnsafeRawBufferPointer, _ body: (Field) -> Void) {
        var decoder = MessageDecoder(bytes, .standard)
        // Groups were counted when the message was decoded, maybe within wider limits.
        decoder.levels = .max
        while let tag = decoder.nextTag() {
            let (field, value) = (decoder.field, decoder.cursor)
            decoder.skip(tag)
            guard !decoder.hasFailed, let type = WireType(rawValue: UInt8(tag & 7)) else { return }
            body(
                Field(
                    number: tag >> 3,
                    type: type,
                    bytes: UnsafeRawBufferPointer(start: field, count: decoder.cursor - field),
                    value: UnsafeRawBufferPointer(start: value, count: decoder.cursor - value)
                )
            )
        }
    }

    private mutating func appendVarint(_ value: UInt64) {
        var rest = value
        while rest >= 0x80 {
            self.bytes.append(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        self.bytes.append(UInt8(rest))
    }
}
