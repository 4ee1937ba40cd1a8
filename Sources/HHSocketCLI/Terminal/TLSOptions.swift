// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket
import HHSocketServer

/// The TLS options of clients.
struct ClientTLSOptions: ParsableArguments {
    @Flag(name: .customLong("tls"), help: "Use TLS. Implied by the other TLS options.")
    var isOn = false

    @Option(help: ArgumentHelp("Trust the authorities in this PEM file instead of the system's.", valueName: "file"))
    var ca: String?

    @Option(help: ArgumentHelp("The client certificate and its chain, in PEM.", valueName: "file"))
    var cert: String?

    @Option(help: ArgumentHelp("The private key of --cert, in PEM.", valueName: "file"))
    var key: String?

    @Option(
        help: ArgumentHelp(
            "Require the server's public key to have this SHA-256. May be given several times; one must match.",
            valueName: "base64"
        ),
        transform: Self.pin
    )
    var pin: [PublicKeyPin] = []

    @Option(
        help: ArgumentHelp("The name that the server's certificate must have. (default: the host)", valueName: "name")
    )
    var serverName: String?

    @Flag(help: "Accept any certificate. Anybody on the network path can then read and change everything.")
    var insecureSkipVerification = false

    func validate() throws {
        guard (self.cert == nil) == (self.key == nil) else {
            throw ValidationError("--cert and --key must be given together.")
        }
    }

    private static func pin(_ text: String) throws -> PublicKeyPin {
        do throws(SocketError) {
            return try PublicKeyPin(base64: text)
        } catch {
            throw ValidationError(error.message)
        }
    }

    /// The TLS of a connection; nil for none.
    var tls: ClientTLS? {
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
}

/// The TLS options of servers.
struct ServerTLSOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Use TLS with this certificate and its chain, in PEM. SIGHUP reloads the files.",
            valueName: "file"
        )
    )
    var cert: String?

    @Option(help: ArgumentHelp("The private key of --cert, in PEM.", valueName: "file"))
    var key: String?

    @Option(
        help: ArgumentHelp(
            "Require clients to present a certificate issued by an authority in this PEM file.",
            valueName: "file"
        )
    )
    var ca: String?

    func validate() throws {
        guard (self.cert == nil) == (self.key == nil) else {
            throw ValidationError("--cert and --key must be given together.")
        }
        guard self.ca == nil || self.cert != nil else {
            throw ValidationError("--ca requires --cert and --key.")
        }
    }

    /// The TLS of a server; nil for none.
    var tls: ServerTLS? {
        guard let cert = self.cert, let key = self.key else { return nil }
        var tls = ServerTLS(identity: TLSIdentity(certificateFile: cert, keyFile: key))
        if let ca = self.ca { tls.clientCertificates = .required(.file(ca)) }
        return tls
    }
}
