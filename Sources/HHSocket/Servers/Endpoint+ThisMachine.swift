extension Endpoint {
    /// Whether the server runs on this machine for certain, so that it can be reached without a network. A name that
    /// only happens to lead here is not looked up.
    var isOnThisMachine: Bool {
        if self.unixPath != nil { return true }
        let name = self.host.lowercased()
        // RFC 6761 keeps all names below `localhost` for the loopback interface.
        if name == "localhost" || name.hasSuffix(".localhost") { return true }
        // Written in the one way the system writes it, for an IPv6 address may be spelled in many.
        guard let address = self.ipAddress?.ipAddress else { return false }
        // The unspecified address leads here as well.
        return ["::1", "::", "0.0.0.0"].contains(address) || address.hasPrefix("127.")
            || address.hasPrefix("::ffff:127.")
    }
}
