// SPDX-License-Identifier: Apache-2.0
import CHHSocket
import Foundation
import HHSocketSystem

/// The system's files.
struct PosixFileSystem: StoreFileSystem {
    private static let folderFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC
    /// Links are not followed, and opening a pipe, which should not exist there, does not wait.
    private static let fileFlags = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY

    func makeFolder(path: String) throws(SystemError) {
        if mkdir(path, 0o755) != 0 { throw SystemError("make a folder", errno) }
    }

    func openFolder(path: String) throws(SystemError) -> Descriptor {
        try Self.descriptor("open the store's folder") { open(path, Self.folderFlags) }
    }

    func makeFolder(_ name: String, in folder: Descriptor) throws(SystemError) {
        if mkdirat(folder, name, 0o700) != 0 { throw SystemError("make a folder", errno) }
    }

    func openFolder(_ name: String, in folder: Descriptor) throws(SystemError) -> Descriptor {
        try Self.descriptor("open a folder") { openat(folder, name, Self.folderFlags | O_NOFOLLOW) }
    }

    func openForReading(_ name: String, in folder: Descriptor) throws(SystemError) -> Descriptor {
        try Self.descriptor("open a file") { openat(folder, name, O_RDONLY | Self.fileFlags) }
    }

    func openForWriting(_ name: String, in folder: Descriptor) throws(SystemError) -> Descriptor {
        try Self.descriptor("open an unfinished file") { openat(folder, name, O_RDWR | Self.fileFlags) }
    }

    func create(_ name: String, in folder: Descriptor) throws(SystemError) -> Descriptor {
        try Self.descriptor("make a file") { openat(folder, name, O_RDWR | O_CREAT | O_EXCL | Self.fileFlags, 0o644) }
    }

    func close(_ descriptor: Descriptor) { _ = HHSocketSystem.close(descriptor) }

    func status(_ descriptor: Descriptor) throws(SystemError) -> FileStatus {
        var status = stat()
        if fstat(descriptor, &status) != 0 { throw SystemError("look at a file", errno) }
        return FileStatus(status)
    }

    func status(of name: String, in folder: Descriptor) throws(SystemError) -> FileStatus {
        var status = stat()
        if fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0 { throw SystemError("look at a file", errno) }
        return FileStatus(status)
    }

    func read(
        _ descriptor: Descriptor,
        into memory: UnsafeMutableRawBufferPointer,
        at offset: UInt64
    ) throws(SystemError) -> Int {
        var count = 0
        while count < memory.count {
            let place = off_t(clamping: offset + UInt64(count))
            let read = pread(descriptor, memory.baseAddress?.advanced(by: count), memory.count - count, place)
            if read == 0 { break }
            if read > 0 {
                count += read
            } else if errno != EINTR {
                throw SystemError("read a file", errno)
            }
        }
        return count
    }

    func write(
        _ descriptor: Descriptor,
        _ bytes: UnsafeRawBufferPointer,
        at offset: UInt64
    ) throws(SystemError) -> Int {
        while true {
            let count = pwrite(descriptor, bytes.baseAddress, bytes.count, off_t(clamping: offset))
            if count >= 0 { return count }
            if errno != EINTR { throw SystemError("write to a file", errno) }
        }
    }

    func synchronize(_ descriptor: Descriptor) throws(SystemError) {
        #if canImport(Darwin)
        // There `fsync` leaves the bytes in the disk's own memory. Some file systems support nothing better.
        if fcntl(descriptor, F_FULLFSYNC) == 0 { return }
        #endif
        while fsync(descriptor) != 0 {
            if errno != EINTR { throw SystemError("write a file to the disk", errno) }
        }
    }

    func flush(_ descriptor: Descriptor) {
        #if os(Linux) || os(Android)
        _ = fdatasync(descriptor)
        #endif
    }

    func lock(_ descriptor: Descriptor) -> Bool {
        // A file system without locks is not shared by processes that check them.
        flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK
    }

    func rename(
        _ name: String,
        in folder: Descriptor,
        to newName: String,
        in newFolder: Descriptor
    ) throws(SystemError) {
        if renameat(folder, name, newFolder, newName) != 0 { throw SystemError("rename a file", errno) }
    }

    func remove(_ name: String, in folder: Descriptor) throws(SystemError) {
        if unlinkat(folder, name, 0) != 0 { throw SystemError("remove a file", errno) }
    }

    func forEachName(in folder: Descriptor, _ body: (String) -> Bool) throws(SystemError) {
        // Reading a folder moves its descriptor, and closing the stream closes the descriptor, so it gets a separate
        // one.
        let own = try Self.descriptor("read a folder") { openat(folder, ".", Self.folderFlags) }
        guard let stream = fdopendir(own) else {
            let code = errno
            self.close(own)
            throw SystemError("read a folder", code)
        }
        defer { closedir(stream) }
        while true {
            errno = 0
            guard let entry = readdir(stream) else {
                if errno != 0 { throw SystemError("read a folder", errno) }
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

    func now() -> UInt64 {
        UInt64(max(0, Date().timeIntervalSince1970 * 1_000))
    }

    private static func descriptor(_ attempt: String, _ open: () -> CInt) throws(SystemError) -> Descriptor {
        while true {
            let descriptor = open()
            if descriptor >= 0 { return descriptor }
            if errno != EINTR { throw SystemError(attempt, errno) }
        }
    }
}

extension FileStatus {
    fileprivate init(_ status: stat) {
        let kind: Kind =
            switch status.st_mode & S_IFMT {
            case S_IFREG: .regular
            case S_IFDIR: .folder
            default: .other
            }
        #if canImport(Darwin)
        let (modified, changed) = (status.st_mtimespec, status.st_ctimespec)
        #else
        let (modified, changed) = (status.st_mtim, status.st_ctim)
        #endif
        self.init(
            kind: kind,
            size: UInt64(clamping: status.st_size),
            modified: Self.nanoseconds(modified),
            changed: Self.nanoseconds(changed),
            inode: UInt64(truncatingIfNeeded: status.st_ino)
        )
    }

    /// Any time can be set for a file, so this must not trap.
    private static func nanoseconds(_ time: timespec) -> Int64 {
        chhsocket_seconds(time).multipliedReportingOverflow(by: 1_000_000_000).partialValue
            &+ chhsocket_nanoseconds(time)
    }
}
