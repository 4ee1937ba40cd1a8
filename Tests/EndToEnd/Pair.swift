// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketServer
import TestSupport
import Testing

/// A server and a client of it.
enum Pair {
    /// Runs `body` with both, and closes them.
    static func with(
        _ format: WireFormat,
        router: Router = FormatInteropTests.router,
        configureServer: (inout SocketServer.Configuration) -> Void = { _ in },
        configureClient: (inout SocketClient.Configuration) -> Void = { _ in },
        _ body: (SocketClient, SocketServer) async throws -> Void
    ) async throws {
        var configuration = SocketServer.Configuration(wireFormat: format)
        configureServer(&configuration)
        let server = SocketServer(configuration: configuration, router: router)
        try await server.start()
        let client = SocketClient.connecting(to: try #require(server.address)) {
            $0.socket.wireFormat = format
            configureClient(&$0)
        }
        let result = await Result { try await body(client, server) }
        await client.close()
        await server.shutdown(gracePeriod: .zero)
        try result.get()
    }
}
