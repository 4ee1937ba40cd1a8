#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// The fields of a message that its `.proto` does not declare. They are kept as received, and encoded with it.
public struct UnknownStorage: Hashable, Sendable {
    /// Complete fields, one after another.
    @usableFromInline
    var bytes: [UInt8] = []

    @inlinable
    public init() {}

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

    private mutating func appendVarint(_ value: UInt64) {
        var rest = value
        while rest >= 0x80 {
            self.bytes.append(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        self.bytes.append(UInt8(rest))
    }
}
