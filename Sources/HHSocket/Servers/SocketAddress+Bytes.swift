package import NIOCore

// Which module has the fields of `sockaddr_in` differs between systems; where they are does not.

extension SocketAddress.IPv4Address {
    /// The four bytes of the address, in the order of the network.
    package var bytes: [UInt8] { withUnsafeBytes(of: self.address) { Array($0[4..<8]) } }
}

extension SocketAddress.IPv6Address {
    /// The sixteen bytes of the address, in the order of the network.
    package var bytes: [UInt8] { withUnsafeBytes(of: self.address) { Array($0[8..<24]) } }
}
