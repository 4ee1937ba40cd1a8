// SPDX-License-Identifier: Apache-2.0
/// A call of the system that failed.
package struct SystemError: Error, Hashable, CustomStringConvertible {
    /// The attempt, as a verb: "write to".
    package var attempt: String
    /// An `errno`.
    package var code: CInt
    /// The path, or a word such as "a folder" where the path must not be named; nil for a file whose path the call does
    /// not know.
    package var object: String?

    package init(_ attempt: String, _ code: CInt, of object: String? = nil) {
        self.attempt = attempt
        self.code = code
        self.object = object
    }

    package var description: String { "\(self.text) (errno \(self.code))" }
    /// The attempt and the reason.
    package var text: String {
        "cannot \(self.attempt) \(self.object ?? "a file"): \(String(cString: strerror(self.code)))"
    }

    /// The error with this path, where the call knew none.
    package func at(_ path: String) -> SystemError { SystemError(self.attempt, self.code, of: self.object ?? path) }

    /// Whether the disk, or the share of it that this process may use, is full.
    package var isShortage: Bool { [ENOSPC, EDQUOT, EFBIG].contains(self.code) }
    /// Whether nothing can be written now.
    package var isReadOnly: Bool { [EROFS, EACCES, EPERM].contains(self.code) }
    /// Whether the process has too many files open.
    package var isDescriptorShortage: Bool { [EMFILE, ENFILE].contains(self.code) }
    package var isAbsence: Bool { self.code == ENOENT }
    package var isPresence: Bool { self.code == EEXIST }
    /// Whether there is a link where links are not followed.
    package var isLink: Bool { self.code == ELOOP }
    /// Whether the file system cannot do it, for this kind of file.
    package var isUnsupported: Bool { [EINVAL, ENOSYS, ENOTSUP].contains(self.code) }
}
