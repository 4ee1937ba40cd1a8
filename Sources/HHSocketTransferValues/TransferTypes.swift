// SPDX-License-Identifier: Apache-2.0
/// The type numbers of the four methods of transfers, of which a client and a server must have the same: put, get, find
/// and discard. 0x1FFF0000 to 0x1FFF0003 by default.
public struct TransferTypes: Hashable, Sendable {
    /// Sends a file: a stream in both directions.
    package var put: UInt32
    /// Fetches a file: a stream of the server.
    package var get: UInt32
    /// Describes a file: a call.
    package var find: UInt32
    /// Removes an unfinished file: a call.
    package var discard: UInt32

    /// Creates four consecutive types, in this order.
    ///
    /// - Parameter first: In the standard format 16 to 0x1FFFFFFC. By default the number that `hhsocket/transfer.proto`
    ///   names.
    public init(first: UInt32 = 0x1FFF_0000) {
        self.put = first
        self.get = first &+ 1
        self.find = first &+ 2
        self.discard = first &+ 3
    }
}
