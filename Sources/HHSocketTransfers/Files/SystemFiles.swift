// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import HHSocketSystem

/// The system's own files.
struct SystemFiles: TransferFiles {
    func open(_ path: String, _ access: FileAccess) throws(SystemError) -> CInt {
        let flags: CInt =
            switch access {
            case .reading: O_RDONLY | O_NONBLOCK | O_CLOEXEC
            case .writing: O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC
            case .creating: O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC
            case .folder: O_RDONLY | O_DIRECTORY | O_CLOEXEC
            }
        let what = access == .reading ? "read" : access == .creating ? "create" : "open"
        return try OpenFile.retrying(what, of: path) { HHSocketSystem.open(path, flags, 0o666) }
    }

    func close(_ file: CInt) {
        // A descriptor that the system has closed must not be closed again, whatever the result.
        _ = HHSocketSystem.close(file)
    }

    func status(of file: CInt) throws(SystemError) -> FileStatus { try OpenFile.status(of: file) }

    func status(at path: String) throws(SystemError) -> FileStatus? {
        var status = stat()
        do throws(SystemError) {
            try OpenFile.retrying("look at", of: path) { stat(path, &status) }
        } catch  where error.isAbsence {
            return nil
        }
        return FileStatus(status)
    }

    func read(_ file: CInt, at offset: UInt64, into buffer: UnsafeMutableRawBufferPointer) throws(SystemError) -> Int {
        try OpenFile.read(file, into: buffer, at: offset)
    }

    func write(_ file: CInt, at offset: UInt64, _ bytes: UnsafeRawBufferPointer) throws(SystemError) -> Int {
        try OpenFile.write(file, bytes, at: offset)
    }

    func truncate(_ file: CInt, to length: UInt64) throws(SystemError) {
        try OpenFile.retrying("truncate") { ftruncate(file, off_t(clamping: length)) }
    }

    func setPermissions(_ file: CInt, _ permissions: UInt16) throws(SystemError) {
        try OpenFile.retrying("set the permissions of") { fchmod(file, mode_t(permissions)) }
    }

    func synchronize(_ file: CInt) throws(SystemError) { try OpenFile.synchronize(file) }
    func lock(_ file: CInt) throws(SystemError) -> Bool { try OpenFile.lock(file) }

    func rename(_ path: String, to newPath: String) throws(SystemError) {
        try OpenFile.retrying("replace", of: newPath) { HHSocketSystem.rename(path, newPath) }
    }

    func remove(_ path: String) throws(SystemError) {
        try OpenFile.retrying("remove", of: path) { unlink(path) }
    }

    func names(in folder: String, prefix: String) throws(SystemError) -> [String] {
        var names: [String] = []
        let folder = try self.open(folder, .folder)
        try OpenFile.forEachName(in: folder) { name in
            if name.hasPrefix(prefix) { names.append(name) }
            return true
        }
        return names
    }
}
