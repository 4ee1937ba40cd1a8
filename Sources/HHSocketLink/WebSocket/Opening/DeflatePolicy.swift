// SPDX-License-Identifier: Apache-2.0
/// The parameters of permessage-deflate (RFC 7692) that one side requests.
package struct DeflatePolicy: Hashable, Sendable {
    /// The bits of windows that RFC 7692 has.
    static let windowBits = 8...15
    /// The bits of windows with which zlib can deflate. For 8 it would use 9, and report that only in a header that raw
    /// deflate does not have, so that the peer could not inflate.
    static let deflatingWindowBits = 9...15

    /// Whether the server begins each message with an empty window, which frees its memory in between. A server honours
    /// a client's request, or the extension is not agreed on. False by default.
    package var serverNoContextTakeover: Bool
    /// Whether the client begins each message with an empty window. False by default.
    package var clientNoContextTakeover: Bool
    /// The bits of the largest window that the server deflates with, 8 to 15, at a server 9 to 15. 15 by default.
    package var serverWindowBits: Int
    /// The bits of the largest window with which the client deflates, 8 to 15, at a client 9 to 15. 15 by default. A
    /// server cannot limit a client that does not offer to be limited; such a client's window has 15 bits.
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

    /// Checks that this side can keep to the policy.
    ///
    /// - Parameters:
    ///   - deflating: The bits of the windows that this side deflates with.
    ///   - inflating: The bits of the windows that it inflates with.
    private static func check(deflating: Int, inflating: Int) throws(OpeningError) {
        guard self.deflatingWindowBits.contains(deflating) else {
            throw .invalidWindowBits(deflating, in: self.deflatingWindowBits)
        }
        guard self.windowBits.contains(inflating) else {
            throw .invalidWindowBits(inflating, in: self.windowBits)
        }
    }

    func checkForClient() throws(OpeningError) {
        try Self.check(deflating: self.clientWindowBits, inflating: self.serverWindowBits)
    }

    func checkForServer() throws(OpeningError) {
        try Self.check(deflating: self.serverWindowBits, inflating: self.clientWindowBits)
    }
}
