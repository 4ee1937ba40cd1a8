// SPDX-License-Identifier: Apache-2.0
import Dispatch
import NIOConcurrencyHelpers
import NIOCore
import NIOSSL

/// The context that a client's TLS connections share. It is made for the first of them, cached on success, and replaced
/// by ``reload()``.
final class ClientTLSContext: Sendable {
    private let tls: ClientTLS
    private let made = NIOLockedValueBox(Contexts())

    private struct Contexts: Sendable {
        /// The context with the client's certificate, if it has one.
        var own: NIOSSLContext?
        /// The context without it.
        var anonymous: NIOSSLContext?

        subscript(withIdentity isOwn: Bool) -> NIOSSLContext? {
            get { isOwn ? self.own : self.anonymous }
            set { if isOwn { self.own = newValue } else { self.anonymous = newValue } }
        }
    }

    init(_ tls: ClientTLS) {
        self.tls = tls
    }

    /// Returns the context, which is made on another thread if there is none yet, since that reads files. A failure is
    /// not cached: the next attempt reads them again.
    ///
    /// - Parameter withIdentity: Whether connections show the client's certificate, if it has one.
    /// - Returns: A future that fails with a ``SocketError`` with code `invalidArgument` whose message names the file
    ///   that cannot be read.
    func get(on eventLoop: any EventLoop, withIdentity: Bool = true) -> EventLoopFuture<NIOSSLContext> {
        if let made = self.made.withLockedValue({ $0[withIdentity: withIdentity] }) {
            return eventLoop.makeSucceededFuture(made)
        }
        let promise = eventLoop.makePromise(of: NIOSSLContext.self)
        DispatchQueue.global().async {
            promise.completeWith(
                Result {
                    var tls = self.tls
                    if !withIdentity { tls.identity = nil }
                    let context = try tls.makeContext()
                    return self.made.withLockedValue { made in
                        // A concurrent reload has read the files later.
                        if let made = made[withIdentity: withIdentity] { return made }
                        made[withIdentity: withIdentity] = context
                        return context
                    }
                }
            )
        }
        return promise.futureResult
    }

    /// Replaces the context: reads certificates and keys again, on the calling thread.
    ///
    /// - Throws: ``SocketError`` with code `invalidArgument`; the previous context is kept.
    func reload() throws(SocketError) {
        let context = try self.tls.makeContext()
        self.made.withLockedValue { $0 = Contexts(own: context) }
    }
}
