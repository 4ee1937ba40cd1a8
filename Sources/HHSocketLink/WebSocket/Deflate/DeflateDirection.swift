// SPDX-License-Identifier: Apache-2.0
/// The parameters of permessage-deflate for the messages of one side.
package struct DeflateDirection: Hashable, Sendable {
    /// The bits of the largest window, 8 to 15.
    package var windowBits: Int
    /// Whether messages refer to earlier ones, so that the window is kept between messages.
    package var keepsWindow: Bool

    package init(windowBits: Int, keepsWindow: Bool) {
        self.windowBits = windowBits
        self.keepsWindow = keepsWindow
    }

    /// Whether zlib can deflate with the window. It can inflate with all of them.
    package var canDeflate: Bool { DeflatePolicy.deflatingWindowBits.contains(self.windowBits) }
}

extension DeflateAgreement {
    /// Returns the parameters for the messages of one side.
    package func direction(from sender: WebSocketRole) -> DeflateDirection {
        switch sender {
        case .client:
            DeflateDirection(windowBits: self.clientWindowBits, keepsWindow: !self.clientNoContextTakeover)
        case .server:
            DeflateDirection(windowBits: self.serverWindowBits, keepsWindow: !self.serverNoContextTakeover)
        }
    }
}
