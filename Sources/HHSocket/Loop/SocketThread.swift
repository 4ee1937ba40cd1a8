// SPDX-License-Identifier: Apache-2.0
import Dispatch
import NIOCore

#if canImport(Network)
import NIOTransportServices
#else
import NIOPosix
#endif

/// The event loop that owns a connection: a thread of the socket's own, or one lent by the user.
///
/// On Apple platforms the loop of one's own is a queue of Network.framework's, whose connections bring up what the
/// system must bring up first (a VPN on demand, the cellular radio), reach IPv4 addresses from IPv6 networks, and obey
/// the user's settings. BSD sockets do nothing of that.
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

    /// Ends a thread of our own; what is still scheduled on it is dropped.
    func end() {
        self.ownedGroup?.shutdownGracefully(queue: .global()) { _ in
            // Fails only if it was shut down before.
        }
    }
}
