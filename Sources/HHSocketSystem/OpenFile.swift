// SPDX-License-Identifier: Apache-2.0
/// The calls of the system for open files, repeated where a signal interrupts them. Each may block.
package enum OpenFile {
    /// Repeats a call that a signal has interrupted.
    @discardableResult
    package static func retrying<Number: SignedInteger>(
        _ attempt: String,
        of object: String? = nil,
        _ body: () -> Number
    ) throws(SystemError) -> Number {
        while true {
            let result = body()
            if result >= 0 { return result }
            if errno != EINTR { throw SystemError(attempt, errno, of: object) }
        }
    }

    package static func status(of file: CInt) throws(SystemError) -> FileStatus {
        var status = stat()
        try self.retrying("look at") { fstat(file, &status) }
        return FileStatus(status)
    }

    /// Reads the available bytes, up to the length of `memory`; 0 at the end of the file.
    package static func read(
        _ file: CInt,
        into memory: UnsafeMutableRawBufferPointer,
        at offset: UInt64
    ) throws(SystemError) -> Int {
        try self.retrying("read") { pread(file, memory.baseAddress, memory.count, off_t(clamping: offset)) }
    }

    /// Writes some of `bytes`, and returns how many: 1 at least, if there are any.
    package static func write(
        _ file: CInt,
        _ bytes: UnsafeRawBufferPointer,
        at offset: UInt64
    ) throws(SystemError) -> Int {
        guard let address = bytes.baseAddress, bytes.count > 0 else { return 0 }
        let count = try self.retrying("write to") { pwrite(file, address, bytes.count, off_t(clamping: offset)) }
        // Otherwise a file that accepts nothing would be retried for ever.
        guard count > 0 else { throw SystemError("write to", EIO) }
        return count
    }

    /// Returns once the content, or the names in a folder, survive a power failure.
    package static func synchronize(_ file: CInt) throws(SystemError) {
        #if canImport(Darwin)
        // There `fsync` leaves the bytes in the disk's own memory. Some file systems support nothing better.
        if fcntl(file, F_FULLFSYNC) == 0 { return }
        #endif
        try self.retrying("synchronize") { fsync(file) }
    }

    /// Locks a file against other processes, and others that have opened it here, until it is closed.
    ///
    /// - Returns: False if it is locked. A file system without locks does not know, and counts as unlocked.
    package static func lock(_ file: CInt) throws(SystemError) -> Bool {
        do throws(SystemError) {
            try self.retrying("lock") { flock(file, LOCK_EX | LOCK_NB) }
            return true
        } catch  where error.code == EWOULDBLOCK {
            return false
        } catch  where error.isUnsupported {
            return true
        }
    }

    /// Calls `body` with each name in a folder, until it returns false. Closes the folder's descriptor.
    package static func forEachName(in folder: CInt, _ body: (String) -> Bool) throws(SystemError) {
        guard let stream = fdopendir(folder) else {
            let code = errno
            close(folder)
            throw SystemError("read", code, of: "a folder")
        }
        defer { closedir(stream) }
        while true {
            errno = 0
            guard let entry = readdir(stream) else {
                if errno != 0 { throw SystemError("read", errno, of: "a folder") }
                return
            }
            let name = withUnsafePointer(to: &entry.pointee.d_name) { pointer in
                pointer.withMemoryRebound(to: CChar.self, capacity: MemoryLayout.size(ofValue: pointer.pointee)) {
                    String(cString: $0)
                }
            }
            if name != ".", name != "..", !body(name) { return }
        }
    }
}
