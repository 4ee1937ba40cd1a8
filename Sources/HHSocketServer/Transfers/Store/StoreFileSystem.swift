// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketSystem

/// A failure that the system reports.
struct SystemError: Error, Hashable, CustomStringConvertible {
    /// The attempt, as a phrase: "write to an unfinished file".
    var attempt: String
    /// An `errno`.
    var code: CInt

    init(_ attempt: String, _ code: CInt) {
        self.attempt = attempt
        self.code = code
    }

    /// A failure for which the system gives no reason.
    init(failingTo attempt: String) { self.init(attempt, EIO) }

    var description: String {
        "cannot \(self.attempt): \(String(cString: strerror(self.code))) (errno \(self.code))"
    }

    /// Whether the disk, or the share of it that this process may use, is full.
    var isShortage: Bool { [ENOSPC, EDQUOT, EFBIG].contains(self.code) }
    /// Whether nothing can be written now.
    var isReadOnly: Bool { [EROFS, EACCES, EPERM].contains(self.code) }
    /// Whether the process has too many files open.
    var isDescriptorShortage: Bool { [EMFILE, ENFILE].contains(self.code) }
    var isAbsence: Bool { self.code == ENOENT }

    /// The error to send to a client, without names and paths of files.
    var asTransferError: any Error {
        if self.isShortage {
            return TransferError(
                .noRoom,
                "the server's disk is full; the received part was removed. Free space there, and send the file again"
            )
        }
        if self.isReadOnly {
            return TransferError(
                .readOnly,
                "the server's store cannot be written; received parts of unfinished files are kept for a later attempt"
            )
        }
        if self.isDescriptorShortage { return StatusError(.overloaded) }
        return TransferError(.storeFailed, "the server's store \(self)")
    }
}

/// The kind and the state of a file.
struct FileStatus: Hashable, Sendable {
    enum Kind: Hashable, Sendable { case regular, folder, other }

    var kind: Kind
    /// The length in bytes.
    var size: UInt64
    /// The time of the last change of its content, in nanoseconds since 1970.
    var modified: Int64
    /// The time of the last change of it or its properties, in nanoseconds since 1970.
    var changed: Int64
    var inode: UInt64
}

/// The calls that ``FolderTransferStore`` makes to the system. None follows a link at the end of a name, and none waits
/// for a pipe. Blocking.
protocol StoreFileSystem: Sendable {
    typealias Descriptor = CInt

    /// Makes a folder if its parent exists.
    func makeFolder(path: String) throws(SystemError)
    /// Opens a folder. Only this function follows a link.
    func openFolder(path: String) throws(SystemError) -> Descriptor

    func makeFolder(_ name: String, in folder: Descriptor) throws(SystemError)
    func openFolder(_ name: String, in folder: Descriptor) throws(SystemError) -> Descriptor

    func openForReading(_ name: String, in folder: Descriptor) throws(SystemError) -> Descriptor
    func openForWriting(_ name: String, in folder: Descriptor) throws(SystemError) -> Descriptor
    /// Makes a file, which must not exist, and opens it for reading and writing.
    func create(_ name: String, in folder: Descriptor) throws(SystemError) -> Descriptor
    func close(_ descriptor: Descriptor)

    func status(_ descriptor: Descriptor) throws(SystemError) -> FileStatus
    func status(of name: String, in folder: Descriptor) throws(SystemError) -> FileStatus

    /// Returns the number of bytes that were read: as many as fit, unless the file ends.
    func read(_ descriptor: Descriptor, into memory: UnsafeMutableRawBufferPointer, at offset: UInt64)
        throws(SystemError) -> Int
    /// Returns the number of bytes that were written, which may be fewer.
    func write(_ descriptor: Descriptor, _ bytes: UnsafeRawBufferPointer, at offset: UInt64) throws(SystemError) -> Int
    /// Returns when the content, or the names in a folder, survive a power failure.
    func synchronize(_ descriptor: Descriptor) throws(SystemError)
    /// Writes buffered content to the disk, to the extent that this shortens ``synchronize(_:)``. It may take long.
    func flush(_ descriptor: Descriptor)
    /// Locks a file against other processes until it is closed. Returns false if another process has locked it.
    func lock(_ descriptor: Descriptor) -> Bool

    /// Renames a file, replacing an existing file of the new name.
    func rename(_ name: String, in folder: Descriptor, to newName: String, in newFolder: Descriptor)
        throws(SystemError)
    func remove(_ name: String, in folder: Descriptor) throws(SystemError)
    /// Calls `body` with each name in a folder, until it returns false.
    func forEachName(in folder: Descriptor, _ body: (String) -> Bool) throws(SystemError)

    /// The time, in milliseconds since 1970.
    func now() -> UInt64
}

extension StoreFileSystem {
    /// Returns the status; nil if there is no such file.
    func statusIfPresent(of name: String, in folder: Descriptor) throws(SystemError) -> FileStatus? {
        do throws(SystemError) {
            return try self.status(of: name, in: folder)
        } catch {
            guard error.isAbsence else { throw error }
            return nil
        }
    }

    /// Removes a file. A missing file is no error.
    func removeIfPresent(_ name: String, in folder: Descriptor) throws(SystemError) {
        do throws(SystemError) {
            try self.remove(name, in: folder)
        } catch {
            guard error.isAbsence else { throw error }
        }
    }

    func writeAll(_ descriptor: Descriptor, _ bytes: UnsafeRawBufferPointer, at offset: UInt64) throws(SystemError) {
        var written = 0
        while written < bytes.count {
            let rest = UnsafeRawBufferPointer(rebasing: bytes[written...])
            let count = try self.write(descriptor, rest, at: offset + UInt64(written))
            // Otherwise this would never end.
            guard count > 0 else { throw SystemError(failingTo: "write to a file") }
            written += count
        }
    }

    /// Reads a small file completely. Nil if it is longer than `limit`.
    func contents(of name: String, in folder: Descriptor, limit: Int) throws(SystemError) -> [UInt8]? {
        let descriptor = try self.openForReading(name, in: folder)
        defer { self.close(descriptor) }
        let status = try self.status(descriptor)
        guard status.kind == .regular, status.size <= UInt64(limit) else { return nil }
        var bytes = [UInt8](repeating: 0, count: Int(status.size))
        var failure: SystemError?
        let count = bytes.withUnsafeMutableBytes { memory in
            do throws(SystemError) {
                return try self.read(descriptor, into: memory, at: 0)
            } catch {
                failure = error
                return 0
            }
        }
        if let failure { throw failure }
        return Array(bytes.prefix(count))
    }

    /// Writes a small file, in one step: readers find either the old one or the new one.
    ///
    /// - Parameters:
    ///   - temporary: A name that no other file has.
    ///   - isSynchronized: Whether a power failure leaves the old file or the new one, too; otherwise it may leave a
    ///     damaged one.
    func replace(
        _ name: String,
        in folder: Descriptor,
        with bytes: [UInt8],
        temporary: String,
        isSynchronized: Bool
    ) throws(SystemError) {
        try self.removeIfPresent(temporary, in: folder)
        let descriptor = try self.create(temporary, in: folder)
        do throws(SystemError) {
            defer { self.close(descriptor) }
            var failure: SystemError?
            bytes.withUnsafeBytes { memory in
                do throws(SystemError) {
                    try self.writeAll(descriptor, memory, at: 0)
                } catch {
                    failure = error
                }
            }
            if let failure { throw failure }
            if isSynchronized { try self.synchronize(descriptor) }
            try self.rename(temporary, in: folder, to: name, in: folder)
        } catch {
            try? self.remove(temporary, in: folder)
            throw error
        }
    }
}
