// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import HHSocketMessage

/// The name of a file in a store: 1 to 128 of `A-Z a-z 0-9 . _ -`, and neither `.` nor `..`.
///
/// Ids are compared byte by byte. A store that keeps files in a folder can use an id directly as a file's name.
public struct TransferID: Hashable, Sendable, CustomStringConvertible {
    /// The greatest length, in bytes.
    package static let maximumLength = 128

    /// The id as text.
    public let description: String

    /// Checks and stores an id. Nil if `text` is not valid.
    public init?(_ text: String) {
        let bytes = text.utf8
        guard !bytes.isEmpty, bytes.count <= Self.maximumLength, text != ".", text != "..",
            bytes.allSatisfy(Self.isAllowed)
        else { return nil }
        self.description = text
    }

    /// The id that is derived from the content: its SHA-256 in lower-case hexadecimal.
    package init(_ digest: TransferDigest) { self.description = digest.description }

    private static func isAllowed(_ byte: UInt8) -> Bool {
        byte.isASCIILetter || byte.isASCIIDigit || "._-".utf8.contains(byte)
    }
}
