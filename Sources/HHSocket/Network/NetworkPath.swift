// SPDX-License-Identifier: Apache-2.0
/// The path by which this machine is connected. Connections over one path may not survive a change to another.
public struct NetworkPath: Hashable, Sendable {
    /// Whether there is a network at all. A server may still be unreachable over it.
    package var isReachable: Bool
    /// The network's name; nil if it is the same as before.
    package var name: String?
    /// Further properties, which are only compared.
    package var details: [String]

    /// - Parameters:
    ///   - isReachable: Whether there is a network at all.
    ///   - name: The network's name, such as `wifi`, for each of which an adaptive heartbeat learns; nil, the default,
    ///     if it is the same as before.
    ///   - details: Further properties that distinguish this path from others, such as interfaces with their addresses
    ///     and routers; none by default.
    public init(isReachable: Bool, name: String? = nil, details: [String] = []) {
        self.isReachable = isReachable
        self.name = name
        self.details = details
    }
}
