// SPDX-License-Identifier: Apache-2.0
import NIOCore
import NIOSSL
import NIOTLS

/// Follows the TLS handler until the handshake is over, and checks name and pins before anything is sent.
final class TLSHandshake: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer

    private let name: HostName?
    private let pins: Set<PublicKeyPin>
    private let done: EventLoopPromise<Void>
    private var isDone = false

    /// - Parameters:
    ///   - name: The name that the certificate must have, in addition to NIOSSL's checks; nil for none.
    ///   - done: Succeeds when the peer's identity has been verified, fails with ``TLSFailure`` otherwise. Its
    ///     callbacks must add the following handlers before they return.
    init(name: HostName?, pins: Set<PublicKeyPin>, done: EventLoopPromise<Void>) {
        self.name = name
        self.pins = pins
        self.done = done
    }

    private func finish(_ result: Result<Void, any Error>) {
        guard !self.isDone else { return }
        self.isDone = true
        self.done.completeWith(result)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case TLSUserEvent.handshakeCompleted = event {
            if let failure = self.failure(of: self.peerCertificate(context)) {
                self.finish(.failure(failure))
                context.close(promise: nil)
            } else {
                self.finish(.success(()))
            }
        }
        context.fireUserInboundEventTriggered(event)
    }

    private func failure(of certificate: NIOSSLCertificate?) -> TLSFailure? {
        if let name = self.name, certificate.map({ name.isNamed(by: $0) }) != true { return .wrongHost() }
        guard !self.pins.isEmpty else { return nil }
        let shown = certificate.flatMap { PublicKeyPin($0) }
        if let shown, self.pins.contains(shown) { return nil }
        return TLSFailure(
            .pinMismatch,
            """
            the server's key matches none of the pins (ClientTLS.pins): it shows \(shown.map { "\($0)" } ?? "none that can be read")
            """
        )
    }

    private func peerCertificate(_ context: ChannelHandlerContext) -> NIOSSLCertificate? {
        (try? context.pipeline.syncOperations.handler(type: NIOSSLClientHandler.self))?.peerCertificate
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard !self.isDone else { return context.fireErrorCaught(error) }
        self.finish(.failure(TLSFailure(error, certificate: self.peerCertificate(context)) ?? error))
        context.close(promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.finish(.failure(TLSFailure(.closed, "the connection was closed during the TLS handshake")))
        context.fireChannelInactive()
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.finish(.failure(ChannelError.ioOnClosedChannel))
    }
}
