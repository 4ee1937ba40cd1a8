// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The identity of a request: type, canonical body, and the headers that were named as significant.
///
/// It holds all of that, and not a hash of it: different requests never have equal keys.
public struct ResponseKey: Hashable, Sendable {
    private enum Kind: UInt8 { case header, metadata }

    /// The requests' type.
    package let type: UInt32
    /// The whole key, in a form that a disk store may write: the type, the number of significant headers, each of them,
    /// and the body.
    public let bytes: [UInt8]

    /// - Parameters:
    ///   - header: The significant ones among the wire format's custom fields.
    ///   - metadata: The significant values of the metadata.
    init(type: UInt32, body: ByteBuffer, header: [String: [UInt8]] = [:], metadata: [String: String] = [:]) {
        var fields = header.map { (kind: Kind.header, name: Array($0.key.utf8), value: $0.value) }
        fields += metadata.map { (kind: .metadata, name: Array($0.key.utf8), value: Array($0.value.utf8)) }
        fields.sort { one, other in
            one.kind == other.kind
                ? one.name.lexicographicallyPrecedes(other.name) : one.kind.rawValue < other.kind.rawValue
        }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(8 + body.readableBytes + fields.reduce(0) { $0 + 9 + $1.name.count + $1.value.count })
        Self.append(type, to: &bytes)
        Self.append(UInt32(clamping: fields.count), to: &bytes)
        for field in fields {
            bytes.append(field.kind.rawValue)
            Self.append(UInt32(clamping: field.name.count), to: &bytes)
            bytes += field.name
            Self.append(UInt32(clamping: field.value.count), to: &bytes)
            bytes += field.value
        }
        bytes += body.readableBytesView
        self.type = type
        self.bytes = bytes
    }

    /// Reads back ``bytes``; nil if they are too few to be a key's.
    public init?(bytes: [UInt8]) {
        guard bytes.count >= 8 else { return nil }
        self.type = bytes.prefix(4).reduce(0) { $0 << 8 | UInt32($1) }
        self.bytes = bytes
    }

    private static func append(_ number: UInt32, to bytes: inout [UInt8]) {
        withUnsafeBytes(of: number.bigEndian) { bytes += $0 }
    }
}
