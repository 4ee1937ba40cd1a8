// SPDX-License-Identifier: Apache-2.0
import HHSocketServer
import HHSocketSystem
import HHSocketTransferValues

extension SystemError {
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
            guard count > 0 else { throw SystemError("write to", EIO) }
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
        let count = try bytes.withUnsafeMutableBufferPointer { memory throws(SystemError) in
            try self.read(descriptor, into: UnsafeMutableRawBufferPointer(memory), at: 0)
        }
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
            try bytes.withUnsafeBufferPointer { memory throws(SystemError) in
                try self.writeAll(descriptor, UnsafeRawBufferPointer(memory), at: 0)
            }
            if isSynchronized { try self.synchronize(descriptor) }
            try self.rename(temporary, in: folder, to: name, in: folder)
        } catch {
            try? self.remove(temporary, in: folder)
            throw error
        }
    }
}
