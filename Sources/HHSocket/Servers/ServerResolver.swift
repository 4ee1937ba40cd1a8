/// Finds the servers to connect to, where a fixed list is not enough. Asked before each round of attempts.
///
/// While it fails, or takes longer than the connect timeout, or finds nothing, the servers found before are used; where
/// there are none the round has failed.
public struct ServerResolver: Sendable {
    let resolve: @Sendable () async throws -> [Endpoint]

    /// Finds them in the app's own way: from its configuration service, from a file, from a registry.
    public init(_ resolve: @escaping @Sendable () async throws -> [Endpoint]) {
        self.resolve = resolve
    }

    /// Always these.
    public static func fixed(_ endpoints: [Endpoint]) -> ServerResolver {
        ServerResolver { endpoints }
    }

    /// Every address of `host`, each a server with a score of its own. (A server given by its name has one score, and
    /// its addresses are raced by happy eyeballs.) With TLS, each server's certificate must name `host`. The system's
    /// resolver is asked, on a thread of Dispatch's.
    public static func dns(host: String, port: Int) -> ServerResolver {
        let name = Endpoint(host: host, port: port).isAddress ? nil : host
        return ServerResolver {
            try await AddressLookup.addresses(of: host).map { Endpoint(host: $0, port: port, serverName: name) }
        }
    }
}
