// SPDX-License-Identifier: Apache-2.0
import NIOCore

#if canImport(Network)
import NIOTransportServices
#else
import NIOPosix
#endif

/// The event loop that owns a connection: the socket's own thread, or one passed by the user.
///
/// On Apple platforms the socket's own loop is a queue of Network.framework, whose connections activate what they need
/// first (a VPN on demand, the cellular radio), reach IPv4 addresses from IPv6 networks, and obey the user's settings.
/// BSD sockets do none of that.
final class SocketThread: Sendable {
    let eventLoop: any EventLoop
    private let ownedGroup: (any EventLoopGroup)?

    init(lent group: (any EventLoopGroup)?) {
        if let group {
            self.eventLoop = group.next()
            self.ownedGroup = nil
        } else {
            #if canImport(Network)
            let group = NIOTSEventLoopGroup(loopCount: 1)
            #else
            let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
            #endif
            self.eventLoop = group.next()
            self.ownedGroup = group
        }
    }

    /// Ends the socket's own thread; scheduled work is dropped.
    func end() {
        self.ownedGroup?.shutdownGracefully(queue: .global()) { _ in
            // Fails only if it was shut down before.
        }
    }
}
