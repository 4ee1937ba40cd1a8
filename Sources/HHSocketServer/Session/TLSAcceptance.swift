import NIOCore
import NIOSSL
import NIOTLS

/// Stands behind the TLS handler until the handshake is over, for a limited time; then its place is the session's.
final class TLSAcceptance: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer

    private let loop: ServerLoop
    private let timeout: TimeAmount
    private let session: () -> SessionHandler
    private var timer: ServerLoop.TimerID?
    private var isOver = false

    /// - Parameter session: Makes the session.
    init(loop: ServerLoop, timeout: TimeAmount, session: @escaping () -> SessionHandler) {
        self.loop = loop
        self.timeout = timeout
        self.session = session
    }

    func handlerAdded(context: ChannelHandlerContext) {
        let channel = context.channel
        guard self.loop.draining == nil else { return channel.close(promise: nil) }
        self.loop.addHandshake(on: channel)
        self.timer = self.loop.setTimer(.now() + self.timeout) {
            self.end(failed: true)
            channel.close(promise: nil)
        }
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.end(failed: true)
        self.loop.removeHandshake(on: context.channel)
    }

    private func end(failed: Bool) {
        guard !self.isOver else { return }
        self.isOver = true
        if let timer = self.timer { self.loop.removeTimer(timer) }
        guard failed else { return }
        var statistics = ServerStatistics()
        statistics.tlsFailures = 1
        self.loop.add(statistics)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        context.fireUserInboundEventTriggered(event)
        guard case TLSUserEvent.handshakeCompleted = event, !self.isOver else { return }
        self.end(failed: false)
        do {
            let operations = context.pipeline.syncOperations
            try operations.addHandler(self.session(), position: .after(self))
            operations.removeHandler(self, promise: nil)
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
