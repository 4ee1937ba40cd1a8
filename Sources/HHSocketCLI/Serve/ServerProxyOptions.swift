// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket
import HHSocketServer

/// The proxies in front of a server, and how they report the addresses of their clients.
struct ServerProxyOptions: ParsableArguments {
    @Option(
        help: .value(
            "network",
            """
            The address or network of proxies, such as 10.0.0.0/8, whose connections begin with a PROXY header (version \
            1 or 2) that has the client's address. May be given several times.
            """
        ),
        transform: Self.network
    )
    var proxyProtocol: [IPNetwork] = []

    @Option(
        help: .value(
            "network",
            """
            The address or network of HTTP proxies whose X-Forwarded-For has the client's address when they open a \
            WebSocket. May be given several times.
            """
        ),
        transform: Self.network
    )
    var forwardedFor: [IPNetwork] = []

    private static func network(_ text: String) throws -> IPNetwork {
        do throws(SocketError) {
            return try IPNetwork(text)
        } catch {
            throw ValidationError(error.message)
        }
    }

    /// The proxies that the options describe.
    var proxies: ServerProxies {
        ServerProxies(proxyProtocol: self.proxyProtocol, forwardedFor: self.forwardedFor)
    }
}
