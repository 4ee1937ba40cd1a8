// SPDX-License-Identifier: Apache-2.0
/// The errors of all servers: the underlying error of one with code ``SocketError/Code/noServerReachable``.
public struct UnreachableServers: Error, Sendable, CustomStringConvertible {
    /// The last error of each server that was tried, which is its ``SocketError/endpoint``.
    public let errors: [SocketError]

    package init(errors: [SocketError]) {
        self.errors = errors
    }

    public var description: String { self.errors.map(\.message).joined(separator: "; ") }
}
