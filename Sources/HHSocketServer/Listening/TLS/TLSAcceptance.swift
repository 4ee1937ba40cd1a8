// SPDX-License-Identifier: Apache-2.0
import NIOCore
import NIOSSL
import NIOTLS

/// Follows the TLS handler until the handshake is over, for a limited time, and performs checks that TLS cannot; then
/// the next stage replaces it.
final class TLSAcceptance: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer

    private let loop: ServerLoop
    private let service: TLSService
    /// The number of its handshake among those of the event loop.
    private let number: UInt64
    private let core: ServerCore
    private let address: ClientAddress?
    private let log: (String) -> Void
    private let install: (ChannelHandlerContext, TLSAcceptance) throws -> Acceptor.Begin?
    private var timer: SocketLoop.TimerID?
    private var isOver = false
    /// Whether the connection is the next stage's.
    private var hasPassed = false
    private var isRejected = false

    /// - Parameters:
    ///   - log: Logs why a handshake has failed.
    ///   - install: Adds the next stage after this one, and returns a closure that begins it.
    init(
        loop: ServerLoop,
        service: TLSService,
        number: UInt64,
        core: ServerCore,
        address: ClientAddress?,
        log: @escaping (String) -> Void,
        install: @escaping (ChannelHandlerContext, TLSAcceptance) throws -> Acceptor.Begin?
    ) {
        self.loop = loop
        self.service = service
        self.number = number
        self.core = core
        self.address = address
        self.log = log
        self.install = install
    }

    func handlerAdded(context: ChannelHandlerContext) {
        let channel = context.channel
        guard self.loop.draining == nil else { return channel.close(promise: nil) }
        self.loop.addHandshake(on: channel, ConnectionCost.handshake, from: self.address, self.core)
        self.loop.socketLoop.enter { turn in
            guard !self.isOver else { return }
            self.timer = self.loop.socketLoop.setTimer(turn.now + self.service.handshakeTimeout) { _ in
                self.end("it was not over within \(Duration(self.service.handshakeTimeout))")
                channel.close(promise: nil)
            }
        }
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.end("the client has closed the connection")
        if !self.hasPassed { self.loop.removeHandshake(on: context.channel) }
    }

    /// - Parameter failure: Why it has failed; nil if it has not.
    private func end(_ failure: String?) {
        guard !self.isOver else { return }
        self.isOver = true
        if let timer = self.timer { self.loop.socketLoop.removeTimer(timer) }
        if let failure {
            self.loop.counters.count(\.tlsFailures)
            self.log(failure)
        }
        self.loop.handshakes.leave(self.number)
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
        // Before the next stage is added, which may have its own time limit for the client.
        self.hasPassed = true
        self.loop.removeHandshake(on: context.channel)
        do {
            let begin = try self.install(context, self)
            context.pipeline.syncOperations.removeHandler(self, promise: nil)
            if let begin { self.loop.socketLoop.enter(begin) }
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
            self.loop.counters.count(\.clientCertificatesRevoked)
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
