// SPDX-License-Identifier: Apache-2.0
// What the sources use of Network.framework.
public import Dispatch

public final class NWPathMonitor {
    public var pathUpdateHandler: (@Sendable (NWPath) -> Void)?
    public init() {}
    public func start(queue: DispatchQueue) {}
    public func cancel() {}
}

extension NWPathMonitor: @unchecked Sendable {}

public struct NWPath: Equatable, Sendable {
    public enum Status: Sendable { case satisfied, unsatisfied, requiresConnection }

    public let status: NWPath.Status
    public let availableInterfaces: [NWInterface]
    public let supportsIPv4: Bool
    public let supportsIPv6: Bool
    public let gateways: [NWEndpoint]
}

public struct NWInterface: Hashable, Sendable {
    public enum InterfaceType: Sendable { case other, wifi, cellular, wiredEthernet, loopback }

    public let type: NWInterface.InterfaceType
    public let name: String
}

public enum NWEndpoint: Hashable, Sendable {
    case unix(path: String)
}

public final class NWProtocolTCP {
    public final class Options {
        public init() {}
        public var noDelay: Bool {
            get { fatalError() }
            set { fatalError() }
        }
    }
}
