/// By which way this machine is connected. Two that are not equal are different ways: what went by one may be lost.
public struct NetworkPath: Hashable, Sendable {
    /// Whether there is a network at all. Whether a server can be reached by it shows only when it is tried.
    public var isReachable: Bool
    /// What to call the network, such as `wifi`; an adaptive heartbeat learns for each name. Nil: as before.
    public var name: String?
    /// Whatever else makes it this path and not another, such as interfaces with their addresses and routers; only
    /// compared.
    public var details: [String]

    public init(isReachable: Bool, name: String? = nil, details: [String] = []) {
        self.isReachable = isReachable
        self.name = name
        self.details = details
    }
}
