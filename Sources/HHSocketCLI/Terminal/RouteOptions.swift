// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket

/// The options of clients for the way to the server: its proxy, address family and TLS.
///
/// They are one group, and commands have it themselves, not within another: in debug builds ArgumentParser takes four
/// times as long for each level of groups.
struct RouteOptions: ParsableArguments {
    @Option(
        help: .value(
            "url",
            "Connect through this proxy: http://user:password@host:port, or socks5://…; the user and "
                + "password are optional."
        ),
        transform: Self.parseProxy
    )
    var proxy: Proxy?

    enum Family: EnumerableFlag {
        case ipv4, ipv6

        static func name(for value: Self) -> NameSpecification {
            switch value {
            case .ipv4: [.long, .customShort("4")]
            case .ipv6: [.long, .customShort("6")]
            }
        }

        static func help(for value: Self) -> ArgumentHelp? {
            switch value {
            case .ipv4: "Connect by IPv4 only, to the server or to its proxy."
            case .ipv6: "Connect by IPv6 only, to the server or to its proxy."
            }
        }
    }

    @Flag(exclusivity: .exclusive)
    var family: Family?

    @Flag(name: .customLong("tls"), help: "Use TLS. Implied by the other TLS options.")
    var isOn = false

    @Option(help: .value("file", "Trust the authorities in this PEM file instead of the system's."))
    var ca: String?

    @Option(help: .value("file", "The client certificate and its chain, in PEM."))
    var cert: String?

    @Option(help: .value("file", "The private key of --cert, in PEM."))
    var key: String?

    @Option(
        help: .value(
            "base64",
            "Require the server's public key to have this SHA-256. May be given several times; one must match."
        ),
        transform: Self.pin
    )
    var pin: [PublicKeyPin] = []

    @Option(help: .value("name", "The name that the server's certificate must have. (default: the host)"))
    var serverName: String?

    @Flag(help: "Accept any certificate. Anybody on the network path can then read and change everything.")
    var insecureSkipVerification = false

    func validate() throws {
        try require((self.cert == nil) == (self.key == nil), "--cert and --key must be given together.")
    }

    private static func parseProxy(_ url: String) throws -> Proxy {
        do throws(SocketError) {
            return try Proxy(url: url)
        } catch {
            throw ValidationError(error.message)
        }
    }

    private static func pin(_ text: String) throws -> PublicKeyPin {
        do throws(SocketError) {
            return try PublicKeyPin(base64: text)
        } catch {
            throw ValidationError(error.message)
        }
    }

    /// Applies the options to a configuration, whose TLS remains if none is asked for.
    func apply(to configuration: inout SocketConfiguration) {
        if let tls = self.tls { configuration.tls = tls }
        configuration.proxy = self.proxy
        configuration.addressFamilies = self.families
    }

    /// The TLS of a connection; nil for none.
    private var tls: ClientTLS? {
        var tls = ClientTLS()
        if let ca = self.ca { tls.trust = .file(ca) }
        if let cert = self.cert, let key = self.key { tls.identity = TLSIdentity(certificateFile: cert, keyFile: key) }
        tls.pins = Set(self.pin)
        tls.serverName = self.serverName
        tls.insecurelySkipsVerification = self.insecureSkipVerification
        let isAskedFor =
            self.isOn || self.ca != nil || self.cert != nil || !self.pin.isEmpty || self.serverName != nil
            || self.insecureSkipVerification
        return isAskedFor ? tls : nil
    }

    /// The families that the options allow.
    private var families: AddressFamilies {
        switch self.family {
        case nil: .any
        case .ipv4: .onlyIPv4
        case .ipv6: .onlyIPv6
        }
    }
}
