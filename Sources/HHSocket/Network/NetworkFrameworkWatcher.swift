// SPDX-License-Identifier: Apache-2.0
#if canImport(Network)
import Dispatch
import Network

/// Apple's own monitor.
final class NetworkFrameworkWatcher: PathWatcher {
    private let monitor = NWPathMonitor()
    private let settler: PathSettler

    init(queue: DispatchQueue, report: @escaping @Sendable (NetworkPath) -> Void) {
        let settler = PathSettler(queue: queue, report: report)
        self.settler = settler
        self.monitor.pathUpdateHandler = { path in settler.take(NetworkPath(path)) }
        self.monitor.start(queue: queue)
    }

    func cancel() {
        self.monitor.cancel()
        self.settler.cancel()
    }
}

extension NetworkPath {
    /// A path that must be set up first, such as a VPN on demand, counts as reachable: a connection sets it up.
    init(_ path: NWPath) {
        guard path.status != .unsatisfied else {
            self.init(isReachable: false)
            return
        }
        self.init(
            isReachable: true,
            name: path.availableInterfaces.first.map { Self.name(of: $0.type) },
            details: path.availableInterfaces.map(\.name) + path.gateways.map { "via \($0)" }
                + (path.supportsIPv4 ? ["IPv4"] : []) + (path.supportsIPv6 ? ["IPv6"] : [])
        )
    }

    private static func name(of type: NWInterface.InterfaceType) -> String {
        switch type {
        case .wifi: "wifi"
        case .cellular: "cellular"
        case .wiredEthernet: "wiredEthernet"
        case .loopback: "loopback"
        case .other: "other"
        @unknown default: "other"
        }
    }
}
#endif
