// SPDX-License-Identifier: Apache-2.0
#if os(Linux) || os(Android)
import CNetlink
import HHSocketSystem

extension NetworkSnapshot {
    /// Returns the current state of the network; nil if the system does not report it.
    static func now() -> NetworkSnapshot? {
        guard let interfaces = self.currentInterfaces() else { return nil }
        return NetworkSnapshot(interfaces: interfaces, waysOut: [AF_INET, AF_INET6].compactMap { self.wayOut($0) })
    }

    private static func currentInterfaces() -> [Interface]? {
        var list: UnsafeMutablePointer<ifaddrs>?
        guard getifaddrs(&list) == 0 else { return nil }
        defer { freeifaddrs(list) }
        // Without /proc all addresses count.
        let table = (try? String(contentsOfFile: "/proc/net/if_inet6", encoding: .utf8)).map { IPv6AddressTable($0) }
        var interfaces: [String: Interface] = [:]
        var next = list
        while let entry = next?.pointee {
            next = entry.ifa_next
            let name = String(cString: entry.ifa_name)
            let flags = entry.ifa_flags
            var interface =
                interfaces[name]
                ?? Interface(
                    name: name,
                    isUp: flags & UInt32(IFF_UP) != 0,
                    isRunning: flags & UInt32(IFF_RUNNING) != 0,
                    isLoopback: flags & UInt32(IFF_LOOPBACK) != 0
                )
            if let (family, address) = self.address(entry.ifa_addr) {
                let text = self.text(family, address)
                switch family == AF_INET ? .lasting : table?.use(of: address, on: name) ?? .lasting {
                case .lasting: interface.addresses.append(text)
                case .temporary: interface.temporaryAddresses.append(text)
                case .unusable: break
                }
            }
            interfaces[name] = interface
        }
        // Sorted, since the order of a dictionary's values is not stable.
        return interfaces.values.sorted { $0.name < $1.name }
    }

    /// The bytes of an IP address; nil for another kind of address.
    private static func address(_ pointer: UnsafeMutablePointer<sockaddr>?) -> (family: CInt, bytes: [UInt8])? {
        guard let pointer else { return nil }
        switch CInt(pointer.pointee.sa_family) {
        case AF_INET:
            return pointer.withMemoryRebound(to: sockaddr_in.self, capacity: 1) { address in
                (AF_INET, withUnsafeBytes(of: address.pointee.sin_addr) { Array($0) })
            }
        case AF_INET6:
            return pointer.withMemoryRebound(to: sockaddr_in6.self, capacity: 1) { address in
                (AF_INET6, withUnsafeBytes(of: address.pointee.sin6_addr) { Array($0) })
            }
        default:
            return nil
        }
    }

    private static func text(_ family: CInt, _ address: [UInt8]) -> String {
        var text = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
        inet_ntop(family, address, &text, socklen_t(text.count))
        return self.string(text)
    }

    private static func wayOut(_ family: CInt) -> WayOut? {
        var interface = [CChar](repeating: 0, count: Int(CNETLINK_NAME_LENGTH))
        var router = interface
        guard cnetlink_route_out(family, &interface, &router) == 1 else { return nil }
        return WayOut(
            interface: self.string(interface),
            router: router.first == 0 ? nil : self.string(router)
        )
    }

    private static func string(_ characters: [CChar]) -> String {
        String(decoding: characters.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}
#endif
