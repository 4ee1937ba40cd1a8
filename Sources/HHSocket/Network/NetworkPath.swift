// SPDX-License-Identifier: Apache-2.0
/// The path by which this machine is connected. Connections over one path may not survive a change to another.
public struct NetworkPath: Hashable, Sendable {
    /// Whether there is a network at all. A server may still be unreachable over it.
    public var isReachable: Bool
    /// The network's name, such as `wifi`, for each of which an adaptive heartbeat learns; nil if it is the same as
    /// before.
    public var name: String?
    /// Further properties that distinguish this path from others, such as interfaces with their addresses and routers;
    /// only compared.
    public var details: [String]

    public init(isReachable: Bool, name: String? = nil, details: [String] = []) {
        self.isReachable = isReachable
        self.name = name
        self.details = details
    }
}
