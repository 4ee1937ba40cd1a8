import NIOCore
import NIOPosix

/// The event loop that owns a connection: a thread of the socket's own, or one lent by the user.
final class SocketThread: Sendable {
    let eventLoop: any EventLoop
    private let ownedGroup: MultiThreadedEventLoopGroup?

    init(lent group: (any EventLoopGroup)?) {
        if let group {
            self.eventLoop = group.next()
            self.ownedGroup = nil
        } else {
            let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
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
