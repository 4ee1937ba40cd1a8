// SPDX-License-Identifier: Apache-2.0
import HHSocketSystem
import NIOCore

/// TCP keep-alive: the system probes whether the other side still exists.
enum KeepAlive {
    /// The options of TCP, in addition to `SO_KEEPALIVE`; none if the system has no such options.
    ///
    /// - Parameters:
    ///   - idle: The time without a byte after which the system sends the first probe.
    ///   - interval: The time after which it probes again.
    ///   - count: The number of unanswered probes after which the connection ends.
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

    /// Makes the system find out soon whether a client that has closed its direction still waits for its answers: a
    /// client that has closed both looks the same until data is sent to it.
    static func probe(_ channel: any Channel) {
        guard let options = channel.syncOptions else { return }
        // They fail where it is no TCP connection.
        try? options.setOption(.socketOption(.so_keepalive), value: 1)
        for (option, value) in self.options(after: .seconds(5), every: .seconds(5), count: 3) {
            try? options.setOption(.tcpOption(option), value: value)
        }
    }
}
