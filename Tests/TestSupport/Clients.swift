import HHSocket
import HHSocketRPC

extension SocketClient {
    /// A client of these servers that is connecting.
    package static func connecting(
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
