import NIOCore
import NIOSSL
import NIOTLS

/// Stands behind the TLS handler until the handshake is over, for a limited time; then its place is the link's.
final class TLSAcceptance: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer

    private let loop: ServerLoop
    private let timeout: TimeAmount
    private let connection: () -> ServerConnection
    private var timer: SocketLoop.TimerID?
    private var isOver = false

    /// - Parameter connection: Makes the connection.
    init(loop: ServerLoop, timeout: TimeAmount, connection: @escaping () -> ServerConnection) {
        self.loop = loop
        self.timeout = timeout
        self.connection = connection
    }

    func handlerAdded(context: ChannelHandlerContext) {
        let channel = context.channel
        guard self.loop.draining == nil else { return channel.close(promise: nil) }
        self.loop.addHandshake(on: channel)
        self.loop.socketLoop.enter { turn in
            guard !self.isOver else { return }
            self.timer = self.loop.socketLoop.setTimer(turn.now + self.timeout) { _ in
                self.end(failed: true)
                channel.close(promise: nil)
            }
        }
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.end(failed: true)
        self.loop.removeHandshake(on: context.channel)
    }

    private func end(failed: Bool) {
        guard !self.isOver else { return }
        self.isOver = true
        if let timer = self.timer { self.loop.socketLoop.removeTimer(timer) }
        if failed { self.loop.counters.count(\.tlsFailures) }
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        context.fireUserInboundEventTriggered(event)
        guard case TLSUserEvent.handshakeCompleted = event, !self.isOver else { return }
        self.end(failed: false)
        do {
            let operations = context.pipeline.syncOperations
            let connection = self.connection()
            try connection.add(to: operations, position: .after(self))
            operations.removeHandler(self, promise: nil)
            self.loop.socketLoop.enter { connection.begin(in: &$0) }
        } catch {
            context.close(promise: nil)
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard !self.isOver else { return context.fireErrorCaught(error) }
        self.end(failed: true)
        context.close(promise: nil)
    }
}
