// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

extension Link where Language == FrameLanguage {
    /// Limits the number of unsent bytes that the system accepts, so that a new call waits behind no more than that. No
    /// effect if the system has no such option, or the connection is not TCP.
    func limitUnsentBytes(_ bytes: Int) {
        guard let option = NIOBSDSocket.Option.unsentBytes, let channel = self.context?.channel else { return }
        _ = channel.setOption(.tcpOption(option), value: bytes)
    }
}
