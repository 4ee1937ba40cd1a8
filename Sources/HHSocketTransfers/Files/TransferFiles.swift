// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import HHSocketSystem
import HHSocketTransferValues

/// The calls of the system that transfers make for local files. Each may block. Tests have them fail.
protocol TransferFiles: Sendable {
    /// Opens a file, without waiting where it is a pipe.
    func open(_ path: String, _ access: FileAccess) throws(SystemError) -> CInt
    func close(_ file: CInt)
    /// The status of an open file.
    func status(of file: CInt) throws(SystemError) -> FileStatus
    /// The status of the file at a path, after following links; nil if there is none.
    func status(at path: String) throws(SystemError) -> FileStatus?
    /// Reads the available bytes, up to the length of `buffer`; 0 at the end of the file.
    func read(_ file: CInt, at offset: UInt64, into buffer: UnsafeMutableRawBufferPointer) throws(SystemError) -> Int
    /// Writes some of `bytes`, and returns how many: 1 at least.
    func write(_ file: CInt, at offset: UInt64, _ bytes: UnsafeRawBufferPointer) throws(SystemError) -> Int
    func truncate(_ file: CInt, to length: UInt64) throws(SystemError)
    /// Sets the permissions of an open file.
    func setPermissions(_ file: CInt, _ permissions: UInt16) throws(SystemError)
    /// Returns once the written bytes are on the disk.
    func synchronize(_ file: CInt) throws(SystemError)
    /// Locks an open file against other processes, and others that have opened it here, until it is closed.
    ///
    /// - Returns: False if it is locked.
    func lock(_ file: CInt) throws(SystemError) -> Bool
    func rename(_ path: String, to newPath: String) throws(SystemError)
    func remove(_ path: String) throws(SystemError)
    /// The names in a folder that begin with `prefix`.
    func names(in folder: String, prefix: String) throws(SystemError) -> [String]
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

extension TransferError {
    /// Creates the error of a transfer whose local file fails.
    ///
    /// - Parameters:
    ///   - what: The transfer.
    ///   - writes: Whether the file is written.
    init(_ failure: SystemError, of what: String, writes: Bool) {
        if failure.isShortage {
            self.init(.noRoom, "\(what): \(failure.text); make room and try again")
        } else {
            self.init(writes && failure.isReadOnly ? .readOnly : .fileFailed, "\(what): \(failure.text)")
        }
    }
}
