// SPDX-License-Identifier: Apache-2.0
public import HHSocketLink
public import NIOCore

/// A network of IP addresses, such as `10.0.0.0/8` or `2001:db8::/32`, or a single address.
///
/// An IPv4 address that an IPv6 socket reports (`::ffff:192.0.2.1`) counts as the IPv4 address: it is in networks of
/// IPv4, and in none of IPv6.
public struct IPNetwork: Hashable, Sendable {
    /// The first 96 bits of the IPv6 addresses that represent IPv4 ones.
    static let mappedPrefix: [UInt8] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF]

    /// The first address: four bytes, or sixteen.
    private let bytes: [UInt8]
    /// The number of leading bits that all addresses of the network have in common: up to 32, or 128 of IPv6.
    package let prefixLength: Int

    /// Reads a network.
    ///
    /// - Parameter text: An address, and after a slash the length of its prefix; without one it is that address alone.
    /// - Throws: ``/HHSocket/SocketError`` with code `invalidArgument` for anything else, including an address with
    ///   bits after the prefix (`10.0.0.1/8`): one of both is a mistake, and the network might be too large.
    public init(_ text: String) throws(SocketError) {
        let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
        guard let host = parts.first, let address = SocketAddress(numericHost: host), let bytes = address.ipBytes
        else { throw Self.fault(text, "an IP address, or a network such as 10.0.0.0/8, is needed") }
        var length = bytes.count * 8
        if parts.count == 2 {
            // For an IPv4 address in the notation of IPv6, its first 96 bits are counted too.
            let leading = if case .v6 = address, bytes.count == 4 { 96 } else { 0 }
            guard let number = UInt16(decimal: parts[1]), (leading...leading + length).contains(Int(number)) else {
                throw Self.fault(text, "the length of a prefix is a number from \(leading) to \(leading + length)")
            }
            length = Int(number) - leading
        }
        guard Self.masked(bytes, length) == bytes else {
            throw Self.fault(text, "the address has bits behind the first \(length); they must be 0")
        }
        self.bytes = bytes
        self.prefixLength = length
    }

    private static func fault(_ text: String, _ reason: String) -> SocketError {
        .invalid("\"\(text)\" is not a network: \(reason)")
    }

    /// Whether an address is in the network; false for the address of a Unix domain socket.
    public func contains(_ address: SocketAddress) -> Bool {
        guard let bytes = address.ipBytes, bytes.count == self.bytes.count else { return false }
        return Self.masked(bytes, self.prefixLength) == self.bytes
    }

    /// The first `length` bits of an address, and zeros.
    private static func masked(_ bytes: [UInt8], _ length: Int) -> [UInt8] {
        bytes.indices.map { index in
            let bits = min(max(length - index * 8, 0), 8)
            return bytes[index] & ~(UInt8.max >> bits)
        }
    }
}

extension IPNetwork: CustomStringConvertible {
    public var description: String {
        let address = try? SocketAddress(packedIPAddress: ByteBuffer(bytes: self.bytes), port: 0)
        let text = address?.ipAddress ?? ""
        return self.prefixLength == self.bytes.count * 8 ? text : "\(text)/\(self.prefixLength)"
    }
}

extension [IPNetwork] {
    /// Whether an address is in one of the networks.
    func contains(_ address: SocketAddress?) -> Bool {
        guard let address, !self.isEmpty else { return false }
        return self.contains { $0.contains(address) }
    }
}
