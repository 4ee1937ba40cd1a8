// SPDX-License-Identifier: Apache-2.0
/// A resolver that finds the servers to connect to, if a fixed list is not enough. Called before each round of
/// attempts.
///
/// Servers that are IP addresses of a family that ``SocketConfiguration/addressFamilies`` does not allow are skipped.
/// If the resolver fails, takes longer than the connect timeout, or finds nothing, the servers found before are used;
/// without any the round fails.
public struct ServerResolver: Sendable {
    /// Finds servers, possibly including some of families that are not allowed.
    let resolve: @Sendable (AddressFamilies) async throws -> [Endpoint]

    /// Creates a resolver from a closure, for example one that queries a configuration service, a file or a registry.
    public init(_ resolve: @escaping @Sendable () async throws -> [Endpoint]) {
        self.resolve = { _ in try await resolve() }
    }

    private init(byFamilies resolve: @escaping @Sendable (AddressFamilies) async throws -> [Endpoint]) {
        self.resolve = resolve
    }

    /// A resolver that always returns these endpoints.
    package static func fixed(_ endpoints: [Endpoint]) -> ServerResolver {
        ServerResolver { endpoints }
    }

    /// A resolver that finds every address of `host`, each a server with its own score. (A server given by its name has
    /// one score, and its addresses are raced by happy eyeballs.) With TLS, each server's certificate must name `host`.
    /// It uses the system's resolver, on a thread of its own, and requests addresses of the families that
    /// ``SocketConfiguration/addressFamilies`` allows.
    public static func dns(host: String, port: Int) -> ServerResolver {
        let name = Endpoint(host: host, port: port).isAddress ? nil : host
        return ServerResolver(byFamilies: { families in
            do {
                return try await AddressLookup.system.addresses(of: host, families).map {
                    Endpoint(host: $0, port: port, serverName: name)
                }
            } catch {
                throw SocketError(.hostNotFound, message: "cannot find servers: \(error)", underlying: error)
            }
        })
    }
}
