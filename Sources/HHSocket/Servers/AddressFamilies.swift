// SPDX-License-Identifier: Apache-2.0
/// The address families by which servers are reached, and which of them is tried first; see
/// ``SocketConfiguration/addressFamilies``.
public enum AddressFamilies: String, Hashable, Sendable, CaseIterable {
    /// IPv4 and IPv6, in the system's order. A host name's addresses are raced by happy eyeballs, which begins with the
    /// family of the first one; on Apple platforms Network.framework decides.
    case any
    /// IPv4 first; IPv6 follows after 250 ms, or as soon as IPv4 has failed.
    case preferIPv4
    /// IPv6 first; IPv4 follows after 250 ms, or as soon as IPv6 has failed.
    case preferIPv6
    /// Only IPv4.
    case onlyIPv4
    /// Only IPv6.
    case onlyIPv6
}

extension AddressFamilies {
    /// The only family allowed; nil if both are.
    var only: AddressFamily? {
        switch self {
        case .any, .preferIPv4, .preferIPv6: nil
        case .onlyIPv4: .ipv4
        case .onlyIPv6: .ipv6
        }
    }

    /// The family that is tried first; nil if the system decides.
    var first: AddressFamily? {
        switch self {
        case .any: nil
        case .preferIPv4, .onlyIPv4: .ipv4
        case .preferIPv6, .onlyIPv6: .ipv6
        }
    }

    /// The setting and its value, for messages.
    var setting: String { "SocketConfiguration.addressFamilies is \(self.rawValue)" }

    // MARK: Servers

    /// Whether the endpoint may be tried: its host is no IP address, or one of an allowed family.
    func allow(_ endpoint: Endpoint) -> Bool {
        guard let only = self.only, let family = AddressFamily(endpoint) else { return true }
        return family == only
    }

    /// Whether equally good servers are tried before this one, whose host is an IP address of the other family.
    func putOff(_ endpoint: Endpoint) -> Bool {
        guard let first = self.first, let family = AddressFamily(endpoint) else { return false }
        return family != first
    }

    /// Returns the endpoints in the same order, except that those of the other family come last.
    func sorted(_ endpoints: [Endpoint]) -> [Endpoint] {
        endpoints.filter { !self.putOff($0) } + endpoints.filter(self.putOff)
    }

    /// - Parameters:
    ///   - server: The server to connect to.
    ///   - proxy: The proxy in front of it, whose address is then the one that counts.
    /// - Throws: ``SocketError`` with code `invalidArgument` if the host is an IP address of a family that is off.
    func check(_ server: Endpoint, through proxy: Proxy?) throws(SocketError) {
        let target = proxy?.endpoint ?? server
        guard !self.allow(target), let family = AddressFamily(target) else { return }
        throw .invalid(
            """
            cannot connect to \(server)\(proxy.through): \(proxy == nil ? "this" : "the proxy's") is an \(family) \
            address, and \(self.setting); allow \(family) there, or give a host name or an \(family.other) address
            """
        )
    }

    /// The message of an error: none of the endpoints that a resolver has found may be tried.
    func noServer(among endpoints: [Endpoint]) -> String {
        guard !endpoints.isEmpty, let only = self.only else {
            return "the resolver found no server; make sure that it returns at least one"
        }
        return """
            the resolver found \(only.other) addresses only, and \(self.setting); allow \(only.other) there, or see that \
            it returns names or \(only) addresses
            """
    }

    // MARK: Addresses of one name

    /// Returns the allowed addresses in the order in which they are tried: families alternate (RFC 8305, section 4),
    /// beginning with the preferred one, or else with that of the system's first address, and each keeps its own order.
    func order(_ addresses: [String]) -> [String] {
        guard let first = self.first ?? addresses.first.flatMap({ AddressFamily(numeric: $0) }) else {
            return addresses
        }
        var (firsts, others): ([String], [String]) = ([], [])
        for address in addresses {
            if AddressFamily(numeric: address) == first {
                firsts.append(address)
            } else if self.only == nil {
                others.append(address)
            }
        }
        return (0..<max(firsts.count, others.count)).flatMap { index in
            firsts.dropFirst(index).prefix(1) + others.dropFirst(index).prefix(1)
        }
    }
}

extension SocketConfiguration {
    /// The families by which servers are reached; with a proxy the choice is the proxy's.
    var serverAddressFamilies: AddressFamilies { self.proxy == nil ? self.addressFamilies : .any }
}
