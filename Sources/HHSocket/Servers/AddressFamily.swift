// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The family of an IP address.
enum AddressFamily: String, Hashable, Sendable, CustomStringConvertible {
    case ipv4 = "IPv4"
    case ipv6 = "IPv6"

    /// An IPv4 address that is written as an IPv6 one (`::ffff:192.0.2.1`) is IPv4's, whose packets it leads to.
    init?(_ address: SocketAddress) {
        switch address {
        case .v4: self = .ipv4
        case .v6(let address):
            let bytes = address.bytes
            let isMapped = bytes.prefix(10).allSatisfy { $0 == 0 } && bytes[10] == 0xFF && bytes[11] == 0xFF
            self = isMapped ? .ipv4 : .ipv6
        case .unixDomainSocket: return nil
        }
    }

    /// The family of the endpoint's host; nil if that is a name, or a Unix domain socket.
    init?(_ endpoint: Endpoint) {
        guard let address = endpoint.ipAddress else { return nil }
        self.init(address)
    }

    /// The family of an address as `getnameinfo` writes it, which may have a zone: `fe80::1%eth0`.
    init?(numeric text: String) {
        guard let address = try? SocketAddress(ipAddress: String(text.prefix { $0 != "%" }), port: 0) else {
            return nil
        }
        self.init(address)
    }

    var other: AddressFamily { self == .ipv4 ? .ipv6 : .ipv4 }

    var description: String { self.rawValue }
}
