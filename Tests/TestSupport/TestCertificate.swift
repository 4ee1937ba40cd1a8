// SPDX-License-Identifier: Apache-2.0
import Foundation
package import HHSocket

// The certificates of tests are committed, so that they need not be created first: `Tests/Certificates/make.sh` has
// created them.

/// A certificate authority of the tests.
package struct TestAuthority: Sendable {
    package enum Name: String, Sendable {
        /// The issuer of all certificates without another one.
        case authority
        /// An authority with the name of the first, whose certificate claims its key identifier, but with another key.
        case impostor
        case clients
        case strangers
        /// An authority with a revocation list.
        case revoking
        /// The issuer of certificates whose keys are not of P-256.
        case modern
    }

    /// Its own certificate.
    package let pem: String

    package var trust: TLSTrust { .pem(self.pem) }

    package init(_ name: Name = .authority) throws {
        self.pem = try certificateFile("\(name.rawValue).pem")
    }
}

/// A certificate and its key, as PEM.
package struct TestCertificate: Sendable {
    package enum Name: String, Sendable {
        /// For `localhost` and 127.0.0.1.
        case server
        /// Like `server`, with another key.
        case serverRenewed = "server-renewed"
        /// Like `server`, with a third key, valid until January 2020.
        case serverExpired = "server-expired"
        /// For `example.com`.
        case serverNameOnly = "server-name-only"
        /// For `other.example` and 127.0.0.1.
        case serverOtherName = "server-other-name"
        /// For `db.example`.
        case serverDB = "server-db"
        /// For `db.example`, 127.0.0.1 and 10.1.2.3.
        case serverDBAddresses = "server-db-addresses"
        /// For `other`, by the impostor, with the key of `server`.
        case serverSameKey = "server-same-key"
        /// Like `server`, by the authority `modern`, with a key of Ed25519.
        case serverEd25519 = "server-ed25519"
        /// Like `server`, by the authority `modern`, with a key of P-521.
        case serverP521 = "server-p521"
        case client
        /// By the authority `modern`, with a key of Ed25519.
        case clientEd25519 = "client-ed25519"
        /// By the authority `modern`, with a key of P-521.
        case clientP521 = "client-p521"
        /// Valid until January 2020.
        case clientExpired = "client-expired"
        /// By the authority `clients`.
        case clientOfClients = "client-of-clients"
        /// By the authority `strangers`.
        case clientOfStrangers = "client-of-strangers"
        /// By the authority `revoking`.
        case clientOfRevoking = "client-of-revoking"
        /// By the authority `revoking`, and revoked.
        case clientRevoked = "client-revoked"
    }

    package let certificatePEM: String
    package let keyPEM: String
    /// The SHA-256 of its public key in base64, as openssl's command has computed it.
    package let pin: String

    package init(_ name: Name) throws {
        self.certificatePEM = try certificateFile("\(name.rawValue).pem")
        self.keyPEM = try certificateFile("\(name.rawValue).key")
        self.pin = try certificateFile("\(name.rawValue).pin").trimmingCharacters(in: .whitespacesAndNewlines)
    }

    /// The certificate in DER, in base64.
    package var certificateBase64: String {
        self.certificatePEM.split(separator: "\n").filter { !$0.hasPrefix("-----") }.joined()
    }
    package var identity: TLSIdentity { TLSIdentity(certificatePEM: self.certificatePEM, keyPEM: self.keyPEM) }
}

/// The key of the certificate `server`, encrypted: in PKCS#8, and in the traditional form of PEM.
package func testEncryptedKeys() throws -> [String] {
    try ["encrypted-pkcs8.key", "encrypted-traditional.key"].map { try certificateFile($0) }
}

/// The revocation list of the authority `revoking`, in PEM.
package func testRevocationList() throws -> String { try certificateFile("revoked-list.pem") }

private func certificateFile(_ name: String) throws -> String {
    try String(contentsOf: packageFolder.appendingPathComponent("Tests/Certificates/\(name)"), encoding: .utf8)
}
