// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import HHSocketMessage
import NIOSSL

/// A server's certificates by the host that clients name.
struct ServerIdentities: Sendable {
    typealias Identity = (chain: [NIOSSLCertificate], key: NIOSSLPrivateKey)

    let standard: Identity
    private var names: [String: Identity] = [:]
    /// The identities by the part after `*.`.
    private var wildcards: [String: Identity] = [:]

    var all: [Identity] { [self.standard] + self.names.values + self.wildcards.values }

    /// Reads the files.
    ///
    /// - Throws: ``/HHSocket/SocketError`` with code `invalidArgument` that names the file that cannot be read, or the
    ///   invalid name.
    init(_ tls: ServerTLS) throws(SocketError) {
        self.standard = try tls.identity.load()
        for (host, identity) in tls.identitiesByHost {
            let pattern = try HostPattern(host)
            let loaded: Identity
            do throws(SocketError) {
                loaded = try identity.load()
            } catch {
                var error = error
                error.message = "for \(host): \(error.message)"
                throw error
            }
            let isNew =
                pattern.isWildcard
                ? self.wildcards.updateValue(loaded, forKey: pattern.name) == nil
                : self.names.updateValue(loaded, forKey: pattern.name) == nil
            guard isNew else { throw .invalid("the host \(host) has two certificates") }
        }
    }

    /// The certificate for a client that names `host`; nil if it names none.
    func identity(for host: String?) -> Identity {
        guard let host else { return self.standard }
        let name = HostPattern.normalized(host)
        if let identity = self.names[name] { return identity }
        guard let dot = name.firstIndex(of: "."), dot > name.startIndex else { return self.standard }
        return self.wildcards[String(name[name.index(after: dot)...])] ?? self.standard
    }
}

/// A host name, or all names with one label more.
struct HostPattern: Hashable, Sendable {
    /// In lower case, without a final period; for a wildcard the part after `*.`.
    let name: String
    let isWildcard: Bool

    /// - Throws: ``/HHSocket/SocketError`` with code `invalidArgument`.
    init(_ text: String) throws(SocketError) {
        let whole = Self.normalized(text)
        self.isWildcard = whole.hasPrefix("*.")
        self.name = self.isWildcard ? String(whole.dropFirst(2)) : whole
        let labels = self.name.split(separator: ".", omittingEmptySubsequences: false)
        let isName = labels.allSatisfy { label in
            (1...63).contains(label.utf8.count)
                && label.utf8.allSatisfy {
                    $0.isASCIILetter || $0.isASCIIDigit || $0 == UInt8(ascii: "-") || $0 == UInt8(ascii: "_")
                }
        }
        // Like clients, which accept no certificate for a whole top-level domain.
        guard isName, !self.isWildcard || labels.count > 1 else {
            throw .invalid(
                """
                "\(text)" is no host of a certificate (ServerTLS.identitiesByHost): it takes a name in ASCII, or \
                *. followed by a name of two labels or more
                """
            )
        }
    }

    static func normalized(_ name: String) -> String {
        let name = name.lowercased()
        return name.hasSuffix(".") ? String(name.dropLast()) : name
    }
}
