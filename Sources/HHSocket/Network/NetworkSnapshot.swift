// SPDX-License-Identifier: Apache-2.0
/// The state of the system's network at one moment, and the path that follows from it.
struct NetworkSnapshot: Hashable, Sendable {
    struct Interface: Hashable, Sendable {
        var name: String
        var isUp = true
        /// Whether it has a carrier: a cable that is plugged in at both ends, or a radio that is associated.
        var isRunning = true
        var isLoopback = false
        /// The lasting addresses, as text.
        var addresses: [String] = []
        /// The temporary IPv6 addresses, which are replaced every few hours for privacy.
        var temporaryAddresses: [String] = []
    }

    /// The route for packets to the internet.
    struct WayOut: Hashable, Sendable, CustomStringConvertible {
        var interface: String
        /// The next router; nil if there is none, such as in a tunnel.
        var router: String?

        var description: String { self.interface + (self.router.map { " via \($0)" } ?? "") }
    }

    var interfaces: [Interface] = []
    /// The routes for IPv4 and IPv6, in this order, where they exist.
    var waysOut: [WayOut] = []

    /// The path. There is a network if a working interface has an address with which others can be reached. A route to
    /// the internet is not required: an isolated network may have none. A link-local IPv6 address is not enough, since
    /// every interface that is up has one; a link-local IPv4 address is, since it is assigned only if the network is
    /// configured so, or if other machines have one too.
    ///
    /// Temporary addresses do not change the path: each stays as long as connections use it, alongside its successor.
    var path: NetworkPath {
        var addresses: [String] = []
        var first: String?
        for interface in self.interfaces.sorted(by: { $0.name < $1.name })
        where interface.isUp && interface.isRunning && !interface.isLoopback {
            let outward = interface.addresses.filter { !Self.isLinkLocal($0) }.sorted()
            let isAnyOutward = !outward.isEmpty || interface.temporaryAddresses.contains { !Self.isLinkLocal($0) }
            if isAnyOutward, first == nil { first = interface.name }
            addresses += outward.map { "\(interface.name) \($0)" }
        }
        // Without a network all paths are equal.
        guard let first else { return NetworkPath(isReachable: false) }
        // The name distinguishes one NAT from another, so it contains the router, of IPv4 if there is one.
        return NetworkPath(
            isReachable: true,
            name: self.waysOut.first?.description ?? first,
            details: addresses + self.waysOut.map { "out by \($0)" }
        )
    }

    /// Whether the address is in fe80::/10.
    private static func isLinkLocal(_ address: String) -> Bool {
        ["fe8", "fe9", "fea", "feb"].contains(address.prefix(3).lowercased()) && address.contains(":")
    }
}

/// The table of IPv6 addresses in Linux's `/proc/net/if_inet6`, which has flags that `getifaddrs` does not return.
struct IPv6AddressTable: Sendable {
    private struct Key: Hashable {
        var interface: Substring
        /// 32 hexadecimal digits.
        var address: Substring
    }

    enum Use: Hashable, Sendable { case lasting, temporary, unusable }

    // IFA_F_TEMPORARY, IFA_F_DADFAILED and IFA_F_TENTATIVE of linux/if_addr.h.
    private static let temporary: UInt8 = 0x01
    private static let isDuplicate: UInt8 = 0x08
    private static let tentative: UInt8 = 0x40

    private var flags: [Key: UInt8] = [:]

    init(_ text: String) {
        for line in text.split(separator: "\n") {
            // Address, interface index, prefix length, scope, flags, interface name.
            let fields = line.split(separator: " ")
            guard fields.count == 6, let flags = UInt8(fields[4], radix: 16) else { continue }
            self.flags[Key(interface: fields[5], address: fields[0])] = flags
        }
    }

    /// Returns the use of an address. It is unusable until duplicate address detection has succeeded. An address that
    /// is not in the table is lasting: an unreadable table must not block connecting.
    func use(of address: [UInt8], on interface: String) -> Use {
        guard let flags = self.flags[Key(interface: interface[...], address: address.hexadecimal[...])] else {
            return .lasting
        }
        if flags & (Self.isDuplicate | Self.tentative) != 0 { return .unusable }
        return flags & Self.temporary == 0 ? .lasting : .temporary
    }
}
