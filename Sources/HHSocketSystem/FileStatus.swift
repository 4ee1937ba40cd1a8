// SPDX-License-Identifier: Apache-2.0
import CHHSocket

/// The identity, the kind and the state of a file.
package struct FileStatus: Hashable, Sendable {
    package enum Kind: Hashable, Sendable { case regular, folder, other }

    package var kind: Kind
    /// The length in bytes.
    package var size: UInt64
    /// The time of the last change of its content, in nanoseconds since 1970.
    package var modified: Int64
    /// The time of the last change of it or its properties, in nanoseconds since 1970.
    package var changed: Int64
    package var inode: UInt64
    package var device: UInt64 = 0
    package var permissions: UInt16 = 0

    package init(kind: Kind, size: UInt64, modified: Int64, changed: Int64, inode: UInt64) {
        (self.kind, self.size, self.modified) = (kind, size, modified)
        (self.changed, self.inode) = (changed, inode)
    }

    package init(_ status: stat) {
        #if canImport(Darwin)
        let (modified, changed) = (status.st_mtimespec, status.st_ctimespec)
        #else
        let (modified, changed) = (status.st_mtim, status.st_ctim)
        #endif
        self.kind =
            switch status.st_mode & S_IFMT {
            case S_IFREG: .regular
            case S_IFDIR: .folder
            default: .other
            }
        self.size = UInt64(clamping: status.st_size)
        self.modified = Self.nanoseconds(modified)
        self.changed = Self.nanoseconds(changed)
        self.inode = UInt64(truncatingIfNeeded: status.st_ino)
        self.device = UInt64(truncatingIfNeeded: status.st_dev)
        self.permissions = UInt16(truncatingIfNeeded: status.st_mode & 0o7777)
    }

    /// Any time can be set for a file, so this must not trap.
    private static func nanoseconds(_ time: timespec) -> Int64 {
        chhsocket_seconds(time).multipliedReportingOverflow(by: 1_000_000_000).partialValue
            &+ chhsocket_nanoseconds(time)
    }

    /// Whether both are of the same file.
    package func isSameFile(as other: FileStatus) -> Bool { self.device == other.device && self.inode == other.inode }
}
