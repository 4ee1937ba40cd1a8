// SPDX-License-Identifier: Apache-2.0
import NIOCore

extension Endpoint {
    /// The host, with port 0, if it is an IP address; nil if it is a name.
    package var ipAddress: SocketAddress? {
        self.unixPath == nil ? try? SocketAddress(ipAddress: self.host, port: 0) : nil
    }

    /// Whether the host is an IP address.
    package var isAddress: Bool { self.ipAddress != nil }
}
