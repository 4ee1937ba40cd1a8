// SPDX-License-Identifier: Apache-2.0
import HHSocket
package import HHSocketServer

extension Router {
    /// A router that answers type 101 with its own payload.
    package static var echo: Router {
        var router = Router()
        router.handleSynchronously(101) { request, _ in request.body }
        return router
    }
}

/// A server of the package that echoes.
package enum EchoServer {
    /// Starts a server, runs `body` with it, and shuts it down.
    package static func with(
        tls: ServerTLS? = nil,
        _ body: (Endpoint, SocketServer) async throws -> Void
    ) async throws {
        try await withServer(.init(tls: tls), .echo) { server in
            guard let address = server.address else { throw Unexpected(description: "The server has no address.") }
            try await body(address, server)
        }
    }
}
