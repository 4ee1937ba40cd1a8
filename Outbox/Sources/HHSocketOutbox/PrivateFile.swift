#if Outbox
import Foundation

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#elseif canImport(Darwin)
import Darwin
#endif

/// Files that only their owner may read and write, whatever the umask: messages are nobody else's business.
enum PrivateFile {
    private static let mode: mode_t = 0o600

    /// Opens a file for reading and writing; creates it if there is none.
    ///
    /// - Parameters:
    ///   - name: How an error names the file.
    ///   - flags: Further flags of `open(2)`.
    /// - Returns: Its descriptor, which is the caller's to close; nil with `O_EXCL` if there is a file.
    static func open(_ path: String, named name: String, _ flags: CInt = 0) throws(OutboxError) -> CInt? {
        let flags = O_RDWR | O_CREAT | O_CLOEXEC | flags
        #if canImport(Glibc)
        let descriptor = Glibc.open(path, flags, self.mode)
        #elseif canImport(Musl)
        let descriptor = Musl.open(path, flags, self.mode)
        #elseif canImport(Android)
        let descriptor = Android.open(path, flags, self.mode)
        #else
        let descriptor = Darwin.open(path, flags, self.mode)
        #endif
        guard descriptor < 0 else { return descriptor }
        let number = errno
        if number == EEXIST, flags & O_EXCL != 0 { return nil }
        throw OutboxError(
            number == EACCES || number == EPERM || number == EROFS
                ? .readOnly : number == ENOSPC ? .diskFull : .storageFailed,
            message: "\(name) \(path) cannot be opened: \(String(cString: strerror(number)))"
        )
    }

    /// Creates an empty file if there is none.
    static func create(_ path: String, named name: String) throws(OutboxError) {
        // One that is there is not opened: to close it would give up the locks that this process may have on it.
        if let descriptor = try self.open(path, named: name, O_EXCL) { close(descriptor) }
    }

    /// Withdraws the access of all but the owner to a file that was created without this type.
    static func protect(_ path: String) {
        // A file system without modes refuses, and a file may not be there; then there is nothing to protect.
        _ = chmod(path, self.mode)
    }
}
#endif
