// SPDX-License-Identifier: Apache-2.0
import NIOCore
import NIOSSL

extension ClientTLS {
    /// Starts TLS on a channel that is being connected directly, without a ``Socket``.
    ///
    /// Must be called on the channel's event loop, before other handlers are added.
    ///
    /// - Parameters:
    ///   - channel: A channel whose pipeline is empty.
    ///   - endpoint: The server, whose host the certificate must name unless ``serverName`` is set.
    /// - Returns: A future that succeeds when the handshake has completed and name and pins have been checked.
    /// - Throws: ``SocketError`` with code `invalidArgument` that names the certificate or key that cannot be read;
    ///   NIO's error if the name is invalid.
    package func start(on channel: any Channel, to endpoint: Endpoint) throws -> EventLoopFuture<Void> {
        let name = self.serverName ?? (endpoint.unixPath == nil && !endpoint.isAddress ? endpoint.host : nil)
        let indication = name.map { HostName.indication(of: $0) }
        let done = channel.eventLoop.makePromise(of: Void.self)
        do {
            try channel.pipeline.syncOperations.addHandlers(
                NIOSSLClientHandler(context: self.makeContext(), serverHostname: indication),
                TLSHandshake(name: nil, pins: self.pins, done: done)
            )
        } catch {
            done.fail(error)
            throw error
        }
        return done.futureResult
    }
}
