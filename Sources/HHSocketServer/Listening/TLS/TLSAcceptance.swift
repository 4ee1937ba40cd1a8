// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore
import NIOSSL
import NIOTLS

/// Follows the TLS handler until the handshake is over, for a limited time, and performs checks that TLS cannot; then
/// the next stage replaces it.
final class TLSAcceptance: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer

    private let peer: ServerPeer
    private let service: TLSService
    /// The number of its handshake among those of the event loop.
    private let number: UInt64
    /// The charge for the handshake, until it is over.
    private var hold: Hold?
    /// The client's address, as far as it is known.
    private let address: SocketAddress?
    private let log: (String) -> Void
    private let install: (ChannelHandlerContext, TLSAcceptance) throws -> ServerPeer.Begin?
    private var isOver = false
    private var isRejected = false

    /// - Parameters:
    ///   - log: Logs why a handshake has failed.
    ///   - install: Adds the next stage after this one, and returns a closure that begins it.
    init(
        _ peer: ServerPeer,
        service: TLSService,
        number: UInt64,
        hold: consuming Hold,
        address: SocketAddress?,
        log: @escaping (String) -> Void,
        install: @escaping (ChannelHandlerContext, TLSAcceptance) throws -> ServerPeer.Begin?
    ) {
        self.peer = peer
        self.service = service
        self.number = number
        self.hold = consume hold
        self.address = address
        self.log = log
        self.install = install
    }

    func handlerAdded(context: ChannelHandlerContext) {
        let channel = context.channel
        let time = self.service.handshakeTimeout
        self.peer.enter(.handshake, from: self.address, within: time) {
            self.end("it was not over within \(Duration(time))")
            channel.close(promise: nil)
        }
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.end("the client has closed the connection")
    }

    /// - Parameter failure: Why it has failed; nil if it has not.
    private func end(_ failure: String?) {
        guard !self.isOver else { return }
        self.isOver = true
        self.hold = nil
        self.peer.endStage()
        if let failure {
            self.peer.loop.counters.count(.tlsFailures)
            self.log(failure)
        }
        self.peer.loop.handshakes.remove(self.number)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        context.fireUserInboundEventTriggered(event)
        guard case TLSUserEvent.handshakeCompleted(let agreed) = event, !self.isOver else { return }
        guard self.accepts(agreed, context) else {
            self.isRejected = true
            self.end("its certificate is revoked, or it has no application protocol of the listener's")
            return context.close(promise: nil)
        }
        self.end(nil)
        do {
            let begin = try self.install(context, self)
            context.pipeline.syncOperations.removeHandler(self, promise: nil)
            if let begin { self.peer.loop.socketLoop.enter(begin) }
        } catch {
            context.close(promise: nil)
        }
    }

    /// - Parameter agreed: The application protocol.
    private func accepts(_ agreed: String?, _ context: ChannelHandlerContext) -> Bool {
        // The gate before TLS has found one that is offered. It does not read every hello that TLS does.
        guard agreed != nil || !self.service.requiresProtocol else { return false }
        guard let revocations = self.service.revocations,
            let handler = try? context.pipeline.syncOperations.handler(type: NIOSSLServerHandler.self),
            let certificate = handler.peerCertificate
        else { return true }
        guard !revocations.refuses(certificate) else {
            self.peer.loop.counters.count(.clientCertificatesRevoked)
            return false
        }
        return true
    }

    /// Bytes of a client that it does not accept are not passed on.
    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        if !self.isRejected { context.fireChannelRead(data) }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard !self.isOver else { return context.fireErrorCaught(error) }
        self.end("\(error)")
        context.close(promise: nil)
    }
}
