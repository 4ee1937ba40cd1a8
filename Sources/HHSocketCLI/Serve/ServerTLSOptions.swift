// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocketServer

/// The TLS options of servers.
struct ServerTLSOptions: ParsableArguments {
    @Option(help: .value("file", "Use TLS with this certificate and its chain, in PEM. SIGHUP reloads the files."))
    var cert: String?

    @Option(help: .value("file", "The private key of --cert, in PEM."))
    var key: String?

    @Option(help: .value("file", "Require clients to present a certificate issued by an authority in this PEM file."))
    var ca: String?

    func validate() throws {
        try require((self.cert == nil) == (self.key == nil), "--cert and --key must be given together.")
        try require(self.ca == nil || self.cert != nil, "--ca requires --cert and --key.")
    }

    /// The TLS of a server; nil for none.
    var tls: ServerTLS? {
        guard let cert = self.cert, let key = self.key else { return nil }
        var tls = ServerTLS(identity: TLSIdentity(certificateFile: cert, keyFile: key))
        if let ca = self.ca { tls.clientCertificates = .required(.file(ca)) }
        return tls
    }
}
