#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// The fields of a message that its `.proto` does not know: kept as they came, and sent on with it.
public struct UnknownStorage: Hashable, Sendable {
    /// Whole fields, one after the other.
    @usableFromInline
    var bytes: [UInt8] = []

    @inlinable
    public init() {}

    /// The fields as they stand on the wire, each behind its tag.
    public var data: Data { Data(self.bytes) }

    /// Whether there is none.
    @inlinable
    public var isEmpty: Bool { self.bytes.isEmpty }

    mutating func append(_ field: RecordUnknown) {
        self.appendVarint(UInt64(field.number) << 3 | UInt64(field.wireType))
        self.bytes.append(contentsOf: field.value.buffer)
    }

    /// A number of a closed enumeration that does not know it.
    mutating func append(number: UInt32, enumValue: Int32) {
        self.appendVarint(UInt64(number) << 3)
        self.appendVarint(UInt64(bitPattern: Int64(enumValue)))
    }

    mutating func append(number: UInt32, delimited value: [UInt8]) {
        self.appendVarint(UInt64(number) << 3 | UInt64(WireType.lengthDelimited.rawValue))
        self.appendVarint(UInt64(value.count))
        self.bytes.append(contentsOf: value)
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
