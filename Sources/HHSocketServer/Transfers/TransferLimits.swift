// SPDX-License-Identifier: Apache-2.0
/// The bounds of the unfinished files of a ``FolderTransferStore``. Files that are whole have none.
///
/// A file counts with the size that its writer has announced; those on which nobody works count, among those of all
/// identities together, with what has come of them.
public struct TransferLimits: Hashable, Sendable {
    /// The number of unfinished files of one identity; 16 by default. A further put fails with the code `quota`.
    public var maximumFilesPerIdentity = 16
    /// The number of their bytes; 8 GiB by default. So this is also the largest file that can be sent.
    public var maximumBytesPerIdentity: UInt64 = 8 << 30
    /// The number of unfinished files of all; 1,024 by default.
    public var maximumFiles = 1_024
    /// The number of their bytes; 64 GiB by default.
    public var maximumBytes: UInt64 = 64 << 30
    /// The time after which an unfinished file is removed if nothing more has come of it; 7 days by default.
    public var lifetime = Duration.seconds(7 * 86_400)

    public init() {}
}
