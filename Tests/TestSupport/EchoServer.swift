import HHSocket
import HHSocketServer
import Testing

extension Router {
    /// Type 101 is answered with its own payload.
    static var echo: Router {
        var router = Router()
        router.handleSynchronously(101) { request, _ in request.body }
        return router
    }
}

/// A server of ours that echoes.
enum EchoServer {
    /// Runs `body` with it, and ends it.
    static func with(
        tls: ServerTLS? = nil,
        _ body: (Endpoint, SocketServer) async throws -> Void
    ) async throws {
        let server = SocketServer(configuration: .init(tls: tls), router: .echo)
        try await server.start()
        let result = await Result { try await body(try #require(server.address), server) }
        await server.shutdown(gracePeriod: .zero)
        try result.get()
    }
}
