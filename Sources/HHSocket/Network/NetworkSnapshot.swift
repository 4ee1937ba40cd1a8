/// What the system said of its network in one moment, and what follows from that.
struct NetworkSnapshot: Hashable, Sendable {
    struct Interface: Hashable, Sendable {
        var name: String
        var isUp = true
        /// Whether it has a carrier: a cable with somebody at its other end, a radio that is associated.
        var isRunning = true
        var isLoopback = false
        /// As text.
        var addresses: [String] = []
        /// Those of IPv6 that are there for privacy's sake, and give way to others every few hours.
        var temporaryAddresses: [String] = []
    }

    /// Where packets to the internet leave.
    struct WayOut: Hashable, Sendable, CustomStringConvertible {
        var interface: String
        /// Nil where there is none between, as in a tunnel.
        var router: String?

        var description: String { self.interface + (self.router.map { " via \($0)" } ?? "") }
    }

    var interfaces: [Interface] = []
    /// One for IPv4 and one for IPv6, where there are such ways.
    var waysOut: [WayOut] = []

    /// A network is there if an interface that works has an address with which others can be reached. A way out is not
    /// asked for: a network of one's own may have none. An IPv6 address of the link is not enough, for every interface
    /// that is up has one; one of IPv4 is, for it is given only where a network is configured so, or where others have
    /// one too.
    ///
    /// Temporary addresses do not make another path: one stays for as long as connections use it, beside the next.
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
        // Without a network nothing tells one path from another.
        guard let first else { return NetworkPath(isReachable: false) }
        // The name is what a NAT is told from another by, so it has the router, of IPv4 where there is one.
        return NetworkPath(
            isReachable: true,
            name: self.waysOut.first?.description ?? first,
            details: addresses + self.waysOut.map { "out by \($0)" }
        )
    }

    /// Whether the address is one of fe80::/10.
    private static func isLinkLocal(_ address: String) -> Bool {
        ["fe8", "fe9", "fea", "feb"].contains(address.prefix(3).lowercased()) && address.contains(":")
    }
}

/// The table of IPv6 addresses that Linux shows in `/proc/net/if_inet6`; it says of them what `getifaddrs` does not.
struct IPv6AddressTable: Sendable {
    private struct Key: Hashable {
        var interface: Substring
        /// 32 digits.
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
            // Address, interface's index, length of the prefix, scope, flags, interface's name.
            let fields = line.split(separator: " ")
            guard fields.count == 6, let flags = UInt8(fields[4], radix: 16) else { continue }
            self.flags[Key(interface: fields[5], address: fields[0])] = flags
        }
    }

    /// What an address is good for. For nothing as long as it is not known whether somebody else has it, or when
    /// somebody does. One that the table does not have counts: what is not understood must hold nobody back.
    func use(of address: [UInt8], on interface: String) -> Use {
        let digits = address.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
        guard let flags = self.flags[Key(interface: interface[...], address: digits[...])] else { return .lasting }
        if flags & (Self.isDuplicate | Self.tentative) != 0 { return .unusable }
        return flags & Self.temporary == 0 ? .lasting : .temporary
    }
}
