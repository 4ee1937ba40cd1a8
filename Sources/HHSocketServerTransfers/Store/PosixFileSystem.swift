// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketSystem

/// The system's files.
struct PosixFileSystem: StoreFileSystem {
    private static let folderFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC
    /// Links are not followed, and opening a pipe, which should not exist there, does not wait.
    private static let fileFlags = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY

    func makeFolder(path: String) throws(SystemError) {
        try OpenFile.retrying("make", of: "a folder") { mkdir(path, 0o755) }
    }

    func openFolder(path: String) throws(SystemError) -> Descriptor {
        try OpenFile.retrying("open", of: "the store's folder") { open(path, Self.folderFlags) }
    }

    func makeFolder(_ name: String, in folder: Descriptor) throws(SystemError) {
        try OpenFile.retrying("make", of: "a folder") { mkdirat(folder, name, 0o700) }
    }

    func openFolder(_ name: String, in folder: Descriptor) throws(SystemError) -> Descriptor {
        try OpenFile.retrying("open", of: "a folder") { openat(folder, name, Self.folderFlags | O_NOFOLLOW) }
    }

    func openForReading(_ name: String, in folder: Descriptor) throws(SystemError) -> Descriptor {
        try OpenFile.retrying("open", of: "a file") { openat(folder, name, O_RDONLY | Self.fileFlags) }
    }

    func openForWriting(_ name: String, in folder: Descriptor) throws(SystemError) -> Descriptor {
        try OpenFile.retrying("open", of: "an unfinished file") { openat(folder, name, O_RDWR | Self.fileFlags) }
    }

    func create(_ name: String, in folder: Descriptor) throws(SystemError) -> Descriptor {
        try OpenFile.retrying("make", of: "a file") {
            openat(folder, name, O_RDWR | O_CREAT | O_EXCL | Self.fileFlags, 0o644)
        }
    }

    func close(_ descriptor: Descriptor) { _ = HHSocketSystem.close(descriptor) }

    func status(_ descriptor: Descriptor) throws(SystemError) -> FileStatus { try OpenFile.status(of: descriptor) }

    func status(of name: String, in folder: Descriptor) throws(SystemError) -> FileStatus {
        var status = stat()
        try OpenFile.retrying("look at") { fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) }
        return FileStatus(status)
    }

    func read(
        _ descriptor: Descriptor,
        into memory: UnsafeMutableRawBufferPointer,
        at offset: UInt64
    ) throws(SystemError) -> Int {
        var count = 0
        while count < memory.count {
            let rest = UnsafeMutableRawBufferPointer(rebasing: memory[count...])
            let read = try OpenFile.read(descriptor, into: rest, at: offset + UInt64(count))
            if read == 0 { break }
            count += read
        }
        return count
    }

    func write(
        _ descriptor: Descriptor,
        _ bytes: UnsafeRawBufferPointer,
        at offset: UInt64
    ) throws(SystemError) -> Int {
        try OpenFile.write(descriptor, bytes, at: offset)
    }

    func synchronize(_ descriptor: Descriptor) throws(SystemError) { try OpenFile.synchronize(descriptor) }

    func flush(_ descriptor: Descriptor) {
        #if os(Linux) || os(Android)
        _ = fdatasync(descriptor)
        #endif
    }

    func lock(_ descriptor: Descriptor) -> Bool { (try? OpenFile.lock(descriptor)) ?? true }

    func rename(
        _ name: String,
        in folder: Descriptor,
        to newName: String,
        in newFolder: Descriptor
    ) throws(SystemError) {
        try OpenFile.retrying("rename") { renameat(folder, name, newFolder, newName) }
    }

    func remove(_ name: String, in folder: Descriptor) throws(SystemError) {
        try OpenFile.retrying("remove") { unlinkat(folder, name, 0) }
    }

    func forEachName(in folder: Descriptor, _ body: (String) -> Bool) throws(SystemError) {
        // Reading a folder moves its descriptor, and closing the stream closes the descriptor, so it gets a separate
        // one.
        let own = try OpenFile.retrying("read", of: "a folder") { openat(folder, ".", Self.folderFlags) }
        try OpenFile.forEachName(in: own, body)
    }

    func now() -> UInt64 {
        UInt64(max(0, Date().timeIntervalSince1970 * 1_000))
    }
}
