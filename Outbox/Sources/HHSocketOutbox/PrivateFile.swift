// SPDX-License-Identifier: Apache-2.0
#if Outbox
import Foundation
import HHSocketSystem

/// Files that only their owner may read and write, whatever the umask, since messages are private.
enum PrivateFile {
    private static let mode: mode_t = 0o600

    /// Opens a file for reading and writing; creates it if there is none.
    ///
    /// - Parameters:
    ///   - name: The name of the file in errors.
    ///   - flags: Further flags of `open(2)`.
    /// - Returns: Its descriptor, which the caller closes; nil with `O_EXCL` if there is a file.
    static func open(_ path: String, named name: String, _ flags: CInt = 0) throws(OutboxError) -> CInt? {
        let flags = O_RDWR | O_CREAT | O_CLOEXEC | flags
        let descriptor = HHSocketSystem.open(path, flags, self.mode)
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
        // An existing file is not opened, since closing it would release the locks that this process may have on it.
        if let descriptor = try self.open(path, named: name, O_EXCL) { close(descriptor) }
    }

    /// Restricts a file that other code has created to its owner.
    static func protect(_ path: String) {
        // This fails on a file system without modes, or if there is no file; then there is nothing to protect.
        _ = chmod(path, self.mode)
    }
}
#endif
