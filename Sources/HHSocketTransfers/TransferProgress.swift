// SPDX-License-Identifier: Apache-2.0
/// The progress of a transfer.
public struct TransferProgress: Hashable, Sendable {
    /// The number of bytes that the destination has: those that the server has reported, or those that are in the local
    /// file. It becomes smaller only where the transfer begins again, or the server has lost something.
    public package(set) var completed: UInt64 = 0
    /// The size of the file, in bytes; 0 before it is known.
    public package(set) var total: UInt64 = 0
    /// The number of times that the transfer has started over at the first byte.
    public package(set) var restarts = 0
    /// The number of times that the destination's unfinished file had other content, and was discarded.
    public package(set) var changes = 0

    public init() {}
}
