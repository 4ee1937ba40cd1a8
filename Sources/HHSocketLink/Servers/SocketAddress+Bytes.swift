// SPDX-License-Identifier: Apache-2.0
package import NIOCore

// The module that declares the fields of `sockaddr_in` differs between systems; their offsets do not.

extension SocketAddress.IPv4Address {
    /// The four bytes of the address, in network byte order.
    package var bytes: [UInt8] { withUnsafeBytes(of: self.address) { Array($0[4..<8]) } }
}

extension SocketAddress.IPv6Address {
    /// The sixteen bytes of the address, in network byte order.
    package var bytes: [UInt8] { withUnsafeBytes(of: self.address) { Array($0[8..<24]) } }
}
