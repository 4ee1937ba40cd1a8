// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
package import NIOCore

/// The network that counts as one client for limits by address: an IPv4 address, or an IPv6 network of 64 bits, which
/// is the least that a single customer has.
///
/// Each address of 127.0.0.0/8 counts separately. An IPv4 address in an IPv6 one counts as that IPv4 address: as an
/// IPv6 socket reports it (`::ffff:a.b.c.d`), and as a NAT64 gateway translates it (`64:ff9b::a.b.c.d`).
package struct ClientAddress: Hashable, Sendable {
    /// The bits of the network; an IPv4 address is in the low 32.
    private let bits: UInt64
    /// The length of an IPv6 network's prefix in bits; 0 for an IPv4 address.
    private let prefix: UInt8

    private init(bits: UInt64, prefix: UInt8) {
        self.bits = bits
        self.prefix = prefix
    }

    /// Fails for a peer without an IP address, such as that of a Unix domain socket.
    package init?(_ address: SocketAddress?) {
        switch address {
        case .v4(let address):
            self.init(bits: Self.number(address.bytes[...]), prefix: 0)
        case .v6(let address):
            let bytes = address.bytes
            if Self.prefixesOfIPv4.contains(where: { bytes.starts(with: $0) }) {
                self.init(bits: Self.number(bytes[12...]), prefix: 0)
            } else {
                self.init(bits: Self.number(bytes[..<8]), prefix: 64)
            }
        case .unixDomainSocket, nil:
            return nil
        }
    }

    /// IPv6 prefixes of 96 bits that are followed by an IPv4 address.
    private static let prefixesOfIPv4: [[UInt8]] = [
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF],
        [0, 0x64, 0xFF, 0x9B, 0, 0, 0, 0, 0, 0, 0, 0],
    ]

    private static func number(_ bytes: ArraySlice<UInt8>) -> UInt64 {
        bytes.reduce(0) { $0 << 8 | UInt64($1) }
    }

    /// The networks that a larger customer may have, the next larger one first: those of 56 and 48 bits around an IPv6
    /// network; none for an IPv4 address.
    var around: [ClientAddress] {
        self.prefix == 64 ? [self.network(ofBits: 56), self.network(ofBits: 48)] : []
    }

    /// The network as text, the same in each process.
    package var text: String { "\(String(self.bits, radix: 16))/\(self.prefix)" }

    /// The largest of these networks, or the address itself.
    var largest: ClientAddress { self.prefix == 64 ? self.network(ofBits: 48) : self }

    private func network(ofBits prefix: UInt8) -> ClientAddress {
        ClientAddress(bits: self.bits & (UInt64.max << UInt64(64 - prefix)), prefix: prefix)
    }
}
