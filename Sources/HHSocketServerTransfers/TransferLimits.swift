// SPDX-License-Identifier: Apache-2.0
/// The limits on the unfinished files of a ``FolderTransferStore``. Complete files have none.
///
/// A file counts with the size that its writer has announced; in the limit for all identities together, files on which
/// nobody works count with the bytes received.
public struct TransferLimits: Hashable, Sendable {
    /// The number of unfinished files of one identity; 16 by default. A further put fails with the code `quota`.
    public var maximumFilesPerIdentity = 16
    /// The number of their bytes; 8 GiB by default. So this is also the largest file that can be sent.
    public var maximumBytesPerIdentity: UInt64 = 8 << 30
    /// The number of unfinished files of all; 1,024 by default.
    public var maximumFiles = 1_024
    /// The number of their bytes; 64 GiB by default.
    public var maximumBytes: UInt64 = 64 << 30
    /// The time after which an unfinished file is removed if no more of it has arrived; 7 days by default.
    public var lifetime = Duration.seconds(7 * 86_400)

    public init() {}
}
