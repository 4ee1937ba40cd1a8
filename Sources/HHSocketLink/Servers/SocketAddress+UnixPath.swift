// SPDX-License-Identifier: Apache-2.0
import HHSocketSystem
package import NIOCore

/// A path that the system does not take for a Unix domain socket.
package struct UnixPathTooLong: Error, CustomStringConvertible {
    let length: Int

    package var description: String {
        "the path has \(self.length) bytes, and that of a Unix domain socket may have \(SocketAddress.longestUnixPath)"
    }
}

extension SocketAddress {
    /// The length of the longest path in bytes: a zero follows.
    fileprivate static let longestUnixPath = MemoryLayout.size(ofValue: sockaddr_un().sun_path) - 1

    /// The address of a Unix domain socket. SwiftNIO's initialiser takes 103 bytes, whatever the system takes.
    package init(unixPath: String) throws(UnixPathTooLong) {
        let path = Array(unixPath.utf8)
        guard path.count <= Self.longestUnixPath else { throw UnixPathTooLong(length: path.count) }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path) }
        self = SocketAddress(address)
    }
}
