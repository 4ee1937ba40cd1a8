// SPDX-License-Identifier: Apache-2.0
package import HHSocket
package import HHSocketRPC

extension SocketClient {
    /// A client of these servers that is connecting.
    package static func connecting(
        to servers: Endpoint...,
        configure: (inout SocketClient.Configuration) -> Void = { _ in }
    ) -> SocketClient {
        let client = Self.idle(servers, configure)
        client.connect()
        return client
    }

    /// A client of these servers that is connecting, and all of its events, even those of a connection that ends before
    /// the next line runs.
    package static func connectingWithEvents(
        to servers: Endpoint...,
        configure: (inout SocketClient.Configuration) -> Void = { _ in }
    ) -> (client: SocketClient, events: AsyncStream<SocketEvent>) {
        let client = Self.idle(servers, configure)
        let events = client.events
        client.connect()
        return (client, events)
    }

    private static func idle(
        _ servers: [Endpoint],
        _ configure: (inout SocketClient.Configuration) -> Void
    ) -> SocketClient {
        var configuration = SocketClient.Configuration(servers: servers)
        configuration.timeout = patience * 2
        configuration.socket.backoff.base = .milliseconds(20)
        configure(&configuration)
        return SocketClient(configuration: configuration)
    }
}

extension Endpoint {
    /// A server on 127.0.0.1, by a spelling that only the system's resolver reads. So it does not count as a server on
    /// this machine, which requires no network.
    package var asIfElsewhere: Endpoint { Endpoint(host: "127.1", port: self.port) }
}
