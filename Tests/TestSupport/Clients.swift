package import HHSocket
package import HHSocketRPC

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

extension Endpoint {
    /// The same server on 127.0.0.1, by a spelling that only the system's resolver reads. So it does not count as one
    /// on this machine, which needs no network.
    package var asIfElsewhere: Endpoint { Endpoint(host: "127.1", port: self.port) }
}
