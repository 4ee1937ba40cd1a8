// SPDX-License-Identifier: Apache-2.0
import CHHSocket
import HHSocket
import HHSocketSystem

/// The system's own files.
struct SystemFiles: TransferFiles {
    /// Repeats a call that a signal has interrupted.
    private func retrying<Number: SignedInteger>(
        _ what: String,
        _ path: String,
        _ body: () -> Number
    ) throws(FileFailure) -> Number {
        while true {
            let result = body()
            if result >= 0 { return result }
            let number = errno
            if number != EINTR { throw FileFailure(number: number, call: what, path: path) }
        }
    }

    func open(_ path: String, _ access: FileAccess) throws(FileFailure) -> CInt {
        let flags: CInt =
            switch access {
            case .reading: O_RDONLY | O_NONBLOCK | O_CLOEXEC
            case .writing: O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC
            case .creating: O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC
            case .folder: O_RDONLY | O_DIRECTORY | O_CLOEXEC
            }
        let what = access == .reading ? "cannot read" : access == .creating ? "cannot create" : "cannot open"
        return try self.retrying(what, path) { HHSocketSystem.open(path, flags, 0o666) }
    }

    func close(_ file: CInt) {
        // A descriptor that the system has closed must not be closed again, whatever the result.
        _ = HHSocketSystem.close(file)
    }

    func status(of file: CInt) throws(FileFailure) -> FileStatus {
        var information = stat()
        _ = try self.retrying("cannot look at", "") { fstat(file, &information) }
        return FileStatus(information)
    }

    func status(at path: String) throws(FileFailure) -> FileStatus? {
        var information = stat()
        do throws(FileFailure) {
            _ = try self.retrying("cannot look at", path) { stat(path, &information) }
        } catch  where error.number == ENOENT {
            return nil
        }
        return FileStatus(information)
    }

    func read(_ file: CInt, at offset: UInt64, into buffer: UnsafeMutableRawBufferPointer) throws(FileFailure) -> Int {
        try self.retrying("cannot read", "") {
            pread(file, buffer.baseAddress, buffer.count, off_t(clamping: offset))
        }
    }

    func write(_ file: CInt, at offset: UInt64, _ bytes: UnsafeRawBufferPointer) throws(FileFailure) -> Int {
        guard let address = bytes.baseAddress, bytes.count > 0 else { return 0 }
        let count = try self.retrying("cannot write", "") {
            pwrite(file, address, bytes.count, off_t(clamping: offset))
        }
        // Otherwise a file that accepts nothing would be retried for ever.
        guard count > 0 else { throw FileFailure(number: EIO, call: "cannot write", path: "") }
        return count
    }

    func truncate(_ file: CInt, to length: UInt64) throws(FileFailure) {
        _ = try self.retrying("cannot truncate", "") { ftruncate(file, off_t(clamping: length)) }
    }

    func setPermissions(_ file: CInt, _ permissions: UInt16) throws(FileFailure) {
        _ = try self.retrying("cannot set the permissions of", "") { fchmod(file, mode_t(permissions)) }
    }

    func synchronize(_ file: CInt) throws(FileFailure) {
        _ = try self.retrying("cannot synchronize", "") { fsync(file) }
    }

    func lock(_ file: CInt) throws(FileFailure) -> Bool {
        do throws(FileFailure) {
            _ = try self.retrying("cannot lock", "") { flock(file, LOCK_EX | LOCK_NB) }
            return true
        } catch  where error.number == EWOULDBLOCK {
            return false
        } catch  where error.isUnsupported {
            // A file system without locks: then processes cannot be distinguished.
            return true
        }
    }

    func rename(_ path: String, to newPath: String) throws(FileFailure) {
        _ = try self.retrying("cannot replace", newPath) { HHSocketSystem.rename(path, newPath) }
    }

    func remove(_ path: String) throws(FileFailure) {
        _ = try self.retrying("cannot remove", path) { unlink(path) }
    }

    func names(in folder: String, prefix: String) throws(FileFailure) -> [String] {
        guard let stream = opendir(folder) else {
            throw FileFailure(number: errno, call: "cannot look into", path: folder)
        }
        defer { closedir(stream) }
        var names: [String] = []
        while let entry = readdir(stream) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) { pointer in
                pointer.withMemoryRebound(to: CChar.self, capacity: 1) { String(cString: $0) }
            }
            if name.hasPrefix(prefix) { names.append(name) }
        }
        return names
    }
}

extension FileStatus {
    fileprivate init(_ information: stat) {
        self.kind =
            switch information.st_mode & S_IFMT {
            case S_IFREG: .plain
            case S_IFDIR: .folder
            default: .other
            }
        self.device = UInt64(truncatingIfNeeded: information.st_dev)
        self.number = UInt64(truncatingIfNeeded: information.st_ino)
        self.size = UInt64(clamping: information.st_size)
        #if canImport(Darwin)
        let time = information.st_mtimespec
        #else
        let time = information.st_mtim
        #endif
        self.modifiedSeconds = chhsocket_seconds(time)
        self.modifiedNanoseconds = chhsocket_nanoseconds(time)
        self.permissions = UInt16(truncatingIfNeeded: information.st_mode & 0o7777)
    }
}
