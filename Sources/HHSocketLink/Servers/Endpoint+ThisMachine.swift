// SPDX-License-Identifier: Apache-2.0
extension Endpoint {
    /// Whether the server certainly runs on this machine, so that it can be reached without a network. Names are not
    /// looked up, even if they resolve to this machine.
    package var isOnThisMachine: Bool {
        if self.unixPath != nil { return true }
        let name = self.host.lowercased()
        // RFC 6761 reserves all names below `localhost` for the loopback interface.
        if name == "localhost" || name.hasSuffix(".localhost") { return true }
        // In the system's canonical form, since an IPv6 address has many spellings.
        guard let address = self.ipAddress?.ipAddress else { return false }
        // The unspecified address also leads to this machine.
        return ["::1", "::", "0.0.0.0"].contains(address) || address.hasPrefix("127.")
            || address.hasPrefix("::ffff:127.")
    }
}
