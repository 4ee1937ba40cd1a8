// SPDX-License-Identifier: Apache-2.0
/// The parameters of permessage-deflate (RFC 7692) that both sides have agreed on.
package struct DeflateAgreement: Hashable, Sendable {
    /// Whether the server begins each message with an empty window.
    package var serverNoContextTakeover: Bool
    /// Whether the client begins each message with an empty window.
    package var clientNoContextTakeover: Bool
    /// The bits of the largest window that the server deflates with, 8 to 15.
    package var serverWindowBits: Int
    /// The bits of the largest window that the client deflates with, 8 to 15.
    package var clientWindowBits: Int

    package init(
        serverNoContextTakeover: Bool = false,
        clientNoContextTakeover: Bool = false,
        serverWindowBits: Int = 15,
        clientWindowBits: Int = 15
    ) {
        self.serverNoContextTakeover = serverNoContextTakeover
        self.clientNoContextTakeover = clientNoContextTakeover
        self.serverWindowBits = serverWindowBits
        self.clientWindowBits = clientWindowBits
    }
}
