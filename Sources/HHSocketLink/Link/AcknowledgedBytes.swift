// SPDX-License-Identifier: Apache-2.0
import HHSocketSystem
import NIOCore

/// The number of bytes of a connection that the peer's TCP has acknowledged.
package enum AcknowledgedBytes {
    /// The number since the connection was made; nil if the system does not provide it, as for Unix sockets. On the
    /// channel's event loop.
    package static func count(of channel: any Channel) -> Int? {
        #if os(Linux) || os(Android)
        guard channel.localAddress?.protocol != .unix, let provider = channel as? any SocketOptionProvider else {
            return nil
        }
        var count: UInt64?
        let future: EventLoopFuture<KernelTCPInfo> = provider.unsafeGetSocketOption(
            level: NIOBSDSocket.OptionLevel(rawValue: CInt(IPPROTO_TCP)),
            name: NIOBSDSocket.Option(rawValue: TCP_INFO)
        )
        // On its own event loop the result is available at once.
        future.assumeIsolated().whenSuccess { count = $0.bytesAcknowledged }
        return count.map { Int(clamping: $0) }
        #else
        return nil
        #endif
    }

    #if os(Linux) || os(Android)
    /// The beginning of Linux' `struct tcp_info` since 4.2 (include/uapi/linux/tcp.h). The C library's ends before
    /// `tcpi_bytes_acked`, which is at byte 120.
    private struct KernelTCPInfo {
        var states: UInt64 = 0
        var counters: (UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64) =
            (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
        var pacingRate: UInt64 = 0
        var maximumPacingRate: UInt64 = 0
        var bytesAcknowledged: UInt64 = 0
    }
    #endif
}

extension NIOBSDSocket.Option {
    /// The option for the number of unsent bytes that the system holds at most. Nil if it has no such option.
    package static var unsentBytes: Self? {
        #if os(Linux) || canImport(Darwin)
        Self(rawValue: CInt(TCP_NOTSENT_LOWAT))
        #else
        nil
        #endif
    }
}
