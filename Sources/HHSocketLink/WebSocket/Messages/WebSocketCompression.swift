// SPDX-License-Identifier: Apache-2.0
/// The parameters of permessage-deflate (RFC 7692). A message under 256 bytes, or one that would not become shorter, is
/// sent uncompressed.
public struct WebSocketCompression: Hashable, Sendable {
    /// Whether the server forgets each message before it compresses the next: it needs less memory, and compresses
    /// less. False by default.
    public var serverForgets = false
    /// Whether the client does. False by default.
    public var clientForgets = false
    /// The bits of the server's window, 9 to 15; 15 by default.
    public var serverWindowBits = 15
    /// The bits of the client's window, 9 to 15; 15 by default.
    public var clientWindowBits = 15

    /// The length of the shortest message that this side compresses, in bytes. A message that would not become shorter
    /// is sent uncompressed. With 0 all messages are compressed, even those that become longer.
    package var minimumLength = 256

    public init() {}

    package var policy: DeflatePolicy {
        DeflatePolicy(
            serverNoContextTakeover: self.serverForgets,
            clientNoContextTakeover: self.clientForgets,
            serverWindowBits: self.serverWindowBits,
            clientWindowBits: self.clientWindowBits
        )
    }
}
