// SPDX-License-Identifier: Apache-2.0
import NIOCore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// TCP keep-alive: the system asks whether the other side is still there.
enum KeepAlive {
    /// The options of TCP, beside `SO_KEEPALIVE`; none where the system has no such options.
    ///
    /// - Parameters:
    ///   - idle: The time without a byte after which the system asks for the first time.
    ///   - interval: The time after which it asks again.
    ///   - count: The number of unanswered questions after which the connection is over.
    static func options(
        after idle: TimeAmount,
        every interval: TimeAmount,
        count: Int
    ) -> [(option: NIOBSDSocket.Option, value: Int)] {
        func seconds(_ time: TimeAmount) -> Int { Int(min(max(time.nanoseconds / 1_000_000_000, 1), 32_767)) }
        #if os(Linux)
        let options = [
            (TCP_KEEPIDLE, seconds(idle)), (TCP_KEEPINTVL, seconds(interval)), (TCP_KEEPCNT, count),
        ]
        #elseif canImport(Darwin)
        let options = [
            (TCP_KEEPALIVE, seconds(idle)), (TCP_KEEPINTVL, seconds(interval)), (TCP_KEEPCNT, count),
        ]
        #else
        let options: [(CInt, Int)] = []
        #endif
        return options.map { (NIOBSDSocket.Option(rawValue: $0.0), $0.1) }
    }
}
