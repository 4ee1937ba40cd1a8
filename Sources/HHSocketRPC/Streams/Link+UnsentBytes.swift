// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketSystem
import NIOCore

extension Link where Language == FrameLanguage {
    /// The option for the number of unsent bytes that the system holds at most. Nil if it has no such option.
    private static var unsentBytesOption: NIOBSDSocket.Option? {
        #if os(Linux) || canImport(Darwin)
        NIOBSDSocket.Option(rawValue: CInt(TCP_NOTSENT_LOWAT))
        #else
        nil
        #endif
    }

    /// Limits the number of unsent bytes that the system accepts, so that a new call waits behind no more than that. No
    /// effect if the system has no such option, or the connection is not TCP.
    func limitUnsentBytes(_ bytes: Int) {
        guard let option = Self.unsentBytesOption, let channel = self.context?.channel else { return }
        _ = channel.setOption(.tcpOption(option), value: bytes)
    }
}
