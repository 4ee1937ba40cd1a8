import HHSocket
import HHSocketRPC
import TestSupport

extension SocketClient {
    /// A client of these servers that is connecting.
    static func connecting(
        to servers: Endpoint...,
        configure: (inout SocketClient.Configuration) -> Void = { _ in }
    ) -> SocketClient {
        var configuration = SocketClient.Configuration(servers: servers)
        configuration.timeout = patience * 2
        configuration.socket.backoff.base = .milliseconds(20)
        configure(&configuration)
        let client = SocketClient(configuration: configuration)
        client.connect()
        return client
    }
}

/// The error that `body` throws.
func socketError(_ body: () async throws(SocketError) -> Void) async throws -> SocketError {
    do throws(SocketError) {
        try await body()
    } catch {
        return error
    }
    throw TimedOut(description: "nothing was thrown")
}
