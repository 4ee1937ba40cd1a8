// SPDX-License-Identifier: Apache-2.0
/// A complete file of a store.
public struct StoredFile: Hashable, Sendable {
    /// The size and the hash.
    public package(set) var file: TransferFile
    /// The time of the file's last change, since the beginning of 1970 in UTC; not negative.
    public package(set) var modified: Duration

    public init(file: TransferFile, modified: Duration) {
        self.file = file
        self.modified = modified
    }
}

extension StoredFile {
    /// The time as it is sent.
    package var modifiedNanoseconds: UInt64 {
        let (seconds, attoseconds) = self.modified.components
        let (nanoseconds, isTooLarge) = UInt64(clamping: seconds).multipliedReportingOverflow(by: 1_000_000_000)
        let (sum, isSumTooLarge) = nanoseconds.addingReportingOverflow(UInt64(clamping: attoseconds / 1_000_000_000))
        return isTooLarge || isSumTooLarge ? .max : sum
    }
}
