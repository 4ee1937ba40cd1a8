// SPDX-License-Identifier: Apache-2.0
import Dispatch
import NIOConcurrencyHelpers
import NIOCore
import NIOSSL

/// The context that a client's TLS connections share. It is made for the first of them, cached on success, and replaced
/// by ``reload()``.
final class ClientTLSContext: Sendable {
    private let tls: ClientTLS
    private let made = NIOLockedValueBox<NIOSSLContext?>(nil)

    init(_ tls: ClientTLS) {
        self.tls = tls
    }

    /// Returns the context, which is made on another thread if there is none yet, since that reads files. A failure is
    /// not cached: the next attempt reads them again.
    ///
    /// The future fails with a ``SocketError`` with code `invalidArgument` whose message names the file that cannot be
    /// read.
    func get(on eventLoop: any EventLoop) -> EventLoopFuture<NIOSSLContext> {
        if let made = self.made.withLockedValue({ $0 }) { return eventLoop.makeSucceededFuture(made) }
        let promise = eventLoop.makePromise(of: NIOSSLContext.self)
        DispatchQueue.global().async {
            promise.completeWith(
                Result {
                    let context = try self.tls.makeContext()
                    return self.made.withLockedValue { made in
                        // A concurrent reload has read the files later.
                        if let made { return made }
                        made = context
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
        self.made.withLockedValue { $0 = context }
    }
}
