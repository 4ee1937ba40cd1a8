// SPDX-License-Identifier: Apache-2.0
/// An envelope around a body that cannot be opened or made.
package enum EnvelopeError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The type has these bits, which hello did not agree on.
    case flagNotAgreed(UInt32)
    /// The payload ends within the metadata or, if `announced` is nil, within the length of it.
    case metadataTruncated(announced: Int?, available: Int)
    /// The size of the metadata, in bytes.
    case metadataTooLong(length: Int, limit: Int)
    /// The bytes are not metadata, for this reason.
    case metadataMalformed(String)
    /// The limit that the decompressed body exceeds, in bytes.
    case bodyTooLarge(limit: Int)
    /// The bytes are not a compressed body, for this reason.
    case compressionMalformed(String)

    /// Whether the size of the body is the only fault.
    package var isTooLarge: Bool {
        if case .bodyTooLarge = self { true } else { false }
    }

    package var description: String {
        switch self {
        case .flagNotAgreed(let flags):
            "its type has \(Self.names(of: flags)), which hello did not agree on"
        case .metadataTruncated(.some(let announced), let available):
            "it announces \(announced) bytes of metadata where \(available) are left"
        case .metadataTruncated(nil, let available):
            "it has \(available) bytes where the length of its metadata has 4"
        case .metadataTooLong(let length, let limit):
            "its metadata has \(length) bytes, over the limit of \(limit)"
        case .metadataMalformed(let reason):
            "its metadata cannot be read: \(reason)"
        case .bodyTooLarge(let limit):
            "its compressed body has more than \(limit) bytes (maximumPayloadLength) when it is decompressed"
        case .compressionMalformed(let reason):
            "its compressed body cannot be read: \(reason)"
        }
    }

    private static func names(of flags: UInt32) -> String {
        var names: [String] = []
        if flags & FrameType.metadataFlag != 0 { names.append("bit 31 (metadata)") }
        if flags & FrameType.compressionFlag != 0 { names.append("bit 30 (compression)") }
        if flags & FrameType.continuesFlag != 0 { names.append("bit 29 (continues)") }
        return names.joined(separator: " and ")
    }
}
