// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketSystem

/// The calls of the system that transfers make for local files. Each may block. Tests have them fail.
protocol TransferFiles: Sendable {
    /// Opens a file, without waiting where it is a pipe.
    func open(_ path: String, _ access: FileAccess) throws(FileFailure) -> CInt
    func close(_ file: CInt)
    /// The status of an open file.
    func status(of file: CInt) throws(FileFailure) -> FileStatus
    /// The status of the file at a path, after following links; nil if there is none.
    func status(at path: String) throws(FileFailure) -> FileStatus?
    /// Reads the available bytes, up to the length of `buffer`; 0 at the end of the file.
    func read(_ file: CInt, at offset: UInt64, into buffer: UnsafeMutableRawBufferPointer) throws(FileFailure) -> Int
    /// Writes some of `bytes`, and returns how many: 1 at least.
    func write(_ file: CInt, at offset: UInt64, _ bytes: UnsafeRawBufferPointer) throws(FileFailure) -> Int
    func truncate(_ file: CInt, to length: UInt64) throws(FileFailure)
    /// Sets the permissions of an open file.
    func setPermissions(_ file: CInt, _ permissions: UInt16) throws(FileFailure)
    /// Returns once the written bytes are on the disk.
    func synchronize(_ file: CInt) throws(FileFailure)
    /// Locks an open file against other processes, and others that have opened it here, until it is closed.
    ///
    /// - Returns: False if it is locked.
    func lock(_ file: CInt) throws(FileFailure) -> Bool
    func rename(_ path: String, to newPath: String) throws(FileFailure)
    func remove(_ path: String) throws(FileFailure)
    /// The names in a folder that begin with `prefix`.
    func names(in folder: String, prefix: String) throws(FileFailure) -> [String]
}

/// The purpose for which a file is opened.
enum FileAccess: Hashable, Sendable {
    case reading
    /// For reading and writing; the file exists.
    case writing
    /// For reading and writing; the file must not exist.
    case creating
    /// A folder, to synchronize it.
    case folder
}

/// A call of the system that failed.
struct FileFailure: Error, Hashable, Sendable {
    /// The system's number.
    var number: CInt
    var call: String
    var path: String
}

/// The identity and the state of a file.
struct FileStatus: Hashable, Sendable {
    enum Kind: Hashable, Sendable {
        case plain, folder, other
    }

    var kind: Kind
    var device: UInt64
    var number: UInt64
    var size: UInt64
    var modifiedSeconds: Int64
    var modifiedNanoseconds: Int64
    var permissions: UInt16

    /// Whether both are of the same file.
    func isSameFile(as other: FileStatus) -> Bool { self.device == other.device && self.number == other.number }
}

extension FileFailure {
    /// The failure with this path, where the call knew none.
    func at(_ path: String) -> FileFailure {
        var failure = self
        if failure.path.isEmpty { failure.path = path }
        return failure
    }

    var isMissing: Bool { self.number == ENOENT }
    var exists: Bool { self.number == EEXIST }
    /// Whether there is a link where links are not followed.
    var isLink: Bool { self.number == ELOOP }
    /// Whether the file system cannot do it, for this kind of file.
    var isUnsupported: Bool { [EINVAL, ENOSYS, ENOTSUP].contains(self.number) }
}

extension TransferError {
    /// Creates the error of a transfer whose local file fails.
    ///
    /// - Parameters:
    ///   - what: The transfer.
    ///   - writes: Whether the file is written.
    init(_ failure: FileFailure, of what: String, writes: Bool) {
        let reason = String(cString: strerror(failure.number))
        let (code, advice): (Code, String) =
            switch failure.number {
            case ENOSPC, EDQUOT: (.noRoom, "; make room and try again")
            case EROFS, EACCES, EPERM: (writes ? .readOnly : .fileFailed, "")
            default: (.fileFailed, "")
            }
        self.init(code, "\(what): \(failure.call) \(failure.path): \(reason)\(advice)")
    }
}
