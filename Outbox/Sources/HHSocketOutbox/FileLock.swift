// SPDX-License-Identifier: Apache-2.0
#if Outbox
import Foundation
import HHSocketSystem
import NIOConcurrencyHelpers

/// A lock that keeps a second outbox, of this process or another, from a file. The system releases it when the process
/// dies, for whatever reason.
///
/// It is on a separate file: SQLite's locks on the database belong to the process, and closing any descriptor of that
/// file would release them. The lock's file is never deleted, or two outboxes could hold locks of the same name.
final class FileLock: Sendable {
    /// The descriptor of the file; nil once the lock has been released.
    private let descriptor: NIOLockedValueBox<CInt?>

    init(_ path: String) throws(OutboxError) {
        guard let descriptor = try PrivateFile.open(path, named: "the outbox's lock") else {
            throw OutboxError(.storageFailed, message: "the outbox's lock \(path) cannot be opened")
        }
        var result: CInt
        repeat { result = flock(descriptor, LOCK_EX | LOCK_NB) } while result != 0 && errno == EINTR
        guard result == 0 else {
            let number = errno
            close(descriptor)
            guard number == EWOULDBLOCK else {
                throw OutboxError(
                    .storageFailed,
                    message: "the outbox's lock \(path) cannot be taken: \(String(cString: strerror(number)))"
                )
            }
            throw OutboxError(
                .inUse,
                message: """
                    another outbox has \(path.dropLast(Self.suffix.count)) open, in this process or another; use that one, or \
                    close it first with close()
                    """
            )
        }
        self.descriptor = NIOLockedValueBox(descriptor)
    }

    static let suffix = ".lock"

    /// Releases the lock.
    func unlock() {
        let descriptor = self.descriptor.withLockedValue { descriptor in
            defer { descriptor = nil }
            return descriptor
        }
        if let descriptor { close(descriptor) }
    }

    deinit {
        self.unlock()
    }
}
#endif
