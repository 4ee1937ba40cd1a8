// SPDX-License-Identifier: Apache-2.0
/// The type numbers of the four methods of transfers. A client and a server must have the same.
public struct TransferTypes: Hashable, Sendable {
    /// Sends a file: a stream in both directions. 0x1FFF0000 by default.
    public var put: UInt32 = 0x1FFF_0000
    /// Fetches a file: a stream of the server. 0x1FFF0001 by default.
    public var get: UInt32 = 0x1FFF_0001
    /// Describes a file: a call. 0x1FFF0002 by default.
    public var find: UInt32 = 0x1FFF_0002
    /// Removes an unfinished file: a call. 0x1FFF0003 by default.
    public var discard: UInt32 = 0x1FFF_0003

    /// The numbers that `hhsocket/transfer.proto` names.
    public init() {}

    /// Creates four consecutive types, beginning with that of ``put``.
    ///
    /// - Parameter first: In the standard format 16 to 0x1FFFFFFC.
    public init(first: UInt32) {
        self.put = first
        self.get = first &+ 1
        self.find = first &+ 2
        self.discard = first &+ 3
    }
}
