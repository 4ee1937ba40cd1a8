import ArgumentParser
import HHSocket
import HHSocketServer

/// TLS to a server.
struct ClientTLSOptions: ParsableArguments {
    @Flag(name: .customLong("tls"), help: "Speak TLS. The options below do so too.")
    var isOn = false

    @Option(help: ArgumentHelp("Believe the authorities in this PEM file instead of the system's.", valueName: "file"))
    var ca: String?

    @Option(help: ArgumentHelp("Our certificate, with those that lead to its authority, in PEM.", valueName: "file"))
    var cert: String?

    @Option(help: ArgumentHelp("The private key to it, in PEM.", valueName: "file"))
    var key: String?

    @Option(
        help: ArgumentHelp(
            "The server's key must have this SHA-256; may be given several times.",
            valueName: "base64"
        ),
        transform: Self.pin
    )
    var pin: [PublicKeyPin] = []

    @Option(help: ArgumentHelp("What the server's certificate must name. (default: the host)", valueName: "name"))
    var serverName: String?

    @Flag(help: "Take any certificate: whoever is on the path can read and change everything.")
    var insecureSkipVerification = false

    func validate() throws {
        guard (self.cert == nil) == (self.key == nil) else {
            throw ValidationError("--cert and --key go together.")
        }
    }

    private static func pin(_ text: String) throws -> PublicKeyPin {
        do throws(SocketError) {
            return try PublicKeyPin(base64: text)
        } catch {
            throw ValidationError(error.message)
        }
    }

    /// Nil for a connection without.
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

/// TLS for clients.
struct ServerTLSOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Speak TLS with this certificate, and those that lead to its authority, in PEM. SIGHUP reads it anew.",
            valueName: "file"
        )
    )
    var cert: String?

    @Option(help: ArgumentHelp("The private key to it, in PEM.", valueName: "file"))
    var key: String?

    @Option(
        help: ArgumentHelp(
            "Let in clients alone that show a certificate of an authority in this PEM file.",
            valueName: "file"
        )
    )
    var ca: String?

    func validate() throws {
        guard (self.cert == nil) == (self.key == nil) else {
            throw ValidationError("--cert and --key go together.")
        }
        guard self.ca == nil || self.cert != nil else {
            throw ValidationError("--ca is about TLS, which needs --cert and --key.")
        }
    }

    /// Nil for a server without.
    var tls: ServerTLS? {
        guard let cert = self.cert, let key = self.key else { return nil }
        var tls = ServerTLS(identity: TLSIdentity(certificateFile: cert, keyFile: key))
        if let ca = self.ca { tls.clientCertificates = .required(.file(ca)) }
        return tls
    }
}
