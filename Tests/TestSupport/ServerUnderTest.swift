// SPDX-License-Identifier: Apache-2.0
package import HHSocket
package import HHSocketServer
package import HHSocketTesting

extension HostileClient {
    /// Connects a client to a running server.
    package static func connect(
        to address: Endpoint?,
        reads: Bool = true,
        tls: ClientTLS? = nil,
        from origin: String? = nil
    ) async throws -> HostileClient {
        guard let address else { throw Unexpected(description: "the server does not run") }
        return try await HostileClient(to: address, reads: reads, tls: tls, from: origin)
    }
}

/// Runs `body` with a server that listens, and closes it at the end.
///
/// - Parameter prepare: Called before the server listens.
package func withServer<Result: Sendable>(
    _ configuration: SocketServer.Configuration = .init(),
    _ router: Router,
    _ prepare: (SocketServer) throws -> Void = { _ in },
    _ body: (SocketServer) async throws -> Result
) async throws -> Result {
    let server = SocketServer(configuration: configuration, router: router)
    try prepare(server)
    try await server.start()
    do {
        let result = try await body(server)
        await server.shutdown(gracePeriod: .zero)
        return result
    } catch {
        await server.shutdown(gracePeriod: .zero)
        throw error
    }
}
