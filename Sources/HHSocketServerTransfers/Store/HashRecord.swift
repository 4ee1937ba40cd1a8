// SPDX-License-Identifier: Apache-2.0
import HHSocketServer
import HHSocketSystem
import HHSocketTransferValues
import NIOCore

/// The state of a file that shows whether it is unchanged.
struct FileKey: Hashable, Sendable {
    var size: UInt64
    var modified: Int64
    /// No program can set this one.
    var changed: Int64
    var inode: UInt64

    init(_ status: FileStatus) {
        self.size = status.size
        self.modified = status.modified
        self.changed = status.changed
        self.inode = status.inode
    }
}

/// The hash of a complete file, stored beside it.
struct HashRecord: Hashable, Sendable {
    var id: TransferID
    var key: FileKey
    var digest: TransferDigest

    private static let kind = "HHH1"

    init(id: TransferID, key: FileKey, digest: TransferDigest) {
        self.id = id
        self.key = key
        self.digest = digest
    }

    var bytes: [UInt8] {
        SealedRecord.seal(Self.kind) { record in
            record.writeShortString(self.id.description)
            record.writeInteger(self.key.size)
            record.writeInteger(self.key.modified)
            record.writeInteger(self.key.changed)
            record.writeInteger(self.key.inode)
            record.writeDigest(self.digest)
        }
    }

    /// Nil for bytes that ``bytes`` has not made.
    init?(bytes: [UInt8]) {
        let record: Self? = SealedRecord.open(bytes, kind: Self.kind) { record in
            guard let id = record.readShortString().flatMap({ TransferID($0) }),
                let size = record.readInteger(as: UInt64.self),
                let modified = record.readInteger(as: Int64.self),
                let changed = record.readInteger(as: Int64.self),
                let inode = record.readInteger(as: UInt64.self),
                let digest = record.readDigest()
            else { return nil }
            let status = FileStatus(kind: .regular, size: size, modified: modified, changed: changed, inode: inode)
            return Self(id: id, key: FileKey(status), digest: digest)
        }
        guard let record else { return nil }
        self = record
    }
}
