// SPDX-License-Identifier: Apache-2.0
import NIOCore
import NIOPosix

/// The loopback address of IPv6, which not every machine has.
package enum IPv6Loopback {
    package static let host = "::1"

    /// The reason why there is none here; nil if there is one.
    package static let whyNot: String? = {
        do {
            let address = try SocketAddress(ipAddress: Self.host, port: 0)
            try ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton).bind(to: address).wait().close().wait()
            return nil
        } catch {
            return "IPv6 is NOT TESTED here: nothing can listen on ::1 (\(error))."
        }
    }()
}
