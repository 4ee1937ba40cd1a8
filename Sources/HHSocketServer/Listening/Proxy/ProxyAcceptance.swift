// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

/// The first handler in the pipeline of a connection from a listed proxy, until its PROXY header has arrived, for a
/// limited time; then TLS, or the next stage, replaces it.
final class ProxyAcceptance: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer

    private let peer: ServerPeer
    private let install: (ProxyHeader, ChannelHandlerContext, ProxyAcceptance) throws -> ServerPeer.Begin?
    private var reader = ProxyHeaderReader()
    private var isOver = false

    /// - Parameter install: Adds the next stage after this one, and returns a closure that begins it.
    init(
        _ peer: ServerPeer,
        install: @escaping (ProxyHeader, ChannelHandlerContext, ProxyAcceptance) throws -> ServerPeer.Begin?
    ) {
        self.peer = peer
        self.install = install
    }

    func handlerAdded(context: ChannelHandlerContext) {
        let time = self.peer.listener.proxies.headerTimeout
        // Until the header has come, it belongs to nobody.
        self.peer.enter(.header, from: nil, within: TimeAmount(clamping: time)) { self.fail(.timeout(time), context) }
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.end(context)
    }

    /// Before the next stage is added, which has its own time limit.
    private func end(_ context: ChannelHandlerContext) {
        guard !self.isOver else { return }
        self.isOver = true
        self.peer.endStage()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !self.isOver else { return }
        self.reader.append(self.unwrapInboundIn(data))
        do throws(ProxyHeaderFault) {
            guard let header = try self.reader.next() else { return }
            self.accept(header, context)
        } catch {
            self.fail(error, context)
        }
    }

    private func accept(_ header: ProxyHeader, _ context: ChannelHandlerContext) {
        self.end(context)
        do {
            let begin = try self.install(header, context, self)
            if let begin { self.peer.loop.socketLoop.enter(begin) }
        } catch {
            return context.close(promise: nil)
        }
        let rest = self.reader.takeRest()
        if rest.readableBytes > 0 {
            context.fireChannelRead(NIOAny(rest))
            context.fireChannelReadComplete()
        }
        context.pipeline.syncOperations.removeHandler(context: context, promise: nil)
    }

    private func fail(_ fault: ProxyHeaderFault, _ context: ChannelHandlerContext) {
        guard !self.isOver else { return }
        self.end(context)
        self.peer.loop.counters.count(.proxyHeaderFailures)
        self.peer.parts.books.peerLog.write(
            .warning,
            "a proxy sent no valid PROXY header",
            metadata: [
                "remote": "\(context.remoteAddress.map { "\($0)" } ?? "unknown")",
                "listener": "\(self.peer.listener.endpoint)",
                "reason": "\(fault)",
            ],
            by: self.peer.parts.books.logger
        )
        context.close(promise: nil)
    }

    /// The proxy has ended the connection, or the server shuts down. A proxy that has sent nothing has only checked the
    /// server's availability.
    private func ended(_ context: ChannelHandlerContext) {
        guard !self.isOver else { return }
        guard self.reader.isEmpty || self.peer.loop.draining != nil else { return self.fail(.incomplete, context) }
        self.end(context)
        context.close(promise: nil)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .inputClosed? = event as? ChannelEvent { self.ended(context) }
        context.fireUserInboundEventTriggered(event)
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.ended(context)
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard !self.isOver else { return context.fireErrorCaught(error) }
        self.ended(context)
    }
}
