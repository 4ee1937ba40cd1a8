// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import TestSupport

@testable import HHSocketServer

extension HostileClient {
    /// Connects a client to a running server.
    static func connect(
        to address: Endpoint?,
        reads: Bool = true,
        tls: ClientTLS? = nil,
        from origin: String? = nil
    ) async throws -> HostileClient {
        guard let address else { throw Unexpected(description: "the server does not run") }
        return try await HostileClient(to: address, reads: reads, tls: tls, from: origin)
    }
}

extension SocketServer.Configuration {
    /// A configuration that differs from the default only in these limits.
    static func limited(_ change: (inout ServerLimits) -> Void) -> Self {
        var configuration = Self()
        change(&configuration.limits)
        return configuration
    }
}

extension Router {
    /// Handles requests of this type until they are cancelled, without the memory of a sleep.
    mutating func handleUntilCancelled(_ type: UInt32) {
        self.handle(type) { _, _ in
            try await untilCancelledWithoutATrace()
            return ByteBuffer()
        }
    }

    /// Handles streams of this type, whose items it does not take, until they are cancelled.
    mutating func streamUntilCancelled(_ type: UInt32) {
        self.stream(type, kind: .clientStreaming) { _, _ in
            try await untilCancelledWithoutATrace()
            return ByteBuffer()
        }
    }
}

/// Runs `body` with a server that listens, and closes it at the end.
///
/// - Parameter prepare: Called before the server listens.
func withServer<Result: Sendable>(
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
