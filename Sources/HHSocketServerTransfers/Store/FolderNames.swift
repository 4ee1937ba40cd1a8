// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage
import HHSocketServer
import HHSocketTransferValues

/// The names of files in the folder of a ``FolderTransferStore``. The name of a complete file is its id; all other
/// names contain a `+`, which no id does.
enum FolderNames {
    static let unfinished = "+unfinished"
    static let hashes = "+hashes"

    private static let recordSuffix = "+record"
    private static let temporarySuffix = "+new"

    // MARK: In the folder of unfinished files

    /// The description of the unfinished file of an id.
    static func record(_ id: TransferID) -> String { id.description + Self.recordSuffix }

    /// Returns the name of received content. Different content has a different name, so that a record never describes
    /// the wrong one.
    static func content(_ id: TransferID, _ digest: TransferDigest) -> String { "\(id)+\(digest)" }

    static func temporary(_ id: TransferID) -> String { id.description + Self.temporarySuffix }

    /// The purpose of a name.
    enum Purpose: Hashable, Sendable {
        case record(TransferID)
        case content(TransferID, TransferDigest)
        case temporary(TransferID)
    }

    /// The purpose of a name in the folder of unfinished files; nil if this type has not made it.
    static func purpose(of name: String) -> Purpose? {
        guard let plus = name.firstIndex(of: "+"), let id = TransferID(String(name[..<plus])) else { return nil }
        let suffix = name[plus...]
        if suffix == Self.recordSuffix { return .record(id) }
        if suffix == Self.temporarySuffix { return .temporary(id) }
        return TransferDigest(hexadecimal: suffix.dropFirst()).map { .content(id, $0) }
    }

    // MARK: Ids that differ only in case

    /// The id with upper case for lower and the reverse; nil if it has no letters.
    static func otherCase(_ id: TransferID) -> String? {
        let other = String(decoding: id.description.utf8.map { $0.isASCIILetter ? $0 ^ 0x20 : $0 }, as: UTF8.self)
        return other == id.description ? nil : other
    }

    static func differOnlyInCase(_ name: String, _ id: TransferID) -> Bool {
        let (name, id) = (name.utf8, id.description.utf8)
        return name.count == id.count && zip(name, id).allSatisfy { $0 == $1 || $0.isASCIILetter && $0 ^ 0x20 == $1 }
            && !name.elementsEqual(id)
    }
}
